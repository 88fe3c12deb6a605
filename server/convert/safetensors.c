/* See safetensors.h. */
#include "server/convert/safetensors.h"

#include "common/base/limits.h"
#include "server/convert/bounded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };

static const struct {
	const char *name;
	unsigned bytes;
	enum tensor_format format;
} types[] = {
	{"F32", 4, FORMAT_F32},         {"F16", 2, FORMAT_F16},         {"BF16", 2, FORMAT_BF16},
	{"F64", 8, FORMAT_UNKNOWN},     {"F8_E4M3", 1, FORMAT_UNKNOWN}, {"F8_E5M2", 1, FORMAT_UNKNOWN},
	{"F8_E8M0", 1, FORMAT_UNKNOWN}, {"I64", 8, FORMAT_UNKNOWN},     {"I32", 4, FORMAT_UNKNOWN},
	{"I16", 2, FORMAT_UNKNOWN},     {"I8", 1, FORMAT_UNKNOWN},      {"U64", 8, FORMAT_UNKNOWN},
	{"U32", 4, FORMAT_UNKNOWN},     {"U16", 2, FORMAT_UNKNOWN},     {"U8", 1, FORMAT_UNKNOWN},
	{"BOOL", 1, FORMAT_UNKNOWN},
};

void safetensors_finish(struct safetensors *tensors)
{
	free(tensors->tensors);
	*tensors = (struct safetensors){0};
}

static enum status wrong(struct error *error, const struct safetensor *tensor, const char *what)
{
	return error_set(error, STATUS_INVALID_PARAMS, "the tensor %.80s %s", tensor->name, what);
}

// A whole number that is not negative.
static bool read_count(const struct json *json, uint64_t *out)
{
	int64_t value;
	if (json_type(json) != JSON_NUMBER || json_integer(json, &value) || value < 0)
		return false;
	*out = (uint64_t)value;
	return true;
}

// The bytes that type and shape demand.
static enum status read_shape(const struct json *json, struct safetensor *tensor, struct error *error)
{
	const char *type = json_get_string(json, "dtype", "");
	const struct json *shape = json_get(json, "shape");
	uint64_t bytes = 0;
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].name, type)) {
			bytes = types[i].bytes;
			tensor->format = types[i].format;
			memcpy(tensor->type, types[i].name, strlen(types[i].name) + 1);
		}
	if (!bytes)
		return wrong(error, tensor, "has a type that is not known (dtype)");
	if (json_type(shape) != JSON_ARRAY || json_count(shape) > SAFETENSORS_DIMENSIONS)
		return wrong(error, tensor, "has no shape of at most eight dimensions");
	for (const struct json *one = json_first(shape); one; one = json_next(one)) {
		uint64_t size;
		if (!read_count(one, &size) || __builtin_mul_overflow(bytes, size, &bytes))
			return wrong(error, tensor, "has a shape that is too large");
		tensor->size[tensor->dimension_count++] = size;
	}
	tensor->bytes = bytes;
	return STATUS_OK;
}

static enum status read_tensor(const struct json *json, const struct safetensors_header *header,
			       struct safetensor *tensor, struct error *error)
{
	const char *name = json_name(json);
	uint64_t from, to;
	*tensor = (struct safetensor){.file = header->file};
	if (!*name || strlen(name) >= sizeof tensor->name)
		return error_set(error, STATUS_INVALID_PARAMS, "the name of a tensor has %zu bytes: %.40s",
				 strlen(name), name);
	memcpy(tensor->name, name, strlen(name) + 1);
	const struct json *places = json_get(json, "data_offsets");
	enum status status = read_shape(json, tensor, error);
	if (status)
		return status;
	if (json_type(places) != JSON_ARRAY || json_count(places) != 2 || !read_count(json_first(places), &from) ||
	    !read_count(json_next(json_first(places)), &to) || from > to || to > header->data_bytes)
		return wrong(error, tensor, "does not lie within the file (data_offsets)");
	if (to - from != tensor->bytes)
		return wrong(error, tensor, "has another number of bytes than its type and shape say");
	tensor->from = LENGTH_BYTES + header->length + from;
	return STATUS_OK;
}

static int by_place(const void *left, const void *right)
{
	const struct safetensor *a = left, *b = right;
	if (a->from != b->from)
		return a->from < b->from ? -1 : 1;
	return (a->bytes > b->bytes) - (a->bytes < b->bytes); // empty ones first
}

static enum status refuse_overlap(struct safetensor *tensors, size_t count, struct error *error)
{
	qsort(tensors, count, sizeof *tensors, by_place);
	for (size_t i = 1; i < count; i++)
		if (tensors[i].from < tensors[i - 1].from + tensors[i - 1].bytes)
			return wrong(error, &tensors[i], "overlaps with another one");
	return STATUS_OK;
}

static enum status make_room(struct safetensors *out, size_t more, struct error *error)
{
	if (more > CONVERT_TENSORS - out->count)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a model of more than %d tensors", CONVERT_TENSORS);
	if (out->count + more <= out->capacity)
		return STATUS_OK;
	struct safetensor *tensors = realloc(out->tensors, (out->count + more) * sizeof *tensors);
	if (!tensors)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the tensors of a model");
	out->tensors = tensors;
	out->capacity = out->count + more;
	return STATUS_OK;
}

enum status safetensors_parse(struct safetensors *out, const struct safetensors_header *header, struct error *error)
{
	struct json *json = NULL;
	const size_t before = out->count;
	enum status status = bounded_parse(&json, header->text, header->length, CONVERT_VALUES, error);
	if (!status && json_type(json) != JSON_OBJECT)
		status = error_set(error, STATUS_INVALID_PARAMS, "the header of the file is not a JSON object");
	if (!status)
		status = make_room(out, json_count(json), error);
	for (const struct json *one = json_first(json); one && !status; one = json_next(one)) {
		if (!strcmp(json_name(one), "__metadata__"))
			continue;
		status = read_tensor(one, header, &out->tensors[out->count], error);
		out->count += !status;
	}
	if (!status && out->count > before)
		status = refuse_overlap(out->tensors + before, out->count - before, error);
	json_destroy(&json);
	return status;
}

enum status safetensors_read(struct safetensors *out, int fd, uint64_t bytes, unsigned file, struct error *error)
{
	uint8_t length_bytes[LENGTH_BYTES];
	uint64_t length = 0;
	if (bytes < LENGTH_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "the file is too short for a header of safetensors");
	enum status status = bounded_read(fd, length_bytes, sizeof length_bytes, 0, error);
	for (unsigned i = 0; i < LENGTH_BYTES; i++)
		length |= (uint64_t)length_bytes[i] << (8 * i);
	if (status)
		return status;
	if (length > bytes - LENGTH_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS,
				 "the header would have %" PRIu64 " bytes, more than the file", length);
	if (length > CONVERT_JSON_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a header of %" PRIu64 " bytes; the most is %d", length,
				 CONVERT_JSON_BYTES);
	char *text = malloc(length + 1);
	if (!text)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the header of a file");
	status = bounded_read(fd, (uint8_t *)text, length, LENGTH_BYTES, error);
	if (!status)
		status = safetensors_parse(out,
					   &(struct safetensors_header){.text = text,
									.length = length,
									.data_bytes = bytes - LENGTH_BYTES - length,
									.file = file},
					   error);
	free(text);
	return status;
}

// ---- by name ----

static int by_name(const void *left, const void *right)
{
	const struct safetensor *a = left, *b = right;
	return strcmp(a->name, b->name);
}

enum status safetensors_sort(struct safetensors *tensors, struct error *error)
{
	if (tensors->count)
		qsort(tensors->tensors, tensors->count, sizeof *tensors->tensors, by_name);
	for (size_t i = 1; i < tensors->count; i++)
		if (!by_name(&tensors->tensors[i - 1], &tensors->tensors[i]))
			return wrong(error, &tensors->tensors[i], "stands twice, in two files");
	return STATUS_OK;
}

static int name_is(const void *name, const void *tensor)
{
	return strcmp(name, ((const struct safetensor *)tensor)->name);
}

const struct safetensor *safetensors_find(const struct safetensors *tensors, const char *name)
{
	return tensors->count ? bsearch(name, tensors->tensors, tensors->count, sizeof *tensors->tensors, name_is)
			      : NULL;
}
