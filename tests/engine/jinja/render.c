/* The interpreter of Jinja as a program, for conformance.py to compare with Jinja itself.
 *
 * A line of standard input is {"template", "own", "values", "now_ms"}; a line of standard output is {"text",
 * "foreign"}, the latter a text of 0s and 1s for its bytes, or {"refused"}. Thread: one. */
#include "engine/jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status render(const struct json *request, struct json *answer, struct error *error)
{
	static const char *const roles[] = {"system", "user", "assistant", "tool", "developer", NULL};
	const char *text = json_get_string(request, "template", "");
	struct jinja_template *template = NULL;
	struct jinja_rendering rendering;
	const struct jinja_params params = {.own = json_get(request, "own"),
					    .values = json_get(request, "values"),
					    .own_texts = roles,
					    .now_ms = json_get_integer(request, "now_ms", 0)};
	enum status status = jinja_template_create(&template, text, strlen(text), error);
	if (!status)
		status = jinja_render(template, &params, &rendering, error);
	jinja_template_destroy(&template);
	if (status)
		return status;
	for (size_t i = 0; i < rendering.length; i++)
		rendering.foreign[i] = rendering.foreign[i] ? '1' : '0';
	rendering.foreign[rendering.length] = 0;
	json_set_string(answer, "text", rendering.text);
	json_set_string(answer, "foreign", (const char *)rendering.foreign);
	jinja_rendering_finish(&rendering);
	return STATUS_OK;
}

int main(void)
{
	char *line = NULL;
	size_t capacity = 0;
	ssize_t length;
	while ((length = getline(&line, &capacity, stdin)) > 0) {
		struct json *request = NULL, *answer = json_new_object();
		struct error error = {0};
		struct buffer out;
		enum status status = json_parse(&request, line, (size_t)length - 1, &error);
		if (!status)
			status = render(request, answer, &error);
		if (status)
			json_set_string(answer, "refused", error.message[0] ? error.message : status_text(status));
		buffer_init(&out, SIZE_MAX / 2);
		if (json_print(answer, &out) || puts(buffer_text(&out)) < 0 || fflush(stdout))
			return 1;
		buffer_finish(&out);
		json_destroy(&answer);
		json_destroy(&request);
	}
	free(line);
	return 0;
}
