/* The contract as it is compiled in: both documents load, every method is found, and parameters are held to it. */
#include "common/wire/contract.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

static struct contract *load(enum contract_document document)
{
	struct contract *contract = NULL;
	struct error error = {0};
	if (contract_create(&contract, document, &error))
		fail_msg("%s", error.message);
	return contract;
}

static enum status check(const struct contract *contract, const char *method, const char *text, struct error *error)
{
	struct json *params = NULL;
	if (text)
		assert_int_equal(json_parse(&params, text, strlen(text), NULL), STATUS_OK);
	const struct contract_method *found = contract_find(contract, method);
	assert_non_null(found);
	enum status status = contract_check_params(contract, found, params, error);
	json_destroy(&params);
	return status;
}

static void methods_are_found(void **state)
{
	(void)state;
	for (int document = CONTRACT_API; document <= CONTRACT_NODE; document++) {
		struct contract *contract = load((enum contract_document)document);
		const struct contract_method *method;
		size_t count = 0;
		for (; (method = contract_at(contract, count)); count++) {
			assert_ptr_equal(contract_find(contract, method->name), method);
			assert_true(document == CONTRACT_API ? method->scope != NULL : method->direction != NULL);
			assert_non_null(method->description);
		}
		assert_true(count >= 5);
		assert_null(contract_find(contract, ""));
		assert_null(contract_find(contract, "no.method"));
		contract_destroy(&contract);
		assert_null(contract);
		contract_destroy(&contract);
	}
}

static void parameters(void **state)
{
	(void)state;
	struct error error = {0};
	struct contract *api = load(CONTRACT_API), *node = load(CONTRACT_NODE);
	assert_int_equal(check(api, "server.info", NULL, NULL), STATUS_OK);
	assert_int_equal(check(api, "server.info", "{}", NULL), STATUS_OK);
	assert_int_equal(check(api, "server.info", "{\"x\":1}", &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "server.info has no parameter \"x\""));
	error = (struct error){0};
	assert_int_equal(check(api, "device.drain", "{\"device_id\":\"d\"}", &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "needs the parameter \"drain\""));
	assert_int_equal(check(api, "device.drain", NULL, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(check(api, "device.drain", "{\"device_id\":\"d\",\"drain\":true}", NULL), STATUS_OK);
	assert_int_equal(check(api, "device.drain", "{\"device_id\":\"d\",\"drain\":null}", NULL),
			 STATUS_INVALID_PARAMS);
	assert_int_equal(check(api, "events.subscribe", "{\"topics\":[],\"since\":{\"epoch\":\"e\",\"seq\":0}}", NULL),
			 STATUS_OK);
	assert_int_equal(check(api, "events.subscribe", "{\"topics\":[],\"since\":{\"epoch\":\"e\"}}", NULL),
			 STATUS_INVALID_PARAMS);
	assert_int_equal(check(node, "node.watch", "{\"watched\":false}", NULL), STATUS_OK);
	assert_int_equal(check(node, "node.telemetry", "{\"node\":null,\"devices\":[]}", NULL), STATUS_OK);
	assert_int_equal(check(node, "node.telemetry", "{\"node\":{},\"devices\":[]}", NULL), STATUS_INVALID_PARAMS);
	contract_destroy(&api);
	contract_destroy(&node);
}

static void topics(void **state)
{
	(void)state;
	struct contract *api = load(CONTRACT_API);
	struct json *data = json_new_object();
	assert_string_equal(contract_topic_scope(api, "inventory"), "observe");
	assert_string_equal(contract_topic_scope(api, "log"), "admin");
	assert_null(contract_topic_scope(api, "weather"));
	assert_int_equal(contract_check_event(api, "weather", data, NULL), STATUS_NOT_FOUND);
	assert_int_equal(contract_check_event(api, "log", data, NULL), STATUS_INVALID_PARAMS);
	json_set_string(data, "level", "info");
	json_set_string(data, "area", "test");
	json_set_string(data, "text", "line");
	json_set_integer(data, "dropped", 0);
	assert_int_equal(contract_check_event(api, "log", data, NULL), STATUS_OK);
	json_destroy(&data);
	contract_destroy(&api);
}

static void results(void **state)
{
	(void)state;
	struct contract *api = load(CONTRACT_API);
	const struct contract_method *revoke = contract_find(api, "token.revoke");
	struct json *result = json_new_object(), *revoked = json_new_array();
	json_push(revoked, json_new_string("x"));
	assert_int_equal(contract_check_result(api, revoke, result, NULL), STATUS_INVALID_PARAMS);
	json_set_string(result, "token_id", "x");
	json_set(result, "revoked", revoked);
	assert_int_equal(contract_check_result(api, revoke, result, NULL), STATUS_OK);
	json_set_string(result, "secret", "x");
	assert_int_equal(contract_check_result(api, revoke, result, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(contract_check_result(api, revoke, NULL, NULL), STATUS_INVALID_PARAMS);
	json_destroy(&result);
	contract_destroy(&api);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(methods_are_found),
		cmocka_unit_test(parameters),
		cmocka_unit_test(topics),
		cmocka_unit_test(results),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
