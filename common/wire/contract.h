/* The contract as the program enforces it: an OpenRPC document that is compiled into the binary.
 *
 * There is no second list of methods: a method's scope, parameters and result are looked up here, by name, before a
 * handler runs. The document is parsed once and then only read. Thread: any, after contract_create. */
#pragma once
#include "common/json/json.h"

struct contract;

enum contract_document { CONTRACT_API, CONTRACT_NODE }; // schema/api.json, schema/node.json

// Errors: STATUS_INTERNAL (the document in the binary does not parse), STATUS_OUT_OF_MEMORY.
enum status contract_create(struct contract **out, enum contract_document document, struct error *error);
void contract_destroy(struct contract **contract);

enum contract_body { CONTRACT_BODY_NONE, CONTRACT_BODY_OPTIONAL, CONTRACT_BODY_REQUIRED }; // x-body

struct contract_shape;
struct contract_method {
	const char *name, *scope, *direction;   // scope and direction: NULL where the document has none
	bool notification;                      // has no result
	enum contract_body body;                // of a call
	bool result_body;                       // x-result-body: the answer is a binary message
	const struct json *description;         // the OpenRPC method object
	struct contract_shape *params, *result; // what is checked, read out of it (contract.c)
};

// NULL if there is no such method.
const struct contract_method *contract_find(const struct contract *contract, const char *name);
// The methods in the document's order; NULL past the last.
const struct contract_method *contract_at(const struct contract *contract, size_t index);

// Check `params` (NULL counts as {}) or `result` against the method, `data` against a topic's schema.
// Errors: STATUS_INVALID_PARAMS with the place; STATUS_NOT_FOUND for an unknown topic.
enum status contract_check_params(const struct contract *contract, const struct contract_method *method,
				  const struct json *params, struct error *error);
enum status contract_check_result(const struct contract *contract, const struct contract_method *method,
				  const struct json *result, struct error *error);
enum status contract_check_event(const struct contract *contract, const char *topic, const struct json *data,
				 struct error *error);
// The x-scope of a topic; NULL if there is no such topic.
const char *contract_topic_scope(const struct contract *contract, const char *topic);

// The document's own bytes, as it is served at /schema/api.json.
const char *contract_text(enum contract_document document, size_t *length);
