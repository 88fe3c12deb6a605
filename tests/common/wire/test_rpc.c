/* One end of a connection: calls that are answered, refused, late, cut off and too many, answers that nobody asked for
 * or that break the contract, and what the other end asks. The clock is the test's. */
#include "common/base/limits.h"
#include "common/wire/rpc.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CALLS = 3 };

static int64_t now_ms;

static int64_t test_clock(void)
{
	return now_ms;
}

// An end, what it sent last, and the end of each call of ours.
struct end {
	struct rpc rpc;
	struct contract *contract;
	char sent[4096], body[64];
	unsigned sendings, served;
	enum status send_fails, serve_says;
	bool closes; // `send` closes, as a connection that breaks does
	bool stranger;
};

struct waiting {
	unsigned told;
	enum status status;
	bool result;
	char words[sizeof((struct error *)0)->message];
	struct end *calls_again;
};

static void done(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct waiting *waiting = context;
	waiting->told++;
	waiting->status = status;
	waiting->result = result != NULL;
	snprintf(waiting->words, sizeof waiting->words, "%s", error->message);
	if (waiting->calls_again)
		assert_int_equal(rpc_notify(&waiting->calls_again->rpc, "node.watch", json_new_object()),
				 waiting->calls_again->rpc.closed ? STATUS_UNAVAILABLE : STATUS_OK);
}

static enum status send(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct end *end = arg;
	end->sendings++;
	snprintf(end->sent, sizeof end->sent, "%s", buffer_text(head));
	snprintf(end->body, sizeof end->body, "%.*s", body ? (int)body->length : 0,
		 body ? (const char *)body->bytes : "");
	if (end->closes)
		rpc_close(&end->rpc, &(struct error){.status = STATUS_UNAVAILABLE, .message = "it broke"});
	return end->send_fails;
}

static enum status serve(void *arg, const struct message *message, struct error *error)
{
	struct end *end = arg;
	end->served++;
	assert_non_null(message->params);
	return end->serve_says && end->serve_says != STATUS_PENDING ? error_set(error, end->serve_says, "not like this")
								    : end->serve_says;
}

static enum status admit(void *arg, const char *method, struct error *error)
{
	const struct end *end = arg;
	return end->stranger && strcmp(method, "node.burst") != 0
		       ? error_set(error, STATUS_UNAUTHENTICATED, "register first")
		       : STATUS_OK;
}

static const struct rpc_method methods[] = {{"node.burst", serve}, {"tenant.ended", serve}};

static void begin(struct end *end)
{
	*end = (struct end){0};
	now_ms = 1000;
	assert_int_equal(contract_create(&end->contract, CONTRACT_NODE, NULL), STATUS_OK);
	rpc_init(&end->rpc, &(struct rpc_params){.contract = end->contract,
						 .serves = "node-to-server",
						 .peer = "the node",
						 .methods = methods,
						 .method_count = sizeof methods / sizeof *methods,
						 .most_calls = MOST_CALLS,
						 .answers_faults = true,
						 .send = send,
						 .admit = admit,
						 .now_ms = test_clock,
						 .arg = end});
}

static void finish(struct end *end)
{
	rpc_close(&end->rpc, NULL);
	contract_destroy(&end->contract);
}

static enum status call(struct end *end, struct waiting *waiting, int64_t patience_ms)
{
	struct json *params = json_new_object();
	json_set_string(params, "device_id", "d");
	*waiting = (struct waiting){0};
	return rpc_call(&end->rpc, &(struct rpc_ask){.method = "device.verify",
						     .params = params,
						     .patience_ms = patience_ms,
						     .done = done,
						     .context = waiting});
}

static enum rpc_heard hear(struct end *end, const char *text)
{
	struct error error = {0};
	const enum rpc_heard heard = rpc_receive(&end->rpc, (const uint8_t *)text, strlen(text), false, &error);
	assert_true((heard == RPC_SERVED || heard == RPC_ANSWERED) == !error.message[0]);
	return heard;
}

static void calls_are_answered_once(void **state)
{
	struct end end;
	struct waiting first, second;
	(void)state;
	begin(&end);
	assert_int_equal(call(&end, &first, 0), STATUS_OK);
	assert_non_null(strstr(end.sent, "\"id\":1,\"method\":\"device.verify\""));
	assert_int_equal(call(&end, &second, 0), STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"), RPC_ANSWERED);
	assert_int_equal(second.told, 1);
	assert_int_equal(second.status, STATUS_OK);
	assert_true(second.result);
	assert_int_equal(first.told, 0);
	// Again; to no call of ours; without a number; with no id.
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"), RPC_UNASKED);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}"), RPC_UNASKED);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":\"one\",\"result\":{}}"), RPC_UNASKED);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}"), RPC_UNASKED);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32000}}"), RPC_ANSWERED);
	assert_int_equal(first.told, 1);
	assert_int_not_equal(first.status, STATUS_OK);
	assert_int_equal(second.told, 1);
	assert_int_equal(end.sendings, 2); // answers are not answered
	assert_null(end.rpc.first);
	// The list is whole after its last was taken out.
	assert_int_equal(call(&end, &first, 0), STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}"), RPC_ANSWERED);
	assert_int_equal(first.told, 1);
	finish(&end);
}

static void hostile_answers_fail_the_call(void **state)
{
	struct end end;
	struct waiting waiting;
	(void)state;
	begin(&end);
	assert_int_equal(call(&end, &waiting, 0), STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"more\":1}}"), RPC_BROKEN);
	assert_int_equal(waiting.told, 1);
	assert_int_equal(waiting.status, STATUS_UNAVAILABLE);
	assert_false(waiting.result);
	assert_ptr_equal(strstr(waiting.words, "the node's answer breaks the contract: "), waiting.words);
	// An error of no code is one all the same.
	assert_int_equal(call(&end, &waiting, 0), STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":0}}"), RPC_ANSWERED);
	assert_int_equal(waiting.status, STATUS_INTERNAL);
	assert_int_equal(call(&end, &waiting, 0), STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{},\"error\":{}}"), RPC_GARBAGE);
	assert_int_equal(waiting.told, 0);
	finish(&end);
}

static void late_calls_end(void **state)
{
	struct end end;
	struct waiting soon, later, never;
	(void)state;
	begin(&end);
	assert_int_equal(rpc_expire(&end.rpc), -1);
	assert_int_equal(call(&end, &never, 0), STATUS_OK);
	assert_int_equal(rpc_expire(&end.rpc), -1);
	assert_int_equal(call(&end, &later, 500), STATUS_OK);
	assert_int_equal(call(&end, &soon, 100), STATUS_OK);
	assert_int_equal(rpc_expire(&end.rpc), 100);
	now_ms += 99;
	assert_int_equal(rpc_expire(&end.rpc), 1);
	assert_int_equal(soon.told, 0);
	now_ms++;
	soon.calls_again = &end;
	assert_int_equal(rpc_expire(&end.rpc), 400);
	assert_int_equal(soon.told, 1);
	assert_int_equal(soon.status, STATUS_TIMEOUT);
	assert_string_equal(soon.words, "the node did not answer device.verify in time");
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}"), RPC_UNASKED); // too late
	assert_int_equal(soon.told, 1);
	now_ms += 100000;
	assert_int_equal(rpc_expire(&end.rpc), -1);
	assert_int_equal(later.status, STATUS_TIMEOUT);
	assert_int_equal(never.told, 0);
	finish(&end);
	assert_int_equal(never.told, 0); // closed without a word
}

// For an owner that ends the other end: what is late is told, and waits on.
static void late_calls_may_wait_on(void **state)
{
	struct end end;
	struct waiting soon, later;
	int64_t waited_ms;
	(void)state;
	begin(&end);
	assert_int_equal(call(&end, &later, 500), STATUS_OK);
	assert_int_equal(call(&end, &soon, 100), STATUS_OK);
	assert_null(rpc_late(&end.rpc, &waited_ms));
	now_ms += 100;
	assert_string_equal(rpc_late(&end.rpc, &waited_ms), "device.verify");
	assert_int_equal(waited_ms, 100);
	rpc_postpone(&end.rpc, 50);
	assert_null(rpc_late(&end.rpc, &waited_ms));
	now_ms += 50;
	assert_non_null(rpc_late(&end.rpc, &waited_ms));
	assert_int_equal(waited_ms, 150);
	assert_int_equal(soon.told, 0);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"), RPC_ANSWERED);
	assert_null(rpc_late(&end.rpc, &waited_ms));
	finish(&end);
}

static void calls_by_another_way_are_settled_once(void **state)
{
	struct end end;
	struct waiting sent, other = {0};
	const struct rpc_ask ask = {.method = "device.verify", .done = done, .context = &other};
	(void)state;
	begin(&end);
	assert_int_equal(call(&end, &sent, 0), STATUS_OK);
	assert_int_equal(rpc_expect(&end.rpc, &ask), STATUS_OK);
	assert_int_equal(end.sendings, 1);
	assert_int_equal(end.rpc.last_id, 2);
	assert_ptr_equal(rpc_find(&end.rpc, 2, NULL), &other);
	assert_ptr_equal(rpc_find(&end.rpc, 2, "device.verify"), &other);
	assert_null(rpc_find(&end.rpc, 2, "worker.ping"));
	assert_ptr_equal(rpc_find(&end.rpc, 0, "device.verify"), &sent); // the oldest
	assert_false(rpc_settle(&end.rpc, 3));
	assert_true(rpc_settle(&end.rpc, 2));
	assert_int_equal(other.told, 1);
	assert_int_equal(other.status, STATUS_OK);
	assert_false(rpc_settle(&end.rpc, 2));
	assert_int_equal(sent.told, 0);
	finish(&end);
}

static void what_was_ended_is_stale_and_no_more(void **state)
{
	struct end end;
	struct waiting before, after;
	(void)state;
	begin(&end);
	assert_int_equal(call(&end, &before, 0), STATUS_OK);
	before.calls_again = &end;
	rpc_end_calls(&end.rpc, &(struct error){.status = STATUS_DEVICE_LOST, .message = "it was away"});
	assert_int_equal(before.told, 1);
	assert_string_equal(before.words, "it was away");
	assert_int_equal(end.rpc.waiting, 0);
	assert_int_equal(call(&end, &after, 0), STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"), RPC_STALE);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"), RPC_ANSWERED);
	assert_int_equal(after.told, 1);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"), RPC_UNASKED);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":-1,\"result\":{}}"), RPC_UNASKED);
	finish(&end);
}

static void how_an_end_may_differ(void **state)
{
	struct end end;
	struct waiting first, second;
	(void)state;
	begin(&end);
	end.rpc.params.breach_ends = end.rpc.params.in_order = true;
	assert_int_equal(call(&end, &first, 0), STATUS_OK);
	assert_int_equal(call(&end, &second, 0), STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"more\":1}}"), RPC_BROKEN);
	assert_int_equal(second.told, 0);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700}}"), RPC_ANSWERED);
	assert_int_equal(first.told, 1);
	assert_int_equal(first.status, STATUS_PARSE_ERROR);
	const struct contract *contract = end.rpc.params.contract;
	end.rpc.params.contract = NULL; // nothing is checked, and nothing served
	assert_int_equal(call(&end, &first, 0), STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"more\":1}}"), RPC_ANSWERED);
	assert_int_equal(first.status, STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"method\":\"node.burst\"}"), RPC_REFUSED);
	end.rpc.params.contract = contract;
	finish(&end);
}

// A result that is too long for a message becomes an error, so that nobody waits for it for ever.
static void an_answer_that_is_too_long_is_an_error(void **state)
{
	struct end end;
	(void)state;
	begin(&end);
	char *text = calloc(1, LIMIT_HEAD_BYTES + 2);
	assert_non_null(text);
	memset(text, 'x', LIMIT_HEAD_BYTES + 1);
	struct json *result = json_new_object(), *id = json_new_integer(7);
	json_set_string(result, "text", text);
	rpc_answer(&end.rpc, NULL, id, result, NULL);
	assert_non_null(strstr(end.sent, "\"id\":7,\"error\""));
	json_destroy(&id);
	free(text);
	finish(&end);
}

static void no_more_wait_than_may(void **state)
{
	struct end end;
	struct waiting waiting[MOST_CALLS], more;
	(void)state;
	begin(&end);
	for (size_t i = 0; i < MOST_CALLS; i++)
		assert_int_equal(call(&end, &waiting[i], 0), STATUS_OK);
	assert_int_equal(call(&end, &more, 0), STATUS_UNAVAILABLE);
	assert_int_equal(end.sendings, MOST_CALLS);
	// One that nobody waits for is not among them.
	assert_int_equal(rpc_call(&end.rpc, &(struct rpc_ask){.method = "device.verify", .params = json_new_object()}),
			 STATUS_OK);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}"), RPC_UNASKED);
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}"), RPC_ANSWERED);
	assert_int_equal(call(&end, &more, 0), STATUS_OK);
	rpc_close(&end.rpc, &(struct error){.status = STATUS_UNAVAILABLE, .message = "the node is gone"});
	for (size_t i = 0; i < MOST_CALLS; i++)
		assert_int_equal(waiting[i].told, 1);
	assert_int_equal(more.told, 1);
	assert_int_equal(more.status, STATUS_UNAVAILABLE);
	assert_string_equal(more.words, "the node is gone");
	const unsigned sendings = end.sendings;
	assert_int_equal(call(&end, &more, 0), STATUS_UNAVAILABLE); // closed
	assert_int_equal(more.told, 0);
	struct json *id = json_new_integer(1);
	rpc_answer(&end.rpc, "tenant.ended", id, json_new_object(), NULL);
	json_destroy(&id);
	assert_int_equal(rpc_notify(&end.rpc, "node.watch", json_new_object()), STATUS_UNAVAILABLE);
	assert_int_equal(end.sendings, sendings);
	finish(&end);
}

static void what_cannot_be_sent_fails_at_once(void **state)
{
	struct end end;
	struct waiting waiting, other;
	(void)state;
	begin(&end);
	assert_int_equal(call(&end, &other, 0), STATUS_OK);
	end.send_fails = STATUS_LIMIT_EXCEEDED;
	assert_int_equal(call(&end, &waiting, 0), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(waiting.told, 0);
	assert_int_equal(end.rpc.waiting, 1);
	// What breaks the connection has told everybody, and nobody is told twice.
	end.closes = true;
	assert_int_equal(call(&end, &waiting, 0), STATUS_OK);
	assert_int_equal(waiting.told, 1);
	assert_int_equal(other.told, 1);
	finish(&end);
}

static void what_is_asked_is_served(void **state)
{
	static const char ended[] = "{\"jsonrpc\":\"2.0\",\"method\":\"tenant.ended\","
				    "\"params\":{\"worker_id\":\"w\",\"message\":\"m\"}}",
			  burst[] = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"node.burst\","
				    "\"params\":{\"burst\":1,\"piece\":0,\"back_bytes\":0}}";
	struct end end;
	(void)state;
	begin(&end);
	assert_int_equal(hear(&end, ended), RPC_SERVED);
	assert_int_equal(end.served, 1);
	assert_int_equal(end.sendings, 0); // a notification has no answer
	end.stranger = true;
	assert_int_equal(hear(&end, ended), RPC_REFUSED);
	assert_int_equal(end.served, 1);
	assert_int_equal(end.sendings, 0);
	// What nobody knows is not told apart from what may not be called yet.
	assert_int_equal(hear(&end, "{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"no.method\"}"), RPC_REFUSED);
	assert_non_null(strstr(end.sent, "register first"));
	end.sendings = 0;
	end.serve_says = STATUS_PENDING;
	assert_int_equal(hear(&end, burst), RPC_SERVED);
	assert_int_equal(end.served, 2);
	assert_int_equal(end.sendings, 0); // it answers itself
	struct json *id = json_new_integer(7), *result = json_new_object();
	json_set_integer(result, "ns", 5);
	assert_int_equal(
		rpc_answer_body(&end.rpc, "node.burst", id, result, &(struct rpc_body){.bytes = "back", .length = 4}),
		STATUS_OK);
	assert_string_equal(end.sent, "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"ns\":5}}");
	assert_string_equal(end.body, "back");
	json_destroy(&id);
	end.serve_says = STATUS_CONFLICT;
	assert_int_equal(hear(&end, burst), RPC_REFUSED);
	assert_non_null(strstr(end.sent, "not like this"));
	assert_string_equal(end.body, "");
	finish(&end);
}

static void what_may_not_be_asked_is_refused(void **state)
{
	static const struct {
		const char *text, *says;
		enum rpc_heard heard;
	} cases[] = {
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no.method\"}", "may call no method \\\"no.method\\\"",
		 RPC_REFUSED},
		// Ours to call; a worker's; one that this end does not serve.
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"device.verify\",\"params\":{\"device_id\":\"d\"}}",
		 "may call no method", RPC_REFUSED},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.ping\"}", "may call no method", RPC_REFUSED},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"node.telemetry\",\"params\":{\"node\":null,"
		 "\"devices\":[]}}",
		 "is not served", RPC_REFUSED},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"node.burst\"}", "needs the parameter", RPC_REFUSED},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"node.burst\",\"params\":[]}", "\"id\":\"a\"",
		 RPC_GARBAGE},
		{"[]", "\"id\":null", RPC_GARBAGE},
		{"{", "\"id\":null", RPC_GARBAGE},
	};
	struct end end;
	(void)state;
	begin(&end);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		end.sent[0] = 0;
		assert_int_equal(hear(&end, cases[i].text), cases[i].heard);
		if (!strstr(end.sent, cases[i].says))
			fail_msg("%s was answered %s", cases[i].text, end.sent);
	}
	assert_int_equal(end.served, 0);
	end.rpc.params.answers_faults = false;
	end.sendings = 0;
	assert_int_equal(hear(&end, "{"), RPC_GARBAGE);
	assert_int_equal(end.sendings, 0);
	finish(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_are_answered_once),
		cmocka_unit_test(hostile_answers_fail_the_call),
		cmocka_unit_test(late_calls_end),
		cmocka_unit_test(late_calls_may_wait_on),
		cmocka_unit_test(calls_by_another_way_are_settled_once),
		cmocka_unit_test(what_was_ended_is_stale_and_no_more),
		cmocka_unit_test(how_an_end_may_differ),
		cmocka_unit_test(an_answer_that_is_too_long_is_an_error),
		cmocka_unit_test(no_more_wait_than_may),
		cmocka_unit_test(what_cannot_be_sent_fails_at_once),
		cmocka_unit_test(what_is_asked_is_served),
		cmocka_unit_test(what_may_not_be_asked_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
