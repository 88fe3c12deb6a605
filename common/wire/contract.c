/* See contract.h. Methods are sorted by name for look-up and kept in the document's order for listing.
 *
 * What most calls carry, integers and strings, is read out of their schemas once and checked without looking anything
 * up; whatever does not fit is given to schema_check, whose word counts and whose texts are told. */
#include "common/wire/contract.h"

#include "common/files/embedded.h"
#include "common/json/schema.h"

#include <stdlib.h>
#include <string.h>

struct field {
	const char *name;
	bool required;
	const struct json *schema;
	struct schema_scalar scalar;
};

// The parameters of a method, or the members of a result that is an object and has no others.
struct contract_shape {
	size_t count;
	struct field fields[]; // (count)
};

struct contract {
	struct json *document, *other; // `other`: what node.json's "api.json#/…" leads into, else NULL
	struct contract_method *methods;
	const struct contract_method **sorted;
	size_t count;
};

const char *contract_text(enum contract_document document, size_t *length)
{
	const struct embedded_file *file = embedded_find(document == CONTRACT_API ? "schema/api.json"
										  : "schema/node.json");
	*length = file ? file->length : 0;
	return file ? (const char *)file->data : "";
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct contract_method *const *)a)->name,
		      (*(const struct contract_method *const *)b)->name);
}

// x-body is a sentence for people; whether a call must have a body is its first word.
static enum contract_body body_of(const struct json *method)
{
	const char *text = json_get_string(method, "x-body", "");
	return !text[0]                       ? CONTRACT_BODY_NONE
	       : strncmp(text, "required", 8) ? CONTRACT_BODY_OPTIONAL
					      : CONTRACT_BODY_REQUIRED;
}

static struct contract_shape *shape_create(size_t count)
{
	return calloc(1, sizeof(struct contract_shape) + count * sizeof(struct field));
}

static void add_field(struct contract_shape *shape, const char *name, bool required, const struct json *schema)
{
	shape->fields[shape->count++] = (struct field){
		.name = name, .required = required, .schema = schema, .scalar = schema_read_scalar(schema)};
}

// Errors: STATUS_OUT_OF_MEMORY.
static enum status read_params(struct contract_method *method)
{
	const struct json *params = json_get(method->description, "params");
	method->params = shape_create(json_count(params));
	if (!method->params)
		return STATUS_OUT_OF_MEMORY;
	for (const struct json *one = json_first(params); one; one = json_next(one))
		add_field(method->params, json_get_string(one, "name", ""), json_get_bool(one, "required", false),
			  json_get(one, "schema"));
	return STATUS_OK;
}

static bool is_required(const struct json *required, const char *name)
{
	for (const struct json *one = json_first(required); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), name))
			return true;
	return false;
}

// The result's members, if its schema says nothing but which there are, and all that are required are among them.
// Errors: STATUS_OUT_OF_MEMORY.
static enum status read_result(struct contract_method *method)
{
	const struct json *schema = json_get(json_get(method->description, "result"), "schema");
	const struct json *members = json_get(schema, "properties"), *required = json_get(schema, "required");
	bool flat = !strcmp(json_get_string(schema, "type", ""), "object");
	for (const struct json *one = json_first(required); one; one = json_next(one))
		flat = flat && json_get(members, json_string(one, ""));
	if (!flat || json_get(schema, "$ref") || json_get(schema, "enum") || json_get(schema, "const") ||
	    json_get(schema, "anyOf"))
		return STATUS_OK;
	method->result = shape_create(json_count(members));
	if (!method->result)
		return STATUS_OUT_OF_MEMORY;
	for (const struct json *one = json_first(members); one; one = json_next(one))
		add_field(method->result, json_name(one), is_required(required, json_name(one)), one);
	return STATUS_OK;
}

static enum status load_methods(struct contract *contract, struct error *error)
{
	enum status status = STATUS_OK;
	const struct json *methods = json_get(contract->document, "methods");
	size_t count = json_count(methods);
	contract->methods = calloc(count, sizeof(*contract->methods));
	contract->sorted = calloc(count, sizeof(*contract->sorted));
	if (!count || !contract->methods || !contract->sorted)
		return error_set(error, STATUS_INTERNAL, "the contract has no methods");
	for (const struct json *method = json_first(methods); method && !status; method = json_next(method)) {
		struct contract_method *entry = &contract->methods[contract->count];
		*entry = (struct contract_method){
			.name = json_get_string(method, "name", ""),
			.scope = json_get_string(method, "x-scope", NULL),
			.direction = json_get_string(method, "x-direction", NULL),
			.notification = json_get_bool(method, "x-notification", false),
			.body = body_of(method),
			.result_body = json_get(method, "x-result-body") != NULL,
			.description = method,
		};
		contract->sorted[contract->count++] = entry;
		status = read_params(entry);
		if (!status)
			status = read_result(entry);
	}
	qsort(contract->sorted, contract->count, sizeof(*contract->sorted), by_name);
	return status ? error_set(error, status, "no memory for the contract") : STATUS_OK;
}

enum status contract_create(struct contract **out, enum contract_document document, struct error *error)
{
	size_t length;
	const char *text = contract_text(document, &length);
	struct contract *contract = calloc(1, sizeof(*contract));
	enum status status = contract ? json_parse(&contract->document, text, length, error) : STATUS_OUT_OF_MEMORY;
	if (!status && document == CONTRACT_NODE) {
		text = contract_text(CONTRACT_API, &length);
		status = json_parse(&contract->other, text, length, error);
	}
	if (!status && contract->other)
		schema_link(contract->other, NULL);
	if (!status) {
		schema_link(contract->document, contract->other);
		status = load_methods(contract, error);
	}
	if (status)
		contract_destroy(&contract);
	*out = contract;
	return status;
}

void contract_destroy(struct contract **contract)
{
	if (!*contract)
		return;
	for (size_t i = 0; i < (*contract)->count; i++) {
		free((*contract)->methods[i].params);
		free((*contract)->methods[i].result);
	}
	json_destroy(&(*contract)->document);
	json_destroy(&(*contract)->other);
	free((*contract)->methods);
	free((*contract)->sorted);
	free(*contract);
	*contract = NULL;
}

const struct contract_method *contract_find(const struct contract *contract, const char *name)
{
	struct contract_method wanted = {.name = name};
	const struct contract_method *key = &wanted;
	const struct contract_method *const *found = bsearch(&key, contract->sorted, contract->count,
							     sizeof(*contract->sorted), by_name);
	return found ? *found : NULL;
}

const struct contract_method *contract_at(const struct contract *contract, size_t index)
{
	return index < contract->count ? &contract->methods[index] : NULL;
}

static bool has_field(const struct contract_shape *shape, const char *name)
{
	for (size_t i = 0; i < shape->count; i++)
		if (!strcmp(shape->fields[i].name, name))
			return true;
	return false;
}

enum status contract_check_params(const struct contract *contract, const struct contract_method *method,
				  const struct json *params, struct error *error)
{
	(void)contract; // what the schemas refer to was linked when it was made
	const struct contract_shape *shape = method->params;
	size_t known = 0;
	for (size_t i = 0; i < shape->count; i++) {
		const struct field *field = &shape->fields[i];
		const struct json *value = json_get(params, field->name);
		if (!value && field->required)
			return error_set(error, STATUS_INVALID_PARAMS, "%s needs the parameter \"%s\"", method->name,
					 field->name);
		if (!value)
			continue;
		known++;
		enum status status = schema_fits_scalar(&field->scalar, value)
					     ? STATUS_OK
					     : schema_check(field->schema, value, field->name, error);
		if (status)
			return status;
	}
	if (known == json_count(params))
		return STATUS_OK;
	for (const struct json *given = json_first(params); given; given = json_next(given))
		if (!has_field(shape, json_name(given)))
			return error_set(error, STATUS_INVALID_PARAMS, "%s has no parameter \"%.40s\"", method->name,
					 json_name(given));
	return STATUS_OK;
}

// Whether a result has all that it needs, nothing more, and all of it is right.
static bool fits(const struct contract_shape *shape, const struct json *result)
{
	size_t known = 0;
	for (size_t i = 0; i < shape->count; i++) {
		const struct field *field = &shape->fields[i];
		const struct json *value = json_get(result, field->name);
		if (value ? !schema_fits_scalar(&field->scalar, value) && schema_check(field->schema, value, "", NULL)
			  : field->required)
			return false;
		known += value != NULL;
	}
	return json_type(result) == JSON_OBJECT && known == json_count(result);
}

enum status contract_check_result(const struct contract *contract, const struct contract_method *method,
				  const struct json *result, struct error *error)
{
	(void)contract; // what the schemas refer to was linked when it was made
	if (method->result && fits(method->result, result))
		return STATUS_OK;
	const struct json *schema = json_get(json_get(method->description, "result"), "schema");
	return schema ? schema_check(schema, result, "result", error) : STATUS_OK;
}

static const struct json *find_topic(const struct contract *contract, const char *topic)
{
	return json_get(json_get(json_get(contract->document, "x-events"), "topics"), topic);
}

enum status contract_check_event(const struct contract *contract, const char *topic, const struct json *data,
				 struct error *error)
{
	const struct json *found = find_topic(contract, topic);
	if (!found)
		return error_set(error, STATUS_NOT_FOUND, "there is no topic %s", topic);
	return schema_check(json_get(found, "schema"), data, "data", error);
}

const char *contract_topic_scope(const struct contract *contract, const char *topic)
{
	return json_get_string(find_topic(contract, topic), "x-scope", NULL);
}
