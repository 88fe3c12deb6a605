/* Headers of safetensors files: the names, types, sizes and places of tensors.
 *
 *     0      the header's length n, 64 bits, little-endian
 *     8      n bytes of JSON: {"name": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [from, to]}, ...}
 *     8 + n  the tensors; offsets count from here
 *
 * Nothing in a file is trusted: a header has a maximum length and a maximum number of values, every tensor lies within
 * the file, has as many bytes as its type and shape say, and overlaps with no other. The format is described at
 * https://huggingface.co/docs/safetensors. Thread: any that may wait for the disk; safetensors_parse is pure. */
#pragma once
#include "common/base/status.h"
#include "engine/model/format.h"

#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_NAME_BYTES = 160, SAFETENSORS_DIMENSIONS = 8, SAFETENSORS_TYPE_BYTES = 16 };

struct safetensor {
	char name[SAFETENSORS_NAME_BYTES];
	char type[SAFETENSORS_TYPE_BYTES]; // as the file calls it
	enum tensor_format format;         // FORMAT_UNKNOWN: neither F32 nor F16 nor BF16
	unsigned dimension_count;
	uint64_t size[SAFETENSORS_DIMENSIONS]; // the slowest first: rows, columns
	uint64_t from, bytes;                  // in the file
	unsigned file;                         // which one of several
};

struct safetensors {
	struct safetensor *tensors; // (count), in the order of the files
	size_t count, capacity;
};
void safetensors_finish(struct safetensors *tensors);

// Append the tensors of a header (length), behind which `data_bytes` follow. Errors: STATUS_INVALID_PARAMS with the
// tensor and what is wrong, STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
struct safetensors_header {
	const char *text;
	size_t length;
	uint64_t data_bytes;
	unsigned file;
};
enum status safetensors_parse(struct safetensors *out, const struct safetensors_header *header, struct error *error);
// The same of an open file with this many bytes. Errors: also STATUS_UNAVAILABLE (it cannot be read).
enum status safetensors_read(struct safetensors *out, int fd, uint64_t bytes, unsigned file, struct error *error);
// The tensor of this name; NULL: there is none. All names are unique once this was sorted. Errors:
// STATUS_INVALID_PARAMS (a name stands twice).
enum status safetensors_sort(struct safetensors *tensors, struct error *error);
const struct safetensor *safetensors_find(const struct safetensors *tensors, const char *name);
