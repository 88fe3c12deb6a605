/* See merge.h. Of each file, the tensors' names, sizes, types and places are kept; of the first also its metadata as
 * bytes, without the keys split.*. The system copies data from file to file (copy_file_range), where possible without
 * moving bytes. */
#include "server/library/merge.h"

#include "common/base/buffer.h"
#include "common/base/limits.h"
#include "server/convert/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP_BYTES = 8 * 1024 * 1024, USUAL_ALIGNMENT = 32 };

struct placed {
	struct gguf_tensor tensor; // without its data
	unsigned piece;
	uint64_t from; // in the piece
};

struct merge {
	unsigned count, looked;
	struct buffer keys; // of the first piece, as they lie there
	uint64_t key_count, alignment, tensors_wanted;
	struct placed *tensors; // (tensor_count)
	size_t tensor_count, capacity;
};

enum status merge_create(struct merge **out, unsigned count, struct error *error)
{
	struct merge *merge = *out = calloc(1, sizeof *merge);
	if (!merge)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to join a model's files");
	merge->count = count;
	merge->alignment = USUAL_ALIGNMENT;
	buffer_init(&merge->keys, LIMIT_MODEL_HEADER_BYTES);
	return STATUS_OK;
}

void merge_destroy(struct merge **pointer)
{
	struct merge *merge = *pointer;
	*pointer = NULL;
	if (!merge)
		return;
	buffer_finish(&merge->keys);
	free(merge->tensors);
	free(merge);
}

// ---- looking ----

static int by_place(const void *left, const void *right)
{
	const struct gguf_text *a = left, *b = right;
	return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

// The metadata of the first file, in their order.
static enum status take_keys(struct merge *merge, const struct gguf *gguf, struct error *error)
{
	const size_t count = gguf_key_count(gguf);
	struct gguf_text name, *all = calloc(count ? count : 1, sizeof *all);
	if (!all)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the keys of a model file");
	for (size_t i = 0; i < count; i++) {
		gguf_key(gguf, i, &name, &all[merge->key_count]);
		if (name.length < 6 || memcmp(name.bytes, "split.", 6) != 0)
			merge->key_count++;
	}
	qsort(all, merge->key_count, sizeof *all, by_place);
	for (size_t i = 0; i < merge->key_count; i++)
		buffer_append(&merge->keys, all[i].bytes, all[i].length);
	free(all);
	gguf_get_count(gguf, "general.alignment", &merge->alignment);
	gguf_get_count(gguf, "split.tensors.count", &merge->tensors_wanted);
	return merge->keys.failed ? error_set(error, STATUS_LIMIT_EXCEEDED, "the metadata of the model are too long")
				  : STATUS_OK;
}

static enum status take_tensors(struct merge *merge, const uint8_t *bytes, const struct gguf *gguf, struct error *error)
{
	const size_t more = gguf_tensor_count(gguf);
	if (more > LIMIT_MODEL_TENSORS - merge->tensor_count)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a model of more than %d tensors", LIMIT_MODEL_TENSORS);
	struct placed *tensors = realloc(merge->tensors, (merge->tensor_count + more + 1) * sizeof *tensors);
	if (!tensors)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the tensors of a model");
	merge->tensors = tensors;
	for (size_t i = 0; i < more; i++) {
		const struct gguf_tensor *tensor = gguf_tensor(gguf, i);
		if (!tensor->data) {
			error_set(error, STATUS_UNAVAILABLE, "tensor %s has an unsupported format (%" PRIu32 ")",
				  tensor->name, tensor->type);
			error_hint(error, "docs/models.md lists the supported formats");
			return STATUS_UNAVAILABLE;
		}
		tensors[merge->tensor_count++] = (struct placed){
			.tensor = *tensor, .piece = merge->looked + 1, .from = (uint64_t)(tensor->data - bytes)};
	}
	return STATUS_OK;
}

enum status merge_look(void *context, const uint8_t *bytes, const struct gguf *gguf, struct error *error)
{
	struct merge *merge = context;
	uint64_t number = UINT64_MAX, count = 0;
	const bool said = gguf_get_count(gguf, "split.no", &number) && gguf_get_count(gguf, "split.count", &count);
	if (!said || number != merge->looked || count != merge->count) {
		if (said)
			error_set(error, STATUS_INVALID_PARAMS,
				  "this file, by its name part %u of %u, says that it is part %" PRIu64 " of %" PRIu64,
				  merge->looked + 1, merge->count, number + 1, count);
		else
			error_set(error, STATUS_INVALID_PARAMS, "this file does not say which part of a model it is");
		error_hint(error, "all parts must be of the same split of the same model; fetch them again");
		return STATUS_INVALID_PARAMS;
	}
	enum status status = merge->looked ? STATUS_OK : take_keys(merge, gguf, error);
	if (!status)
		status = take_tensors(merge, bytes, gguf, error);
	merge->looked += !status;
	return status;
}

// ---- writing ----

// *data_bytes: of all tensors, each with what fills it up.
static enum status print_head(const struct merge *merge, struct buffer *out, uint64_t *data_bytes, struct error *error)
{
	uint64_t offset = 0;
	output_begin(out, &merge->keys, merge->key_count, merge->tensor_count);
	for (size_t i = 0; i < merge->tensor_count; i++) {
		output_tensor(out, &merge->tensors[i].tensor, offset);
		offset += output_aligned(merge->tensors[i].tensor.bytes, merge->alignment);
	}
	output_fill(out, merge->alignment);
	*data_bytes = offset;
	return out->failed ? error_set(error, STATUS_LIMIT_EXCEEDED, "the header of the model is too long") : STATUS_OK;
}

// Copies by reading and writing, if the system cannot copy between these file systems.
static ssize_t copy_by_hand(int from, off_t at, int to, off_t place, size_t length, struct error *error)
{
	uint8_t bytes[65536];
	const ssize_t got = pread(from, bytes, length < sizeof bytes ? length : sizeof bytes, at);
	return got > 0 && output_write(to, bytes, (size_t)got, (uint64_t)place, error) ? -1 : got;
}

struct copying {
	const struct merge_write *write;
	int from;
	bool by_hand;
	uint64_t done_bytes;
};

static enum status copy(struct copying *copying, uint64_t at, uint64_t place, uint64_t bytes, struct error *error)
{
	const struct merge_write *write = copying->write;
	while (bytes) {
		const size_t most = bytes < STEP_BYTES ? (size_t)bytes : STEP_BYTES;
		off_t in = (off_t)at, out = (off_t)place;
		const ssize_t got = copying->by_hand ? copy_by_hand(copying->from, in, write->to, out, most, error)
						     : copy_file_range(copying->from, &in, write->to, &out, most, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (!copying->by_hand && (!got || (got < 0 && errno != EIO && errno != ENOSPC))) {
			copying->by_hand = true;
			continue;
		}
		if (error && error->status)
			return error->status;
		if (got < 0)
			return error_errno(error, errno == ENOSPC ? STATUS_LIMIT_EXCEEDED : STATUS_UNAVAILABLE, errno,
					   "a part of the model cannot be copied");
		if (!got)
			return error_set(error, STATUS_UNAVAILABLE, "a part of the model has become shorter");
		at += (uint64_t)got;
		place += (uint64_t)got;
		bytes -= (uint64_t)got;
		copying->done_bytes += (uint64_t)got;
		if (!write->progress(write->context, copying->done_bytes))
			return error_set(error, STATUS_UNAVAILABLE, "the server stops");
	}
	return STATUS_OK;
}

static enum status copy_tensors(const struct merge *merge, const struct merge_write *write, uint64_t place,
				struct error *error)
{
	struct copying copying = {.write = write, .from = -1};
	enum status status = STATUS_OK;
	unsigned piece = 0;
	for (size_t i = 0; i < merge->tensor_count && !status; i++) {
		const struct placed *placed = &merge->tensors[i];
		if (placed->piece != piece) {
			if (copying.from >= 0)
				close(copying.from);
			copying.from = -1;
			piece = placed->piece;
			status = write->open(write->context, piece, &copying.from, error);
		}
		if (!status)
			status = copy(&copying, placed->from, place, placed->tensor.bytes, error);
		place += output_aligned(placed->tensor.bytes, merge->alignment);
	}
	if (copying.from >= 0)
		close(copying.from);
	return status;
}

enum status merge_write(const struct merge *merge, const struct merge_write *write, struct error *error)
{
	struct buffer head;
	uint64_t data_bytes = 0;
	if (merge->looked != merge->count || (merge->tensors_wanted && merge->tensors_wanted != merge->tensor_count)) {
		error_set(error, STATUS_INVALID_PARAMS, "the %u parts have %zu tensors, and should have %" PRIu64,
			  merge->looked, merge->tensor_count, merge->tensors_wanted);
		error_hint(error, "all parts must be of the same split of the same model; fetch them again");
		return STATUS_INVALID_PARAMS;
	}
	buffer_init(&head, LIMIT_MODEL_HEADER_BYTES);
	enum status status = print_head(merge, &head, &data_bytes, error);
	if (!status)
		status = output_make_room(write->to, head.length + data_bytes, error);
	if (!status)
		status = output_write(write->to, head.data, head.length, 0, error);
	if (!status)
		status = copy_tensors(merge, write, head.length, error);
	buffer_finish(&head);
	return status;
}
