/* Sources as people write them, and what they are called. */
#include "server/hub/source.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

static void good(const char *text, enum source_kind kind, const char *shown, const char *name)
{
	struct source source;
	struct error error = {0};
	char called[SOURCE_NAME_BYTES];
	if (source_parse(text, &source, &error))
		fail_msg("%s: %s", text, error.message);
	source_name(&source, called);
	if (source.kind != kind || strcmp(source.text, shown) != 0 || strcmp(called, name) != 0)
		fail_msg("%s: kind %d, shown as %s, called %s", text, source.kind, source.text, called);
}

static void test_good(void **state)
{
	(void)state;
	good("/models/a b.gguf", SOURCE_PATH, "/models/a b.gguf", "a-b");
	good("file:///models/a%20b.GGUF", SOURCE_PATH, "/models/a b.GGUF", "a-b");
	good("file:/x.gguf", SOURCE_PATH, "/x.gguf", "x");
	good("/.gguf", SOURCE_PATH, "/.gguf", "model");
	good("/models/Some-1B/", SOURCE_PATH, "/models/Some-1B", "Some-1B");
	good("/models/Some-1B/model.safetensors", SOURCE_PATH, "/models/Some-1B", "Some-1B");
	good("/models/Some-1B/model.safetensors.index.json", SOURCE_PATH, "/models/Some-1B", "Some-1B");
	good("/m/model-00001-of-00002.safetensors", SOURCE_PATH, "/m", "m");
	good("hf:own.er/re_po/sub/file-Q8_0.gguf", SOURCE_HUB_FILE, "hf:own.er/re_po/sub/file-Q8_0.gguf", "file-Q8_0");
	good("hf:owner/repo/a-00001-of-00001.gguf", SOURCE_HUB_FILE, "hf:owner/repo/a-00001-of-00001.gguf",
	     "a-00001-of-00001");
	good("hf:owner/repo", SOURCE_HUB, "hf:owner/repo", "repo");
	good("hf:o/r@0123456789abcdef0123456789abcdef01234567/a.gguf", SOURCE_HUB_FILE,
	     "hf:o/r@0123456789abcdef0123456789abcdef01234567/a.gguf", "a");
	good("hf:o/r@0123456789abcdef0123456789abcdef01234567", SOURCE_HUB,
	     "hf:o/r@0123456789abcdef0123456789abcdef01234567", "r");
	good("hf:o/Some-1B/model.safetensors", SOURCE_HUB_WEIGHTS, "hf:o/Some-1B/model.safetensors", "Some-1B");
	good("hf:o/Some-1B/model-00002-of-00004.safetensors", SOURCE_HUB_WEIGHTS, "hf:o/Some-1B/model.safetensors",
	     "Some-1B");
	good("hf:o/r@0123456789abcdef0123456789abcdef01234567/model.safetensors.index.json", SOURCE_HUB_WEIGHTS,
	     "hf:o/r@0123456789abcdef0123456789abcdef01234567/model.safetensors", "r");
	good("ollama:llama3.2", SOURCE_OLLAMA, "ollama:llama3.2:latest", "llama3.2:latest");
	good("ollama:user/name:1b-q4", SOURCE_OLLAMA, "ollama:user/name:1b-q4", "name:1b-q4");
	good("ollama:library/name:tag", SOURCE_OLLAMA, "ollama:name:tag", "name:tag");
	good("https://host/dir/a.gguf?key=1#x", SOURCE_URL, "https://host/dir/a.gguf", "a");
	good("upload:a b.GGUF", SOURCE_UPLOAD, "upload:a b.GGUF", "a-b");
	good("http://host:81", SOURCE_URL, "http://host:81", "host:81");
}

// Any part stands for all, and each can be named.
static void test_parts(void **state)
{
	static const char *const first[][2] = {
		{"/m/a-00003-of-00003.gguf", "/m/a-00001-of-00003.gguf"},
		{"https://host/a-00002-of-00003.gguf?x=a-00003-of-00003.gguf", "https://host/a-00001-of-00003.gguf"},
		{"hf:owner/repo/Q8_0/a-00001-of-00003.gguf", "hf:owner/repo/Q8_0/a-00001-of-00003.gguf"},
	};
	struct source source, third;
	size_t at;
	char path[64];
	(void)state;
	for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
		char name[SOURCE_NAME_BYTES];
		assert_int_equal(source_parse(first[i][0], &source, NULL), STATUS_OK);
		assert_string_equal(source.text, first[i][1]);
		assert_int_equal(source.parts, 3);
		source_name(&source, name);
		assert_string_equal(name, "a");
		source_part(&source, 3, &third);
		assert_non_null(strstr(third.text, "a-00003-of-00003.gguf"));
	}
	assert_string_equal(third.file, "Q8_0/a-00003-of-00003.gguf");
	assert_int_equal(source_parse(first[1][0], &source, NULL), STATUS_OK);
	source_part(&source, 2, &third);
	assert_string_equal(third.location, "https://host/a-00002-of-00003.gguf?x=a-00003-of-00003.gguf");
	static const char *const whole[] = {
		"/a.gguf",
		"/a-00000-of-00003.gguf",
		"/a-00004-of-00003.gguf",
		"/a-00001-of-00001.gguf",
		"/a-00001-of-00257.gguf",
		"/a-0001-of-00002.gguf",
		"/a-00001_of-00002.gguf",
		"-00001-of-00002.gguf",
		"/a-00001-of-00002.bin",
	};
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		assert_int_equal(source_parts(whole[i], &at), 0);
	assert_int_equal(source_parts("/a-00256-of-00256.GGUF", &at), 256);
	assert_true(source_part_path("/a-00001-of-00256.gguf", 17, path, sizeof path));
	assert_string_equal(path, "/a-00017-of-00256.gguf");
	assert_false(source_part_path("/a-00001-of-00256.gguf", 17, path, 22));
	assert_false(source_part_path("/a.gguf", 1, path, sizeof path));
}

static void test_bad(void **state)
{
	static const char *const texts[] = {
		"",
		"a.gguf",
		"./a.gguf",
		"file:a",
		"file:///a%00b",
		"file:///a%2",
		"/a\nb",
		"upload:",
		"upload:a",
		"upload:.gguf",
		"upload:a/b.gguf",
		"upload:..",
		"hf:owner",
		"hf:/repo",
		"hf:owner//a.gguf",
		"hf:owner/repo@/a.gguf",
		"hf:owner/repo@main/a.gguf",
		"hf:owner/repo@0123456789abcdef0123456789abcdef0123456/a.gguf",
		"hf:owner/repo@0123456789abcdef0123456789abcdef012345678/a.gguf",
		"hf:owner/repo@0123456789ABCDEF0123456789ABCDEF01234567/a.gguf",
		"hf:ow@ner/repo/a.gguf",
		"hf:owner/repo/",
		"hf:owner/repo/a.bin",
		"hf:owner/repo/original/model.safetensors",
		"hf:owner/repo/../model.safetensors",
		"hf:owner/repo/../a.gguf",
		"hf:owner/repo/./a.gguf",
		"hf:owner/repo/x//a.gguf",
		"hf:../repo/a.gguf",
		"hf:o..r/repo/a.gguf",
		"hf:ow ner/repo/a.gguf",
		"hf:owner/repo\\x/a.gguf",
		"ollama:",
		"ollama:/x",
		"ollama:x:",
		"ollama:x:y:z",
		"ollama:a/b/c",
		"https://",
		"https:///path",
		"https://user@host/a.gguf",
		"https://user:secret@host/a.gguf",
		"https://host/a b",
		"https://host/\r\nx: y",
	};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct source source;
		struct error error = {0};
		if (source_parse(texts[i], &source, &error) != STATUS_INVALID_PARAMS || !error.message[0] ||
		    !error.hint[0])
			fail_msg("\"%s\" is taken as %s", texts[i], source.text);
	}
	char longest[SOURCE_TEXT_BYTES + 1];
	struct source source;
	memset(longest, 'a', sizeof longest);
	longest[0] = '/';
	longest[sizeof longest - 1] = 0;
	assert_int_equal(source_parse(longest, &source, NULL), STATUS_INVALID_PARAMS);
	longest[sizeof longest - 2] = 0;
	assert_int_equal(source_parse(longest, &source, NULL), STATUS_OK);
}

static void test_encoded(void **state)
{
	char text[32] = "x?";
	(void)state;
	assert_true(source_append_encoded(text, sizeof text, "a/b c&d=\xc3\xbc"));
	assert_string_equal(text, "x?a/b%20c%26d%3D%C3%BC");
	assert_false(source_append_encoded(text, sizeof text, "0123456789"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_encoded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
