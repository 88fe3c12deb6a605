/* Fuzz target: the check of parameters and results against the contract.
 *
 * The first byte picks the document and a method, the rest is the JSON of its parameters, and of a result of it. A
 * refusal must say what was wrong; whatever passes must pass again after it was printed and read back. Verdict and text
 * must be those of the document itself. */
#include "common/base/limits.h"
#include "tests/common/wire/contract_oracle.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static const struct contract *contract_of(enum contract_document document)
{
	static struct contract *contracts[2]; // for the life of the process
	if (!contracts[document])
		require(contract_create(&contracts[document], document, NULL) == STATUS_OK);
	return contracts[document];
}

static void check_again(const struct contract *contract, const struct contract_method *method,
			const struct json *params)
{
	struct buffer text;
	struct json *again = NULL;
	buffer_init(&text, LIMIT_HEAD_BYTES * 8);
	require(json_print(params, &text) == STATUS_OK);
	require(json_parse(&again, buffer_text(&text), text.length, NULL) == STATUS_OK);
	require(json_equal(again, params));
	require(contract_check_params(contract, method, again, NULL) == STATUS_OK);
	json_destroy(&again);
	buffer_finish(&text);
}

static void same(enum status status, const struct error *error, enum status wanted, const struct error *text)
{
	require(status == wanted && !strcmp(error->message, text->message));
}

static void compare(const struct contract *contract, const struct contract_method *method, const struct json *json)
{
	struct error errors[4] = {{0}, {0}, {0}, {0}};
	same(contract_check_params(contract, method, json, &errors[0]), &errors[0],
	     oracle_params(method, json, &errors[1]), &errors[1]);
	same(contract_check_result(contract, method, json, &errors[2]), &errors[2],
	     oracle_result(method, json, &errors[3]), &errors[3]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	const struct contract *contract = contract_of(data[0] & 1 ? CONTRACT_NODE : CONTRACT_API);
	const struct contract_method *method = contract_at(contract, data[0] >> 1);
	if (!method)
		return 0;
	struct json *params = NULL;
	struct error error = {0};
	if (json_parse(&params, (const char *)data + 1, size - 1, &error)) {
		require(error.message[0]);
		return 0;
	}
	compare(contract, method, params);
	if (contract_check_params(contract, method, params, &error)) {
		require(error.message[0]);
	} else {
		check_again(contract, method, params);
	}
	json_destroy(&params);
	return 0;
}
