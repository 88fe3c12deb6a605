/* The reference for contract.c: parameters and results are checked by the document itself, without anything
 * precompiled. Status and text must be the same. */
#pragma once
#include "common/json/schema.h"
#include "common/wire/contract.h"

#include <string.h>

static enum status oracle_params(const struct contract_method *method, const struct json *params, struct error *error)
{
	const struct json *descriptors = json_get(method->description, "params");
	for (const struct json *one = json_first(descriptors); one; one = json_next(one)) {
		const char *name = json_get_string(one, "name", "");
		const struct json *value = json_get(params, name);
		if (!value && json_get_bool(one, "required", false))
			return error_set(error, STATUS_INVALID_PARAMS, "%s needs the parameter \"%s\"", method->name,
					 name);
		enum status status = value ? schema_check(json_get(one, "schema"), value, name, error) : STATUS_OK;
		if (status)
			return status;
	}
	for (const struct json *given = json_first(params); given; given = json_next(given)) {
		bool found = false;
		for (const struct json *one = json_first(descriptors); one && !found; one = json_next(one))
			found = !strcmp(json_get_string(one, "name", ""), json_name(given));
		if (!found)
			return error_set(error, STATUS_INVALID_PARAMS, "%s has no parameter \"%.40s\"", method->name,
					 json_name(given));
	}
	return STATUS_OK;
}

static enum status oracle_result(const struct contract_method *method, const struct json *result, struct error *error)
{
	const struct json *schema = json_get(json_get(method->description, "result"), "schema");
	return schema ? schema_check(schema, result, "result", error) : STATUS_OK;
}
