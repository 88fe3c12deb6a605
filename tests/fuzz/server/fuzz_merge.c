/* A model in two files, both hostile: what is put together of them is a model file again, with all of their tensors as
 * they were. The input is cut at the length that its first four bytes say. */
#include "server/library/merge.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

struct piece {
	const uint8_t *bytes;
	size_t length;
	struct gguf *gguf;
};

static enum status open_piece(void *context, unsigned number, int *fd, struct error *error)
{
	const struct piece *piece = (const struct piece *)context + number - 1;
	*fd = memfd_create("piece", MFD_CLOEXEC);
	if (*fd < 0 || write(*fd, piece->bytes, piece->length) != (ssize_t)piece->length)
		return error_set(error, STATUS_UNAVAILABLE, "no file");
	return STATUS_OK;
}

static bool progress(void *context, uint64_t done_bytes)
{
	(void)context, (void)done_bytes;
	return true;
}

static void compare(const struct piece pieces[2], const struct gguf *whole)
{
	size_t count = 0;
	for (int i = 0; i < 2; i++)
		for (size_t j = 0; j < gguf_tensor_count(pieces[i].gguf); j++, count++) {
			const struct gguf_tensor *is = gguf_tensor(whole, count), *was = gguf_tensor(pieces[i].gguf, j);
			if (strcmp(is->name, was->name) != 0 || is->type != was->type || is->bytes != was->bytes ||
			    memcmp(is->data, was->data, is->bytes) != 0)
				abort();
		}
	if (count != gguf_tensor_count(whole))
		abort();
}

static void put_together(struct piece pieces[2], const struct merge *merge)
{
	struct gguf *whole = NULL;
	const int to = memfd_create("whole", MFD_CLOEXEC);
	const struct merge_write write = {.to = to, .open = open_piece, .progress = progress, .context = pieces};
	// Of two tensors with one name it is the whole that cannot be opened.
	if (to >= 0 && !merge_write(merge, &write, NULL) && !gguf_open(&whole, to, NULL))
		compare(pieces, whole);
	gguf_destroy(&whole);
	if (to >= 0)
		close(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct piece pieces[2] = {{0}};
	struct merge *merge = NULL;
	uint32_t first;
	if (length < sizeof first || length > 65536)
		return 0;
	memcpy(&first, bytes, sizeof first);
	bytes += sizeof first;
	length -= sizeof first;
	first = first < length ? first : (uint32_t)length;
	pieces[0] = (struct piece){.bytes = bytes, .length = first};
	pieces[1] = (struct piece){.bytes = bytes + first, .length = length - first};
	enum status status = merge_create(&merge, 2, NULL);
	for (int i = 0; i < 2 && !status; i++) {
		status = gguf_parse(&pieces[i].gguf, pieces[i].bytes, pieces[i].length, NULL);
		if (!status)
			status = merge_look(merge, pieces[i].bytes, pieces[i].gguf, NULL);
	}
	if (!status)
		put_together(pieces, merge);
	merge_destroy(&merge);
	gguf_destroy(&pieces[0].gguf);
	gguf_destroy(&pieces[1].gguf);
	return 0;
}
