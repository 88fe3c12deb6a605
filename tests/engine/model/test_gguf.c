/* GGUF files: what a good one says, and bad ones. Every beginning and every flipped bit of a whole small model is read
 * from memory of exactly its length, so that the address sanitizer sees a step beyond; whatever is accepted keeps its
 * promises. Files that lie are written by hand. */
#include "tests/tools/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka.h needs those above it.
#include <cmocka.h>

enum { T_U8, T_I8, T_U16, T_I16, T_U32, T_I32, T_F32, T_BOOL, T_TEXT, T_ARRAY, T_U64, T_I64, T_F64 };

// Bytes that are put together by hand.
struct bytes {
	uint8_t at[4096];
	size_t length;
};

static void put(struct bytes *bytes, const void *data, size_t length)
{
	assert_true(length <= sizeof(bytes->at) - bytes->length);
	memcpy(bytes->at + bytes->length, data, length);
	bytes->length += length;
}

static void put_u32(struct bytes *bytes, uint32_t value)
{
	put(bytes, &value, sizeof(value));
}

static void put_u64(struct bytes *bytes, uint64_t value)
{
	put(bytes, &value, sizeof(value));
}

static void put_text(struct bytes *bytes, const char *text)
{
	put_u64(bytes, strlen(text));
	put(bytes, text, strlen(text));
}

static struct bytes head(uint64_t tensors, uint64_t keys)
{
	struct bytes bytes = {.length = 0};
	put(&bytes, "GGUF", 4);
	put_u32(&bytes, 3);
	put_u64(&bytes, tensors);
	put_u64(&bytes, keys);
	return bytes;
}

static void put_tensor(struct bytes *bytes, const char *name, uint64_t columns, uint64_t rows, uint32_t type,
		       uint64_t offset)
{
	put_text(bytes, name);
	put_u32(bytes, 2);
	put_u64(bytes, columns);
	put_u64(bytes, rows);
	put_u32(bytes, type);
	put_u64(bytes, offset);
}

static void pad(struct bytes *bytes, size_t data)
{
	static const uint8_t zeros[2048];
	put(bytes, zeros, (32 - bytes->length % 32) % 32);
	put(bytes, zeros, data);
}

// Read from memory of exactly this length.
static enum status parse(const uint8_t *data, size_t length, struct error *error)
{
	struct gguf *gguf = NULL;
	uint8_t *exact = malloc(length ? length : 1);
	assert_non_null(exact);
	memcpy(exact, data, length);
	enum status status = gguf_parse(&gguf, exact, length, error);
	if (status)
		assert_null(gguf);
	gguf_destroy(&gguf);
	free(exact);
	return status;
}

static void accepted(const struct bytes *bytes)
{
	struct error error = {0};
	if (parse(bytes->at, bytes->length, &error))
		fail_msg("a good file is refused: %s", error.message);
}

static void refused(const struct bytes *bytes, enum status wanted, const char *word)
{
	struct error error = {0};
	enum status status = parse(bytes->at, bytes->length, &error);
	if (status != wanted || !strstr(error.message, word))
		fail_msg("%s (%s), not %s with \"%s\"", status_word(status), error.message, status_word(wanted), word);
}

static void test_metadata(void **state)
{
	(void)state;
	struct bytes bytes = head(0, 9);
	const double large = 1e300;
	const float third = 0.25f;
	put_text(&bytes, "u64");
	put_u32(&bytes, T_U64);
	put_u64(&bytes, UINT64_MAX);
	put_text(&bytes, "i8");
	put_u32(&bytes, T_I8);
	put(&bytes, "\xfe", 1);
	put_text(&bytes, "i16");
	put_u32(&bytes, T_I16);
	put(&bytes, "\x10\x27", 2);
	put_text(&bytes, "f64");
	put_u32(&bytes, T_F64);
	put(&bytes, &large, 8);
	put_text(&bytes, "f32");
	put_u32(&bytes, T_F32);
	put(&bytes, &third, 4);
	put_text(&bytes, "yes");
	put_u32(&bytes, T_BOOL);
	put(&bytes, "\1", 1);
	put_text(&bytes, "text");
	put_u32(&bytes, T_TEXT);
	put_text(&bytes, "a\xff");
	put_text(&bytes, "texts");
	put_u32(&bytes, T_ARRAY);
	put_u32(&bytes, T_TEXT);
	put_u64(&bytes, 2);
	put_text(&bytes, "");
	put_text(&bytes, "second");
	put_text(&bytes, "numbers");
	put_u32(&bytes, T_ARRAY);
	put_u32(&bytes, T_I32);
	put_u64(&bytes, 2);
	put_u32(&bytes, 5);
	put_u32(&bytes, (uint32_t)-7);

	struct gguf *gguf;
	struct error error = {0};
	if (gguf_parse(&gguf, bytes.at, bytes.length, &error))
		fail_msg("%s", error.message);
	uint64_t count = 4711, cursor = 0;
	double number = 0;
	bool yes = false;
	struct gguf_text text;
	assert_true(gguf_get_count(gguf, "u64", &count) && count == UINT64_MAX);
	assert_false(gguf_get_count(gguf, "i8", &count) || gguf_get_count(gguf, "f32", &count) ||
		     gguf_get_count(gguf, "yes", &count) || gguf_get_count(gguf, "numbers", &count) ||
		     gguf_get_count(gguf, "missing", &count));
	assert_true(count == UINT64_MAX);
	assert_true(gguf_get_number(gguf, "i8", &number) && number >= -2 && number <= -2);
	assert_true(gguf_get_count(gguf, "i16", &count) && count == 10000);
	assert_true(gguf_get_number(gguf, "f64", &number) && number >= 1e300);
	assert_true(gguf_get_number(gguf, "f32", &number) && number >= 0.25 && number <= 0.25);
	assert_true(gguf_get_bool(gguf, "yes", &yes) && yes);
	assert_false(gguf_get_bool(gguf, "i8", &yes) || gguf_get_number(gguf, "yes", &number));
	assert_true(gguf_get_text(gguf, "text", &text) && text.length == 2 && !memcmp(text.bytes, "a\xff", 2));
	assert_false(gguf_get_text(gguf, "texts", &text));
	assert_true(gguf_get_array(gguf, "texts", &count) && count == 2);
	assert_true(gguf_next_text(gguf, "texts", &cursor, &text) && !text.length);
	assert_true(gguf_next_text(gguf, "texts", &cursor, &text) && text.length == 6);
	assert_false(gguf_next_text(gguf, "texts", &cursor, &text));
	cursor = 0;
	assert_false(gguf_next_text(gguf, "numbers", &cursor, &text));
	assert_true(gguf_array_number(gguf, "numbers", 1, &number) && number <= -7 && number >= -7);
	assert_false(gguf_array_number(gguf, "numbers", 2, &number) || gguf_array_number(gguf, "texts", 0, &number));
	assert_int_equal(gguf_tensor_count(gguf), 0);
	assert_null(gguf_find(gguf, "x"));
	gguf_destroy(&gguf);
	assert_null(gguf);
}

static void test_heads(void **state)
{
	(void)state;
	struct bytes bytes = head(0, 0);
	accepted(&bytes);
	bytes.at[4] = 2;
	accepted(&bytes);
	bytes.at[4] = 1;
	refused(&bytes, STATUS_UNAVAILABLE, "version 1");
	bytes.at[4] = 0;
	bytes.at[7] = 3;
	refused(&bytes, STATUS_UNAVAILABLE, "big-endian");
	bytes.at[0] = 'g';
	refused(&bytes, STATUS_INVALID_PARAMS, "does not begin with GGUF");
	bytes = head(UINT64_MAX, 0);
	refused(&bytes, STATUS_INVALID_PARAMS, "more tensors or keys");
	bytes = head(0, UINT64_MAX / 13 + 1);
	refused(&bytes, STATUS_INVALID_PARAMS, "more tensors or keys");
	bytes = head(1, 0);
	refused(&bytes, STATUS_INVALID_PARAMS, "more tensors or keys");
}

static void test_bad_keys(void **state)
{
	(void)state;
	struct bytes bytes = head(0, 2);
	for (unsigned i = 0; i < 2; i++) {
		put_text(&bytes, "twice");
		put_u32(&bytes, T_U8);
		put(&bytes, "x", 1);
	}
	refused(&bytes, STATUS_INVALID_PARAMS, "\"twice\" stands in it twice");
	static const struct {
		uint64_t name_length;
		uint32_t type;
		uint64_t length;
		const char *word;
	} cases[] = {
		{UINT64_MAX, T_U8, 0, "longer than the file"},
		{0, T_U8, 0, "without a name"},
		{3, 13, 0, "unknown type"},
		{3, UINT32_MAX, 0, "unknown type"},
		{3, T_TEXT, UINT64_MAX, "longer than the file"},
		{3, T_BOOL, 2, "neither 0 nor 1"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		bytes = head(0, 1);
		put_u64(&bytes, cases[i].name_length);
		put(&bytes, "key", cases[i].name_length ? 3 : 0);
		put_u32(&bytes, cases[i].type);
		put_u64(&bytes, cases[i].length);
		refused(&bytes, STATUS_INVALID_PARAMS, cases[i].word);
	}
	static const struct {
		uint32_t type;
		uint64_t length;
		const char *word;
	} arrays[] = {
		{T_U64, UINT64_MAX / 8 + 2, "reach beyond"},
		{T_U8, UINT64_MAX, "reach beyond"},
		{T_TEXT, UINT64_MAX, "longer than the file"},
		{99, 0, "unknown type"},
		{T_BOOL, 5, "reach beyond"},
	};
	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++) {
		bytes = head(0, 1);
		put_text(&bytes, "key");
		put_u32(&bytes, T_ARRAY);
		put_u32(&bytes, arrays[i].type);
		put_u64(&bytes, arrays[i].length);
		put(&bytes, "\xff\xff\xff\xff", 4);
		if (arrays[i].type == T_TEXT)
			put(&bytes, "\xff\xff\xff\xff", 4);
		refused(&bytes, STATUS_INVALID_PARAMS, arrays[i].word);
	}
	bytes = head(0, 1);
	put_text(&bytes, "nested");
	put_u32(&bytes, T_ARRAY);
	for (unsigned i = 0; i < 200; i++) {
		put_u32(&bytes, T_ARRAY);
		put_u64(&bytes, 1);
	}
	refused(&bytes, STATUS_INVALID_PARAMS, "arrays within arrays");
}

static void test_tensors(void **state)
{
	(void)state;
	static const struct {
		uint64_t columns, rows;
		uint32_t type;
		uint64_t offset;
		const char *word; // NULL: good
	} cases[] = {
		{32, 2, 8, 128, NULL}, // Q8_0
		{32, 2, 8, 0, "overlap"},
		{32, 2, 8, 96, "overlap"},
		{32, 2, 8, 129, "does not lie within"},
		{32, 2, 8, 960, "does not lie within"},
		{32, 2, 8, UINT64_MAX - 31, "does not lie within"},
		{33, 2, 8, 128, "no whole blocks of"},
		{255, 1, 12, 128, "no whole blocks of"},
		{0, 2, 8, 128, "of no size"},
		{32, 0, 8, 128, "of no size"},
		{32, UINT64_MAX, 8, 128, "no whole blocks of"},
		{UINT64_MAX, 1, 0, 128, "no whole blocks of"},
		{UINT64_MAX / 4 + 2, 1, 0, 128, "no whole blocks of"},
		{1ull << 40, 1ull << 40, 0, 128, "no whole blocks of"},
		{32, 2, 23, 128, NULL}, // IQ4_XS, which is not known, but is no fault of the file
		{32, 2, 23, 1 << 20, "does not lie within"},
		{32, 39, 6, 128, NULL}, // Q5_0: 858 of 872 bytes
		{32, 40, 6, 128, "does not lie within"},
		{48, 2, 20, 128, "no whole blocks of"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct bytes bytes = head(2, 0);
		put_tensor(&bytes, "first", 16, 2, 0, 0); // 128 bytes
		put_tensor(&bytes, "second", cases[i].columns, cases[i].rows, cases[i].type, cases[i].offset);
		pad(&bytes, 1000);
		if (cases[i].word)
			refused(&bytes, STATUS_INVALID_PARAMS, cases[i].word);
		else
			accepted(&bytes);
	}
	struct bytes bytes = head(2, 0);
	put_tensor(&bytes, "same", 16, 2, 0, 0);
	put_tensor(&bytes, "same", 16, 2, 0, 128);
	pad(&bytes, 1000);
	refused(&bytes, STATUS_INVALID_PARAMS, "two tensors same");
	static const char *const names[] = {"", "a b", "a\n", "\xc3\xa4",
					    "a-name-of-more-than-sixty-four-characters-is-more-than-there-may-be"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		bytes = head(1, 0);
		put_tensor(&bytes, names[i], 16, 2, 0, 0);
		pad(&bytes, 1000);
		refused(&bytes, STATUS_INVALID_PARAMS, "name");
	}
	for (uint32_t dimensions = 0; dimensions <= 5; dimensions += 5) {
		bytes = head(1, 0);
		put_text(&bytes, "flat");
		put_u32(&bytes, dimensions);
		for (uint32_t i = 0; i < 5; i++)
			put_u64(&bytes, 1);
		pad(&bytes, 1000);
		refused(&bytes, STATUS_INVALID_PARAMS, "of no dimension");
	}
}

static void test_alignment(void **state)
{
	(void)state;
	static const struct {
		uint32_t alignment;
		bool good;
	} cases[] = {{8, true}, {32, true}, {1024, true}, {0, false}, {4, false}, {24, false}, {1u << 31, false}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct bytes bytes = head(1, 1);
		put_text(&bytes, "general.alignment");
		put_u32(&bytes, T_U32);
		put_u32(&bytes, cases[i].alignment);
		put_tensor(&bytes, "t", 16, 2, 0, 0);
		pad(&bytes, 2000);
		if (cases[i].good)
			accepted(&bytes);
		else
			refused(&bytes, STATUS_INVALID_PARAMS, "general.alignment");
	}
	struct model_file file = model_file_small();
	struct model_file_open open;
	file.alignment = 4096;
	model_file_open(&open, &file);
	for (size_t i = 0; i < gguf_tensor_count(open.gguf); i++)
		assert_int_equal((gguf_tensor(open.gguf, i)->data - open.bytes) % 4096, 0);
	model_file_close(&open);
}

// What is accepted can be used: every tensor lies within, and does not overlap.
static void use(const uint8_t *bytes, size_t length, const struct gguf *gguf)
{
	uint64_t count, cursor = 0;
	double number;
	struct gguf_text text;
	for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
		const struct gguf_tensor *tensor = gguf_tensor(gguf, i);
		assert_ptr_equal(gguf_find(gguf, tensor->name), tensor);
		if (!tensor->format) {
			assert_null(tensor->data);
			continue;
		}
		if (tensor->data < bytes || tensor->bytes > length - (size_t)(tensor->data - bytes))
			fail_msg("tensor %s lies outside", tensor->name);
	}
	while (gguf_next_text(gguf, "tokenizer.ggml.tokens", &cursor, &text))
		assert_true((const uint8_t *)text.bytes >= bytes && text.length <= length);
	if (gguf_get_array(gguf, "tokenizer.ggml.scores", &count) && count)
		gguf_array_number(gguf, "tokenizer.ggml.scores", count - 1, &number);
}

// The smallest model that has everything.
static struct model_file tiny(void)
{
	struct model_file file = model_file_small();
	file.layers = 1;
	file.embedding = 32;
	file.feed_forward = 32;
	file.heads = 2;
	file.kv_heads = 1;
	file.vocabulary = 400;
	file.format = FORMAT_Q4_0;
	file.scaling = SCALING_FACTORS;
	return file;
}

static void try_model(const uint8_t *exact, size_t length, unsigned *good)
{
	struct gguf *gguf = NULL;
	struct model *model = NULL;
	struct model_sizes sizes;
	struct error error = {0};
	if (!gguf_parse(&gguf, exact, length, &error)) {
		use(exact, length, gguf);
		if (!model_open(&model, gguf, &error)) {
			model_sizes(model, &sizes);
			(*good)++;
		}
	}
	if (!model && !error.message[0])
		fail_msg("refused without a word");
	model_destroy(&model);
	gguf_destroy(&gguf);
}

static void test_truncated(void **state)
{
	(void)state;
	struct model_file file = tiny();
	size_t length;
	unsigned good = 0;
	uint8_t *whole = model_file_make(&file, &length);
	// At the end there may be padding that is not needed.
	for (size_t part = 0; part + 32 < length; part += part < 16384 ? 1 : 7) {
		uint8_t *exact = malloc(part ? part : 1);
		assert_non_null(exact);
		memcpy(exact, whole, part);
		try_model(exact, part, &good);
		if (good)
			fail_msg("%zu of %zu bytes were enough", part, length);
		free(exact);
	}
	free(whole);
}

// A file of which only the beginning is there: nothing behind that is read, and nothing is said before the header is
// whole. Then all is said that a header says.
static void test_beginning(void **state)
{
	(void)state;
	struct model_file file = tiny();
	struct model_file_plan plan;
	size_t length;
	uint8_t *whole = model_file_make(&file, &length);
	model_file_plan(&plan, &file);
	for (size_t there = 0; there < plan.head.length + 32; there++) {
		struct gguf *gguf = NULL;
		struct model *model = NULL;
		struct error error = {0};
		uint8_t *exact = malloc(there ? there : 1);
		assert_non_null(exact);
		memcpy(exact, whole, there);
		enum status status = gguf_parse_beginning(&gguf, exact, there, length, &error);
		if (status != STATUS_OK && (status != STATUS_PENDING || there >= plan.head.length))
			fail_msg("of %zu bytes: %s: %s", there, status_word(status), error.message);
		if (!status && there + 32 < plan.head.length)
			fail_msg("%zu bytes of a header of %zu were enough", there, plan.head.length);
		if (!status && model_open(&model, gguf, &error))
			fail_msg("of %zu bytes: %s", there, error.message);
		if (!status)
			assert_false(gguf_holds(gguf, gguf_find(gguf, "output.weight")));
		model_destroy(&model);
		gguf_destroy(&gguf);
		free(exact);
	}
	const uint8_t none[] = "PK";
	struct gguf *gguf = NULL;
	assert_int_equal(gguf_parse_beginning(&gguf, none, 2, 1000, NULL), STATUS_PENDING);
	assert_int_equal(gguf_parse_beginning(&gguf, (const uint8_t *)"PK\3\4", 4, 1000, NULL), STATUS_INVALID_PARAMS);
	model_file_plan_finish(&plan);
	free(whole);
}

static void test_flipped(void **state)
{
	(void)state;
	struct model_file file = tiny();
	struct model_file_plan plan;
	size_t length;
	unsigned good = 0, tried = 0;
	uint8_t *bytes = model_file_make(&file, &length);
	model_file_plan(&plan, &file);
	// Beyond the head there are only weights.
	for (size_t bit = 0; bit < plan.head.length * 8; bit++, tried++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		try_model(bytes, length, &good);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	printf("%u of %u files with a bit flipped are models still\n", good, tried);
	// Texts may hold anything; counts, names and places may not.
	if (good == 0 || good == tried)
		fail_msg("%u of %u files with a bit flipped are models still", good, tried);
	model_file_plan_finish(&plan);
	free(bytes);
}

static void test_files(void **state)
{
	(void)state;
	struct model_file file = tiny();
	struct gguf *gguf = NULL;
	struct error error = {0};
	char path[] = "/tmp/exogpu-gguf-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(gguf_open(&gguf, fd, &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "empty"));
	assert_true(model_file_save(&file, path));
	assert_int_equal(gguf_open(&gguf, fd, &error), STATUS_OK);
	close(fd);
	unlink(path);
	struct model *model = NULL;
	assert_int_equal(model_open(&model, gguf, &error), STATUS_OK);
	assert_int_equal(model_shape(model)->vocabulary, 400);
	model_destroy(&model);
	gguf_destroy(&gguf);
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	error = (struct error){0};
	assert_int_equal(gguf_open(&gguf, ends[0], &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "no regular file"));
	close(ends[0]);
	close(ends[1]);
	error = (struct error){0};
	assert_int_equal(gguf_open(&gguf, -1, &error), STATUS_UNAVAILABLE);
	assert_null(gguf);
}

// Beyond its new end there are zeros, and that is told; what it still has stays.
static void test_cut(void **state)
{
	(void)state;
	struct model_file file = tiny();
	struct gguf *gguf = NULL, *other = NULL;
	struct error error = {0};
	char path[] = "/tmp/exogpu-gguf-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0 && model_file_save(&file, path));
	assert_int_equal(gguf_open(&gguf, fd, &error), STATUS_OK);
	const struct gguf_tensor *last = gguf_tensor(gguf, gguf_tensor_count(gguf) - 1);
	struct gguf_text family;
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_false(gguf_cut(gguf));
	for (uint64_t i = 0; i < last->bytes; i++)
		if (last->data[i])
			fail_msg("byte %zu of a tensor that is gone is %u", (size_t)i, last->data[i]);
	assert_true(gguf_cut(gguf));
	assert_true(gguf_get_text(gguf, "general.architecture", &family)); // in the part that is left
	assert_int_equal(family.length, 5);
	assert_memory_equal(family.bytes, "llama", 5);
	gguf_destroy(&gguf);
	assert_int_equal(gguf_open(&gguf, fd, &error), STATUS_INVALID_PARAMS); // as short as it is now
	assert_true(model_file_save(&file, path));
	assert_int_equal(gguf_open(&other, fd, &error), STATUS_OK);
	assert_false(gguf_cut(other));
	gguf_destroy(&other);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_metadata),  cmocka_unit_test(test_heads),     cmocka_unit_test(test_bad_keys),
		cmocka_unit_test(test_tensors),   cmocka_unit_test(test_alignment), cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_beginning), cmocka_unit_test(test_flipped),   cmocka_unit_test(test_files),
		cmocka_unit_test(test_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
