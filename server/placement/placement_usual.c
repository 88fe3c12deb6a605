/* See placement.h: the default context, and the default number of simultaneous requests. */
#include "engine/stage.h"
#include "server/placement/placement.h"

#include <string.h>

enum {
	CONTEXT_MOST = 32768, // more only for who asks: a context is memory that others do not get
	CONTEXT_LEAST = 2048,
	SEQUENCES_MOST = 2 << (PLACEMENT_BATCHES - 1), // batches are timed up to so many rows
	SEQUENCES_OF_CONTEXT = 8,
	SHARE_BEYOND = 4,  // of the share of one of the first, the share of each beyond PLACEMENT_SHARERS
	CONTEXT_SHARE = 8, // a context takes at most this fraction of the memory that the weights leave
	PAGES_SHARE = 4,   // and all pages
	WORKSPACE_SHARE = 16,
};

struct room {
	uint64_t most, all; // of one device; of all that do not share memory
};

static bool counts(const struct placement_wanted *wanted, unsigned index, bool gpus)
{
	const struct placement_device *device = &wanted->devices[index];
	bool pinned = false;
	for (unsigned i = 0; i < wanted->pin_count; i++)
		pinned |= wanted->pins[i].device == index;
	return wanted->pin_count ? pinned
				 : !device->unusable && !device->software && (!gpus || device->backend != PLACE_CPU);
}

static uint64_t room_of(const struct placement_device *device, bool now)
{
	return now && device->free_known ? device->free_bytes
					 : device->memory_bytes - device->memory_bytes / WORKSPACE_SHARE;
}

static bool shares(const struct placement_device *a, const struct placement_device *b)
{
	return a->pool && b->pool && a->pool[0] && a->node == b->node && !strcmp(a->pool, b->pool);
}

// `now`: free memory; else all memory, since idle models may hold some of it.
static struct room look(const struct placement_wanted *wanted, bool gpus, bool now)
{
	struct room room = {0};
	for (unsigned i = 0; i < wanted->device_count; i++) {
		const struct placement_device *device = &wanted->devices[i];
		bool first = true;
		if (!counts(wanted, i, gpus))
			continue;
		for (unsigned j = 0; j < i; j++)
			first &= !counts(wanted, j, gpus) || !shares(device, &wanted->devices[j]);
		const uint64_t bytes = room_of(device, now);
		room.most = bytes > room.most ? bytes : room.most;
		room.all += first ? bytes : 0;
	}
	return room;
}

// The memory that the weights leave where the model will probably go: on the largest GPU, on all GPUs, on any device.
static uint64_t left_by_weights(const struct placement_wanted *wanted)
{
	struct model_sizes sizes = *wanted->sizes;
	if (wanted->format != FORMAT_UNKNOWN)
		placement_shrink(&sizes, wanted->format);
	const uint64_t weights = sizes.embedding_bytes + sizes.output_bytes + sizes.layers_bytes,
		       needed = weights + weights / WORKSPACE_SHARE;
	for (int i = 0; i < 4; i++) {
		const struct room room = look(wanted, i % 2 == 0, i < 2);
		if (room.most > needed)
			return room.most - needed;
		if (room.all > needed)
			return room.all - needed;
	}
	return 0;
}

// The bytes of keys and values of one request's context.
static uint64_t bytes_of(const struct placement_wanted *wanted, uint32_t context_tokens)
{
	const struct model_shape *shape = wanted->shape;
	const uint32_t with_state = model_delta_layers(shape, 0, shape->layers);
	return placement_pages(context_tokens, 1) * stage_page_bytes(shape) * (shape->layers - with_state);
}

// The bytes of the states of `sequences` requests, whatever their length.
static uint64_t states_of(const struct placement_wanted *wanted, uint32_t sequences)
{
	const struct model_shape *shape = wanted->shape;
	return stage_state_bytes(shape) * stage_state_count(shape, sequences) *
	       model_delta_layers(shape, 0, shape->layers);
}

// CUDA's kernels compute a step of 128 rows in little more time than one of 32. The other back ends do not: there more
// requests at once are slower ones.
static bool takes_many(const struct placement_wanted *wanted)
{
	bool any = false, others = false;
	for (unsigned i = 0; i < wanted->device_count; i++) {
		const bool cuda = wanted->devices[i].backend == PLACE_CUDA;
		any |= cuda && counts(wanted, i, true);
		others |= !cuda && counts(wanted, i, true);
	}
	return any && !others;
}

// How many requests fit into so much memory beside SEQUENCES_OF_CONTEXT, which share a context. Each of the next takes
// `share`, and `beyond` each after PLACEMENT_SHARERS.
static uint32_t fitting(uint64_t room, uint64_t share, uint64_t beyond, uint32_t most)
{
	const uint64_t first = (PLACEMENT_SHARERS - SEQUENCES_OF_CONTEXT) * share;
	uint64_t count = SEQUENCES_OF_CONTEXT;
	if (room < first)
		count += room / share;
	else
		count = PLACEMENT_SHARERS + (beyond ? (room - first) / beyond : most);
	return count < most ? (uint32_t)count : most;
}

void placement_usual(const struct placement_wanted *wanted, uint32_t *context_tokens, uint32_t *sequences)
{
	const uint64_t left = left_by_weights(wanted);
	uint32_t context = *context_tokens;
	if (!context) {
		context = wanted->shape->context < CONTEXT_MOST ? wanted->shape->context : CONTEXT_MOST;
		while (context / 2 >= CONTEXT_LEAST &&
		       bytes_of(wanted, context) + states_of(wanted, 1) > left / CONTEXT_SHARE)
			context /= 2;
	}
	*context_tokens = context;
	if (*sequences)
		return;
	const uint64_t one = bytes_of(wanted, context), share = one / SEQUENCES_OF_CONTEXT,
		       state = states_of(wanted, 2) - states_of(wanted, 1),
		       least = one + states_of(wanted, SEQUENCES_OF_CONTEXT),
		       room = left / PAGES_SHARE > least ? left / PAGES_SHARE - least : 0;
	*sequences = fitting(room, share + state, share / SHARE_BEYOND + state,
			     takes_many(wanted) ? SEQUENCES_MOST : PLACEMENT_SHARERS);
}
