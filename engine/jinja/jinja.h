/* Jinja templates as chat templates use them: a template becomes a tree once, which is then rendered over JSON values.
 *
 * The language is that of Jinja 3.1 in the immutable sandbox, with trim_blocks and lstrip_blocks, loop controls, and
 * what Hugging Face's transformers adds: raise_exception, strftime_now, its own tojson, and generation blocks, which
 * are written as their content. Statements that refer to other files (include, import, extends, block) are refused. A
 * template is input from outside, so its steps, memory and depth are bounded (LIMIT_JINJA_* of limits.h). Each rendered
 * byte is marked as coming from the template (or `own` values) or from outside, so that a caller who makes tokens of
 * the text can prevent a user's words from becoming control tokens. Thread: any; a template is immutable once created,
 * and a rendering belongs to its caller. */
#pragma once
#include "common/json/json.h"

struct jinja_template;

// Errors: STATUS_INVALID_PARAMS (the line and the fault there), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status jinja_template_create(struct jinja_template **out, const char *text, size_t length, struct error *error);
void jinja_template_destroy(struct jinja_template **template);
// Whether the variable is named anywhere in it.
bool jinja_template_names(const struct jinja_template *template, const char *name);

struct jinja_params {
	const struct json *own; // an object: variables that count as the template's own text (bos_token); may be NULL
	const struct json *values; // an object: variables from outside; `own` comes first
	// Whole texts of `values` that count as the template's own, such as the names of roles; ends with NULL.
	const char *const *own_texts;
	int64_t now_ms; // wall clock, for strftime_now, which tells it in UTC
	uint64_t steps; // that it may take; 0: LIMIT_JINJA_STEPS
};
struct jinja_rendering {
	char *text; // (length), well-formed UTF-8 if the template and the values are; a NUL is behind it
	size_t length;
	uint8_t *foreign; // (length) 1: the byte comes from `values`; 0: from the template or `own`
};
// Errors: STATUS_INVALID_PARAMS (the template's own words, if it raised an exception; else the line and the fault),
// STATUS_LIMIT_EXCEEDED (steps, memory or depth), STATUS_OUT_OF_MEMORY. After an error there is nothing to free.
enum status jinja_render(const struct jinja_template *template, const struct jinja_params *params,
			 struct jinja_rendering *out, struct error *error);
void jinja_rendering_finish(struct jinja_rendering *rendering);
