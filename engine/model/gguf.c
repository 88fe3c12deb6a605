/* See gguf.h. A file, all numbers little-endian:
 *
 *     "GGUF" | u32 version | u64 tensors | u64 keys | keys | tensors | 0 to alignment | data
 *     a key:    text name | u32 type | value          a text:   u64 length | bytes
 *     a tensor: text name | u32 dimensions | u64 size of each | u32 type | u64 offset within data
 *     an array: u32 type of its elements | u64 length | elements
 *
 * One reader walks over it from front to back and never past the end; tables of keys and tensors point into the file
 * and are searched by name in sorted order. Nothing is allocated for a count before the file could hold so many.
 * Thread: see gguf.h. It owns the mapping and the tables. What keys say is
 * read by gguf_values.c. */
#include "common/base/limits.h"
#include "engine/model/gguf_inside.h"
#include "engine/model/mapping.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
	KEY_BYTES_LEAST = 8 + 4 + 1, // in the file
	TENSOR_BYTES_LEAST = 8 + 4 + 8 + 4 + 8,
	ALIGNMENT_LEAST = 8,
	ALIGNMENT_MOST = 1 << 20,
	ALIGNMENT_USUAL = 32,
	ARRAY_DEPTH = 4, // of arrays of arrays
};

const uint8_t gguf_value_bytes[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// ---- the reader: each call fails and says why, or moves on ----

struct reader {
	const uint8_t *bytes;
	size_t length, there, position; // there: nothing is read behind it
	struct error *error;
};

static enum status wrong(const struct reader *reader, const char *what)
{
	error_set(reader->error, STATUS_INVALID_PARAMS, "not a good model file: %s, at byte %zu of %zu", what,
		  reader->position, reader->length);
	error_hint(reader->error, "it may be incomplete or damaged: fetch it again");
	return STATUS_INVALID_PARAMS;
}

// The header continues after the bytes that can be read.
static enum status pending(const struct reader *reader)
{
	return error_set(reader->error, STATUS_PENDING, "the header of a model file is longer than %zu bytes",
			 reader->there);
}

static enum status read_number(struct reader *reader, size_t bytes, uint64_t *out)
{
	if (reader->length - reader->position < bytes)
		return wrong(reader, "it ends within a number");
	if (reader->position > reader->there || reader->there - reader->position < bytes)
		return pending(reader);
	*out = gguf_little_endian(reader->bytes + reader->position, bytes);
	reader->position += bytes;
	return STATUS_OK;
}

static enum status read_u32(struct reader *reader, uint32_t *out)
{
	uint64_t value = 0;
	enum status status = read_number(reader, 4, &value);
	*out = (uint32_t)value;
	return status;
}

static enum status read_text(struct reader *reader, struct gguf_text *out)
{
	uint64_t length;
	enum status status = read_number(reader, 8, &length);
	if (status)
		return status;
	if (length > reader->length - reader->position)
		return wrong(reader, "a text is longer than the file");
	if (length > reader->there - reader->position)
		return pending(reader);
	*out = (struct gguf_text){(const char *)reader->bytes + reader->position, length};
	reader->position += length;
	return STATUS_OK;
}

static enum status skip_array(struct reader *reader, uint32_t *type, uint64_t *length, unsigned depth);

// Over `count` values of one type.
static enum status skip_values(struct reader *reader, uint32_t type, uint64_t count, unsigned depth)
{
	if (type >= VALUE_TYPES)
		return wrong(reader, "a value of an unknown type");
	if (gguf_value_bytes[type]) {
		if (count > (reader->length - reader->position) / gguf_value_bytes[type])
			return wrong(reader, "values reach beyond its end");
		if (type == VALUE_BOOL &&
		    (reader->position > reader->there || count > reader->there - reader->position))
			return pending(reader);
		for (uint64_t i = 0; type == VALUE_BOOL && i < count; i++)
			if (reader->bytes[reader->position + i] > 1)
				return wrong(reader, "a truth value that is neither 0 nor 1");
		reader->position += count * gguf_value_bytes[type];
		return STATUS_OK;
	}
	enum status status = STATUS_OK;
	for (uint64_t i = 0; i < count && !status; i++) {
		struct gguf_text text;
		uint32_t inner_type;
		uint64_t inner_length;
		status = type == VALUE_TEXT ? read_text(reader, &text)
					    : skip_array(reader, &inner_type, &inner_length, depth + 1);
	}
	return status;
}

static enum status skip_array(struct reader *reader, uint32_t *type, uint64_t *length, unsigned depth)
{
	if (depth >= ARRAY_DEPTH)
		return wrong(reader, "arrays within arrays within arrays");
	enum status status = read_u32(reader, type);
	if (!status)
		status = read_number(reader, 8, length);
	return status ? status : skip_values(reader, *type, *length, depth);
}

static enum status read_key(struct reader *reader, struct gguf_key *key)
{
	enum status status = read_text(reader, &key->name);
	if (!status)
		status = read_u32(reader, &key->type);
	if (status)
		return status;
	if (!key->name.length)
		return wrong(reader, "a key without a name");
	key->array = key->type == VALUE_ARRAY;
	const uint8_t *before = reader->bytes + reader->position;
	key->length = 1;
	if (key->array) {
		status = skip_array(reader, &key->type, &key->length, 0);
		before += 4 + 8;
	} else {
		status = skip_values(reader, key->type, 1, 0);
	}
	key->value = before;
	key->end = reader->bytes + reader->position;
	return status;
}

// ---- keys and tensors by name ----

static int compare_text(const char *a, uint64_t a_length, const char *b, uint64_t b_length)
{
	if (a_length != b_length)
		return a_length < b_length ? -1 : 1;
	return memcmp(a, b, a_length);
}

int gguf_compare_keys(const void *left, const void *right)
{
	const struct gguf_key *a = left, *b = right;
	return compare_text(a->name.bytes, a->name.length, b->name.bytes, b->name.length);
}

static int compare_names(const void *left, const void *right)
{
	const struct gguf_tensor *const *a = left, *const *b = right;
	return strcmp((*a)->name, (*b)->name);
}

static int compare_places(const void *left, const void *right)
{
	const struct gguf_tensor *const *a = left, *const *b = right;
	return ((*a)->data > (*b)->data) - ((*a)->data < (*b)->data);
}

static enum status read_keys(struct gguf *gguf, struct reader *reader)
{
	gguf->keys = calloc(gguf->key_count ? gguf->key_count : 1, sizeof(*gguf->keys));
	if (!gguf->keys)
		return error_set(reader->error, STATUS_OUT_OF_MEMORY, "no memory for the keys of a model file");
	enum status status = STATUS_OK;
	for (size_t i = 0; i < gguf->key_count && !status; i++)
		status = read_key(reader, &gguf->keys[i]);
	if (status)
		return status;
	qsort(gguf->keys, gguf->key_count, sizeof(*gguf->keys), gguf_compare_keys);
	for (size_t i = 1; i < gguf->key_count; i++)
		if (!gguf_compare_keys(&gguf->keys[i - 1], &gguf->keys[i]))
			return error_set(reader->error, STATUS_INVALID_PARAMS,
					 "not a good model file: the key \"%.*s\" stands in it twice",
					 (int)(gguf->keys[i].name.length < 100 ? gguf->keys[i].name.length : 100),
					 gguf->keys[i].name.bytes);
	return STATUS_OK;
}

static enum tensor_format format_of_type(uint32_t type)
{
	static const struct {
		uint32_t type;
		enum tensor_format format;
	} formats[] = {
		{0, FORMAT_F32},   {1, FORMAT_F16},   {2, FORMAT_Q4_0},  {8, FORMAT_Q8_0},   {12, FORMAT_Q4_K},
		{13, FORMAT_Q5_K}, {14, FORMAT_Q6_K}, {30, FORMAT_BF16}, {39, FORMAT_MXFP4},
	};
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		if (formats[i].type == type)
			return formats[i].format;
	return FORMAT_UNKNOWN;
}

static enum status read_name(struct reader *reader, char name[GGUF_NAME_BYTES + 1])
{
	struct gguf_text text;
	enum status status = read_text(reader, &text);
	if (status)
		return status;
	if (!text.length || text.length > GGUF_NAME_BYTES)
		return wrong(reader, "a tensor without a name, or with a very long one");
	for (uint64_t i = 0; i < text.length; i++)
		if (text.bytes[i] <= ' ' || text.bytes[i] > '~')
			return wrong(reader, "a tensor's name is not plain text");
	memcpy(name, text.bytes, text.length);
	return STATUS_OK;
}

static enum status wrong_rows(const struct reader *reader, const struct gguf_tensor *tensor)
{
	char what[GGUF_NAME_BYTES + 96];
	snprintf(what, sizeof(what), "rows of %" PRIu64 " of tensor %s are no whole blocks of %s, or too many",
		 tensor->size[0], tensor->name,
		 tensor->packing ? packing_info(tensor->packing)->name : format_info(tensor->format)->name);
	return wrong(reader, what);
}

// *offset: of its data, within all data.
static enum status read_tensor(struct reader *reader, struct gguf_tensor *tensor, uint64_t *offset)
{
	enum status status = read_name(reader, tensor->name);
	if (!status)
		status = read_u32(reader, &tensor->dimension_count);
	if (status)
		return status;
	if (!tensor->dimension_count || tensor->dimension_count > GGUF_DIMENSIONS)
		return wrong(reader, "a tensor of no dimension, or of more than four");
	uint64_t rows = 1;
	for (unsigned i = 0; i < GGUF_DIMENSIONS; i++) {
		tensor->size[i] = 1;
		if (i < tensor->dimension_count && !status)
			status = read_number(reader, 8, &tensor->size[i]);
		if (!status && (!tensor->size[i] || (i && __builtin_mul_overflow(rows, tensor->size[i], &rows))))
			return wrong(reader, "a tensor of no size, or of more than there can be");
	}
	if (!status)
		status = read_u32(reader, &tensor->type);
	if (!status)
		status = read_number(reader, 8, offset);
	if (status)
		return status;
	tensor->packing = packing_of_type(tensor->type);
	tensor->format = tensor->packing ? packing_info(tensor->packing)->held : format_of_type(tensor->type);
	if (tensor->format) {
		uint64_t row_bytes = tensor->packing ? packing_row_bytes(tensor->packing, tensor->size[0])
						     : format_row_bytes(tensor->format, tensor->size[0]);
		if (!row_bytes || __builtin_mul_overflow(row_bytes, rows, &tensor->bytes))
			return wrong_rows(reader, tensor);
	}
	return STATUS_OK;
}

static enum status find_alignment(const struct gguf *gguf, struct reader *reader, uint64_t *alignment)
{
	*alignment = ALIGNMENT_USUAL;
	gguf_get_count(gguf, "general.alignment", alignment);
	if (*alignment < ALIGNMENT_LEAST || *alignment > ALIGNMENT_MOST || (*alignment & (*alignment - 1)))
		return wrong(reader, "general.alignment is no power of two, or far too small or large");
	return STATUS_OK;
}

// `offsets`: of each tensor.
static enum status place_tensors(struct gguf *gguf, struct reader *reader, const uint64_t *offsets)
{
	uint64_t alignment;
	enum status status = find_alignment(gguf, reader, &alignment);
	if (status)
		return status;
	uint64_t start = (reader->position + alignment - 1) & ~(alignment - 1);
	uint64_t room = start < gguf->length ? gguf->length - start : 0;
	for (size_t i = 0; i < gguf->tensor_count; i++) {
		struct gguf_tensor *tensor = &gguf->tensors[i];
		if (offsets[i] % alignment || offsets[i] > room || tensor->bytes > room - offsets[i]) {
			error_set(reader->error, STATUS_INVALID_PARAMS,
				  "not a good model file: tensor %s (%" PRIu64 " bytes at %" PRIu64
				  ") does not lie within its %zu bytes",
				  tensor->name, tensor->bytes, offsets[i], gguf->length);
			error_hint(reader->error, "it may be incomplete: fetch it again");
			return STATUS_INVALID_PARAMS;
		}
		if (tensor->format)
			tensor->data = gguf->bytes + start + offsets[i];
	}
	return STATUS_OK;
}

// Tables by place, to find tensors that overlap, and then by name, which stays.
static enum status order_tensors(struct gguf *gguf, struct error *error)
{
	for (size_t i = 0; i < gguf->tensor_count; i++)
		gguf->by_name[i] = &gguf->tensors[i];
	qsort(gguf->by_name, gguf->tensor_count, sizeof(const void *), compare_places);
	for (size_t i = 1; i < gguf->tensor_count; i++) {
		const struct gguf_tensor *before = gguf->by_name[i - 1], *after = gguf->by_name[i];
		if (before->data && before->data + before->bytes > after->data)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "not a good model file: tensors %s and %s overlap", before->name, after->name);
	}
	qsort(gguf->by_name, gguf->tensor_count, sizeof(const void *), compare_names);
	for (size_t i = 1; i < gguf->tensor_count; i++)
		if (!strcmp(gguf->by_name[i - 1]->name, gguf->by_name[i]->name))
			return error_set(error, STATUS_INVALID_PARAMS,
					 "not a good model file: there are two tensors %s", gguf->by_name[i]->name);
	return STATUS_OK;
}

static enum status read_tensors(struct gguf *gguf, struct reader *reader)
{
	size_t count = gguf->tensor_count ? gguf->tensor_count : 1;
	gguf->tensors = calloc(count, sizeof(*gguf->tensors));
	gguf->by_name = calloc(count, sizeof(*gguf->by_name));
	uint64_t *offsets = calloc(count, sizeof(*offsets));
	enum status status = STATUS_OK;
	if (!gguf->tensors || !gguf->by_name || !offsets)
		status = error_set(reader->error, STATUS_OUT_OF_MEMORY, "no memory for the tensors of a model file");
	for (size_t i = 0; i < gguf->tensor_count && !status; i++)
		status = read_tensor(reader, &gguf->tensors[i], &offsets[i]);
	if (!status)
		status = place_tensors(gguf, reader, offsets);
	if (!status)
		status = order_tensors(gguf, reader->error);
	free(offsets);
	return status;
}

static enum status read_head(struct gguf *gguf, struct reader *reader)
{
	uint32_t version = 0;
	uint64_t tensors = 0, keys = 0;
	if (gguf->length >= 4 && gguf->there < 4)
		return pending(reader);
	if (gguf->length < 4 || memcmp(gguf->bytes, "GGUF", 4)) {
		error_set(reader->error, STATUS_INVALID_PARAMS, "not a model file: it does not begin with GGUF");
		error_hint(reader->error, "models are read from .gguf files");
		return STATUS_INVALID_PARAMS;
	}
	reader->position = 4;
	enum status status = read_u32(reader, &version);
	if (!status && version != 2 && version != 3) {
		error_set(reader->error, STATUS_UNAVAILABLE, "a GGUF file of version %" PRIu32 "%s", version,
			  version & 0xffff ? "" : ", or one of a big-endian machine");
		error_hint(reader->error, "versions 2 and 3 are read, little-endian");
		return STATUS_UNAVAILABLE;
	}
	if (!status)
		status = read_number(reader, 8, &tensors);
	if (!status)
		status = read_number(reader, 8, &keys);
	if (status)
		return status;
	size_t left = reader->length - reader->position;
	if (tensors > left / TENSOR_BYTES_LEAST || keys > left / KEY_BYTES_LEAST)
		return wrong(reader, "more tensors or keys than it has room for");
	if (tensors > LIMIT_MODEL_TENSORS || keys > LIMIT_MODEL_KEYS)
		return error_set(reader->error, STATUS_LIMIT_EXCEEDED,
				 "a model file of %" PRIu64 " tensors and %" PRIu64 " keys; %d and %d are the most",
				 tensors, keys, LIMIT_MODEL_TENSORS, LIMIT_MODEL_KEYS);
	gguf->tensor_count = tensors;
	gguf->key_count = keys;
	return STATUS_OK;
}

static enum status parse(struct gguf *gguf, struct error *error)
{
	struct reader reader = {.bytes = gguf->bytes, .length = gguf->length, .there = gguf->there, .error = error};
	enum status status = read_head(gguf, &reader);
	if (!status)
		status = read_keys(gguf, &reader);
	if (!status && reader.position > reader.there) // within the last key's value
		status = pending(&reader);
	return status ? status : read_tensors(gguf, &reader);
}

enum status gguf_parse(struct gguf **out, const uint8_t *bytes, size_t length, struct error *error)
{
	return gguf_parse_beginning(out, bytes, length, length, error);
}

enum status gguf_parse_beginning(struct gguf **out, const uint8_t *bytes, size_t there, size_t length,
				 struct error *error)
{
	*out = NULL;
	struct gguf *gguf = calloc(1, sizeof(*gguf));
	if (!gguf)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a model file");
	gguf->bytes = bytes;
	gguf->length = length;
	gguf->there = there;
	enum status status = parse(gguf, error);
	if (status)
		gguf_destroy(&gguf);
	*out = gguf;
	return status;
}

enum status gguf_open(struct gguf **out, int fd, struct error *error)
{
	struct stat file;
	*out = NULL;
	if (fstat(fd, &file))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "the model file cannot be read");
	if (!S_ISREG(file.st_mode))
		return error_set(error, STATUS_UNAVAILABLE, "the model file is no regular file");
	if (file.st_size <= 0)
		return error_set(error, STATUS_INVALID_PARAMS, "the model file is empty");
	size_t length = (size_t)file.st_size;
	void *mapping = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
	if (mapping == MAP_FAILED)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "the model file cannot be mapped");
	mapping_guard(mapping, length);
	enum status status = gguf_parse(out, mapping, length, error);
	if (status) {
		mapping_release(mapping);
		munmap(mapping, length);
	} else {
		(*out)->mapping = mapping;
	}
	return status;
}

void gguf_destroy(struct gguf **gguf_pointer)
{
	struct gguf *gguf = *gguf_pointer;
	if (!gguf)
		return;
	mapping_release(gguf->mapping);
	if (gguf->mapping)
		munmap(gguf->mapping, gguf->length);
	free(gguf->keys);
	free(gguf->tensors);
	free(gguf->by_name);
	free(gguf);
	*gguf_pointer = NULL;
}

size_t gguf_tensor_count(const struct gguf *gguf)
{
	return gguf->tensor_count;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *gguf, size_t index)
{
	return &gguf->tensors[index];
}

const struct gguf_tensor *gguf_find(const struct gguf *gguf, const char *name)
{
	size_t low = 0, high = gguf->tensor_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(name, gguf->by_name[middle]->name);
		if (!order)
			return gguf->by_name[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

bool gguf_holds(const struct gguf *gguf, const struct gguf_tensor *tensor)
{
	return tensor->data && (uint64_t)(tensor->data - gguf->bytes) + tensor->bytes <= gguf->there;
}

uint64_t gguf_bytes(const struct gguf *gguf)
{
	return gguf->length;
}

bool gguf_cut(const struct gguf *gguf)
{
	return mapping_cut(gguf->mapping);
}
