/* Fuzz target: a hostile template, over hostile values.
 *
 * The template goes up to a NUL; behind it are values, as JSON. What is rendered is UTF-8 again, and no byte of a text
 * that is only in the values counts as the template's own. */
#include "common/text/unicode.h"
#include "engine/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 200000 };

static void require(bool condition)
{
	if (!condition)
		abort();
}

// A character that stands in no template and no seed, as a value has it.
static const char mark[] = "\xF0\x9F\x9F\xA6";

static void check(const struct jinja_rendering *rendering)
{
	const char *const end = rendering->text + rendering->length;
	require(!rendering->text[rendering->length]);
	require(utf8_good(rendering->text, rendering->length) == rendering->length);
	for (const char *at = rendering->text; (at = memmem(at, (size_t)(end - at), mark, sizeof mark - 1)); at++)
		for (size_t i = 0; i + 1 < sizeof mark; i++)
			require(rendering->foreign[at - rendering->text + (ptrdiff_t)i] == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char usual[] =
		"{\"messages\":[{\"role\":\"user\",\"content\":\" a \xF0\x9F\x9F\xA6 b\"}],\"n\":[3,1.5,null],"
		"\"tools\":[{\"name\":\"\xF0\x9F\x9F\xA6\",\"x\":{\"y\":true}}]}";
	const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
	const size_t length = nul ? (size_t)(nul - data) : size;
	struct jinja_template *template = NULL;
	struct jinja_rendering rendering;
	struct json *values = NULL, *own = json_new_object();
	struct error error = {0}, fault = {0};
	json_set_string(own, "bos_token", "<s>");
	if (!nul || json_parse(&values, (const char *)nul + 1, size - length - 1, &error))
		require(!json_parse(&values, usual, sizeof usual - 1, &fault));
	error = (struct error){0};
	char *text = malloc(length + 1); // of exactly its length
	require(text);
	memcpy(text, data, length);
	enum status status = jinja_template_create(&template, text, length, &error);
	require(!status == (template != NULL) && (!status || error.message[0]));
	free(text);
	// The template may write the mark itself, as an escape or as it is; then nothing can be told.
	const bool tells = length && !memmem(data, length, mark, 4) && !memchr(data, '\\', length);
	const struct jinja_params params = {.own = own, .values = values, .now_ms = 1709164800000, .steps = STEPS};
	if (template && !jinja_render(template, &params, &rendering, &error)) {
		if (tells)
			check(&rendering);
		jinja_rendering_finish(&rendering);
	} else {
		require(error.message[0]);
	}
	jinja_template_destroy(&template);
	json_destroy(&values);
	json_destroy(&own);
	return 0;
}
