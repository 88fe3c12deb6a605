/* The contract as it is compiled in: both documents load, every method is found, and parameters are held to it, with
 * the verdict and the words that the document itself gives. */
#include "tests/common/wire/contract_oracle.h"

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
	json_set_null(data, "node_id");
	json_set_null(data, "node_name");
	json_set_null(data, "said_at");
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

static void same_params(const struct contract *contract, const struct contract_method *method,
			const struct json *params, size_t verdicts[2])
{
	struct error error = {0}, wanted = {0};
	enum status status = contract_check_params(contract, method, params, &error);
	assert_int_equal(status, oracle_params(method, params, &wanted));
	assert_string_equal(error.message, wanted.message);
	verdicts[status != STATUS_OK]++;
}

static void same_result(const struct contract *contract, const struct contract_method *method,
			const struct json *result, size_t verdicts[2])
{
	struct error error = {0}, wanted = {0};
	enum status status = contract_check_result(contract, method, result, &error);
	assert_int_equal(status, oracle_result(method, result, &wanted));
	assert_string_equal(error.message, wanted.message);
	verdicts[status != STATUS_OK]++;
}

typedef void compare_both(const struct contract *contract, const struct contract_method *method,
			  const struct json *value, size_t verdicts[2]);

// With each value in each place, and with a member too many; all else fits where one of the values does.
static void try_all(const struct contract *contract, const struct contract_method *method, const struct json *values,
		    const char *const *names, const struct json *const *schemas, size_t count, compare_both *same,
		    size_t verdicts[2])
{
	struct json *object = json_new_object();
	for (size_t i = 0; i < count; i++)
		for (const struct json *value = json_first(values); value; value = json_next(value))
			if (!json_get(object, names[i]) && !schema_check(schemas[i], value, "", NULL))
				json_set(object, names[i], json_copy(value));
	same(contract, method, object, verdicts);
	for (size_t i = 0; i < count; i++) {
		struct json *changed = json_copy(object);
		json_remove(changed, names[i]);
		same(contract, method, changed, verdicts);
		for (const struct json *value = json_first(values); value; value = json_next(value)) {
			json_remove(changed, names[i]);
			json_set(changed, names[i], json_copy(value)); // now the last: the order says nothing
			same(contract, method, changed, verdicts);
		}
		json_destroy(&changed);
	}
	json_set_null(object, "one more");
	same(contract, method, object, verdicts);
	json_destroy(&object);
	for (const struct json *value = json_first(values); value; value = json_next(value))
		same(contract, method, value, verdicts);
	same(contract, method, NULL, verdicts);
}

static void try_method(const struct contract *contract, const struct contract_method *method, const struct json *values,
		       size_t verdicts[2])
{
	enum { MOST = 64 };
	const char *names[MOST];
	const struct json *schemas[MOST];
	size_t count = 0;
	for (const struct json *one = json_first(json_get(method->description, "params")); one; one = json_next(one)) {
		assert_true(count < MOST);
		names[count] = json_get_string(one, "name", "");
		schemas[count++] = json_get(one, "schema");
	}
	try_all(contract, method, values, names, schemas, count, same_params, verdicts);
	const struct json *result = json_get(json_get(method->description, "result"), "schema");
	count = 0;
	for (const struct json *one = json_first(json_get(result, "properties")); one; one = json_next(one)) {
		assert_true(count < MOST);
		names[count] = json_name(one);
		schemas[count++] = one;
	}
	try_all(contract, method, values, names, schemas, count, same_result, verdicts);
}

#define UMLAUTS "\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc"

static void what_is_read_out_says_the_same(void **state)
{
	(void)state;
	static const char text[] =
		"[null,true,-1,0,1,1.5,2,255,256,4294967295,4294967296,9007199254740991,9007199254740992,1e300,\"\","
		"\"a\","
		"\"1\",\"0123456789012345678901234567890123456789012345678901234567890123\","
		"\"01234567890123456789012345678901234567890123456789012345678901234\",\"cpu\",\"f16\",\"" UMLAUTS
			UMLAUTS UMLAUTS UMLAUTS "\","
		"[],[1],[\"a\"],{},{\"bytes\":1}]";
	struct json *values = NULL;
	assert_int_equal(json_parse(&values, text, strlen(text), NULL), STATUS_OK);
	for (int document = CONTRACT_API; document <= CONTRACT_NODE; document++) {
		struct contract *contract = load((enum contract_document)document);
		const struct contract_method *method;
		size_t verdicts[2] = {0, 0};
		for (size_t i = 0; (method = contract_at(contract, i)); i++)
			try_method(contract, method, values, verdicts);
		print_message("%zu taken, %zu refused\n", verdicts[0], verdicts[1]);
		assert_true(verdicts[0] > 100 && verdicts[1] > 1000);
		contract_destroy(&contract);
	}
	json_destroy(&values);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(methods_are_found),
		cmocka_unit_test(parameters),
		cmocka_unit_test(topics),
		cmocka_unit_test(results),
		cmocka_unit_test(what_is_read_out_says_the_same),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
