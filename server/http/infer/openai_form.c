/* response_format of a request, as the form of generate.start (schema/node.json). What the grammar, schema or
 * expression itself says is looked at by the model's worker, which refuses what cannot be kept. */
#include "server/http/infer/inside.h"

#include <string.h>

enum { FORM_BYTES = 256 * 1024, NAME_BYTES = 64 };

static enum status wrong(struct error *error, const char *what)
{
	return error_set(error, STATUS_INVALID_PARAMS, "response_format %s", what);
}

// Nothing but these members, ended by NULL.
static enum status check_members(const struct json *object, const char *const *names, struct error *error)
{
	for (const struct json *one = json_first(object); one; one = json_next(one)) {
		const char *const *name = names;
		while (*name && strcmp(*name, json_name(one)) != 0)
			name++;
		if (!*name)
			return error_set(error, STATUS_INVALID_PARAMS, "response_format: there is no member %.64s here",
					 json_name(one));
	}
	return STATUS_OK;
}

static void set_form(struct json *call, const char *kind, const char *text)
{
	struct json *form = json_new_object();
	json_set_string(form, "kind", kind);
	if (text)
		json_set_string(form, "text", text);
	json_set(call, "form", form);
}

static enum status print_schema(struct json *call, const struct json *schema, const char *param, struct error *error)
{
	struct buffer text;
	enum status status = STATUS_OK;
	buffer_init(&text, FORM_BYTES);
	if (json_print(schema, &text))
		status = error_set(error, STATUS_INVALID_PARAMS, "%s has a schema of more than 256 KiB", param);
	else
		set_form(call, "schema", buffer_text(&text));
	buffer_finish(&text);
	return status;
}

enum status reading_set_schema(struct reading *reading, const struct json *schema)
{
	return print_schema(reading->call, schema, reading->param, reading->error);
}

static enum status read_schema(struct json *call, const struct json *value, struct error *error)
{
	static const char *const known[] = {"name", "description", "schema", "strict", NULL};
	const struct json *given = json_get(value, "json_schema"), *schema = json_get(given, "schema");
	const struct json *name = json_get(given, "name"), *strict = json_get(given, "strict");
	if (json_type(given) != JSON_OBJECT)
		return wrong(error, "of the type json_schema must have an object json_schema");
	if (check_members(given, known, error))
		return STATUS_INVALID_PARAMS;
	if (name && (json_type(name) != JSON_STRING || strlen(json_string(name, "")) > NAME_BYTES))
		return wrong(error, "must have a json_schema whose name is a text of 64 bytes at most");
	if (strict && json_type(strict) != JSON_BOOL && json_type(strict) != JSON_NULL)
		return wrong(error, "must have a json_schema whose strict is true or false");
	if (json_type(schema) != JSON_OBJECT && json_type(schema) != JSON_BOOL)
		return wrong(error, "must have a json_schema whose schema is a JSON Schema");
	return print_schema(call, schema, "response_format", error);
}

static enum status read_text(struct json *call, const struct json *value, const char *kind, struct error *error)
{
	const char *text = json_string(value, NULL);
	if (!text)
		return error_set(error, STATUS_INVALID_PARAMS, "response_format of this type must have a text %.16s",
				 !strcmp(kind, "gbnf") ? "grammar" : "regex");
	if (strlen(text) > FORM_BYTES)
		return wrong(error, "has a text of more than 256 KiB");
	set_form(call, kind, text);
	return STATUS_OK;
}

enum status openai_read_form(struct reading *reading, const struct json *value)
{
	struct json *call = reading->call;
	struct error *error = reading->error;
	static const struct {
		const char *type, *members[3];
	} types[] = {{"text", {"type", NULL}},
		     {"json_object", {"type", NULL}},
		     {"json_schema", {"type", "json_schema", NULL}},
		     {"grammar", {"type", "grammar", NULL}},
		     {"regex", {"type", "regex", NULL}}};
	const char *type = json_get_string(value, "type", "");
	size_t at = 0;
	while (at < sizeof types / sizeof *types && strcmp(types[at].type, type) != 0)
		at++;
	if (at == sizeof types / sizeof *types)
		return wrong(error, "must be an object with a type: text, json_object, json_schema, grammar or regex");
	if (check_members(value, types[at].members, error))
		return STATUS_INVALID_PARAMS;
	if (!strcmp(type, "json_schema"))
		return read_schema(call, value, error);
	if (!strcmp(type, "grammar"))
		return read_text(call, json_get(value, "grammar"), "gbnf", error);
	if (!strcmp(type, "regex"))
		return read_text(call, json_get(value, "regex"), "regex", error);
	if (!strcmp(type, "json_object"))
		set_form(call, "json", NULL);
	return STATUS_OK;
}
