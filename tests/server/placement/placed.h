/* A model, some devices, and what is wanted of them: for the tests of placements. */
#pragma once
#include "server/placement/placement_inside.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 5 }; // devices
#define GIB (1024ull * 1024 * 1024)

static struct model_shape shape;
static struct model_sizes sizes;
static struct placement_device devices[MOST + 1];
static bool copies[(MOST + 1) * (MOST + 1)];
static struct placement_wanted wanted;
static struct placement placement;

static inline void make_model(uint32_t layers, uint64_t layer_bytes)
{
	shape = (struct model_shape){.family = FAMILY_LLAMA,
				     .layers = layers,
				     .embedding = 2048,
				     .feed_forward = 5632,
				     .heads = 32,
				     .kv_heads = 4,
				     .head_size = 64,
				     .vocabulary = 32000,
				     .context = 4096,
				     .rope_size = 64};
	sizes = (struct model_sizes){.embedding_bytes = 130000000,
				     .output_bytes = 131000000,
				     .layer_bytes = layer_bytes,
				     .layers_bytes = layer_bytes * layers,
				     .main_format = FORMAT_F16};
	sizes.format_bytes[FORMAT_F16] = sizes.layers_bytes + sizes.embedding_bytes + sizes.output_bytes;
}

static inline void make_device(unsigned at, enum placement_backend backend, uint64_t free_bytes)
{
	static const char *const ids[] = {"dev_0", "dev_1", "dev_2", "dev_3", "dev_4", "dev_5"};
	devices[at] = (struct placement_device){.device_id = ids[at],
						.name = ids[at],
						.node_id = "nod",
						.pool = ids[at],
						.backend = backend,
						.memory_bytes = free_bytes,
						.free_bytes = free_bytes,
						.free_known = true,
						.bandwidth = 1e11};
}

static inline void want(unsigned count)
{
	wanted = (struct placement_wanted){.shape = &shape,
					   .sizes = &sizes,
					   .devices = devices,
					   .device_count = count,
					   .node_count = 1,
					   .timeout_s = 100,
					   .remedies = true,
					   .context_tokens = 2048,
					   .sequences = 4};
}

// Both ways, among those that are wanted.
static inline void set_linked(unsigned first, unsigned second, bool directly)
{
	copies[first * wanted.device_count + second] = copies[second * wanted.device_count + first] = directly;
	wanted.copies = copies;
}

static inline bool says(const char *text)
{
	for (unsigned i = 0; i < placement.why_count; i++)
		if (strstr(placement.whys[i].text, text))
			return true;
	return false;
}
