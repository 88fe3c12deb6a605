/* Calls of a model instance's worker that are wrong, loads that fail, noise, a device that is lost, a server that does
 * not read, and files that are cut off. */
#include "tests/engine/worker/instance/instance_bench.h"

static void ask_by_body(const char *method, const char *params, const char *body, size_t body_bytes)
{
	method_of[post(&worker, worker.server, method, body, body_bytes, "%s", params) % 4096] = method;
}

static void check_refused(enum status status, const char *says)
{
	last_error = (struct error){0};
	while (!last_error.status)
		assert_true(pump());
	if (last_error.status != status || !strstr(last_error.message, says))
		fail_msg("%s: %s, not %s: %s", status_word(last_error.status), last_error.message, status_word(status),
			 says);
}

// The node was told that what is long may keep a ping waiting, and of nothing before it.
static void check_busy(int64_t ms)
{
	struct answer answer;
	struct error error = {0};
	assert_true(receive_answer(worker.node, &answer));
	const struct message *told = &answer.message;
	assert_int_equal(told->kind, MESSAGE_NOTIFICATION);
	assert_string_equal(told->method, "worker.busy");
	if (contract_check_params(contract, contract_find(contract, told->method), told->params, &error))
		fail_msg("%s", error.message);
	assert_true(json_get_integer(told->params, "ms", 0) >= ms);
	answer_finish(&answer);
	CALL_STATUS(&worker, worker.node, "worker.ping", STATUS_OK, "%s", "");
}

// Params that a head has no room for.
static void long_params_are_the_body(void **state)
{
	(void)state;
	enum { LONG_BYTES = 2 * 1024 * 1024 };
	static const char begin[] = "{\"request\":3,\"owner\":1,\"prompt\":{\"text\":\"", end[] = "\"}}",
			  whole[] = "{\"request\":2,\"owner\":1,\"prompt\":{\"text\":\"the rain\"},\"max_tokens\":20,"
				    "\"ignore_end\":true,\"sampling\":{\"temperature\":0}}";
	char *text = malloc(sizeof(begin) + LONG_BYTES + sizeof(end));
	assert_non_null(text);
	start_with(NULL);
	load_well(32, 16, 4);
	ask_text(1, "the rain", ",'max_tokens':20,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(1);
	talks[2] = (struct talk){.used = true};
	ask_by_body("generate.start", "", whole, strlen(whole));
	wait_for_end(2);
	assert_int_equal(talks[2].count, 20);
	assert_memory_equal(talks[1].tokens, talks[2].tokens, 20 * sizeof(talks[1].tokens[0]));
	memcpy(text, begin, strlen(begin));
	memset(text + strlen(begin), 'q', LONG_BYTES - 1000);
	memcpy(text + strlen(begin) + LONG_BYTES - 1000, end, sizeof(end));
	ask_by_body("generate.start", "", text, strlen(text));
	check_refused(STATUS_LIMIT_EXCEEDED, "1048592 tokens");
	check_busy(LONG_BYTES / 1000);
	ask_by_body("generate.start", "", "[]", 2);
	check_refused(STATUS_INVALID_PARAMS, "a body is an object");
	ask_by_body("generate.start", "'request':5", whole, strlen(whole));
	check_refused(STATUS_INVALID_PARAMS, "all of the params");
	ask_by_body("generate.start", "", whole, strlen(whole) - 1);
	check_refused(STATUS_PARSE_ERROR, "");
	ask_by_body("generate.start", "", "{\"request\":0}", 13);
	check_refused(STATUS_INVALID_PARAMS, "");
	ask_by_body("generate.cancel", "'request':1", "{}", 2);
	check_refused(STATUS_INVALID_PARAMS, "takes no body");
	free(text);
	end_well();
}

static void wrong_calls_are_answered(void **state)
{
	(void)state;
	static const struct {
		const char *method, *params, *says;
		enum status status;
	} calls[] = {
		{"generate.start", "'request':1,'owner':1,'prompt':{}", "one of them", STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'text':'a','tokens':[1]}", "one of them",
		 STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'tokens':[]}", "empty", STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'tokens':[99999]}", "vocabulary",
		 STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'messages':[{'role':'king','text':'a'}]}", "role",
		 STATUS_INVALID_PARAMS},
		{"generate.start", "'request':0,'owner':1,'prompt':{'text':'a'}", "request", STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'text':'a'},'sampling':{'temperature':3}",
		 "temperature", STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'text':'a'},'stop':['']", "stop",
		 STATUS_INVALID_PARAMS},
		{"instance.load",
		 "'stages':[{'hardware_key':'cpu','first_layer':0,'layer_count':2,'host_layers':0}],'context_tokens':"
		 "64,"
		 "'page_count':8,'batch_rows':8,'sequences':2",
		 "already", STATUS_CONFLICT},
		{"memory.free", "'handle':1", "memory.free", STATUS_METHOD_NOT_FOUND},
		{"generate.dance", "", "generate.dance", STATUS_METHOD_NOT_FOUND},
	};
	char text[3000];
	start_with(NULL);
	ASK("generate.start", "'request':1,'owner':1,'prompt':{'text':'too early'}");
	assert_true(pump());
	assert_int_equal(last_error.status, STATUS_CONFLICT);
	load_well(16, 16, 2);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		ASK(calls[i].method, "%s", calls[i].params);
		last_error = (struct error){0};
		while (!last_error.status)
			assert_true(pump());
		if (last_error.status != calls[i].status || !strstr(last_error.message, calls[i].says))
			fail_msg("%s {%s}: %s: %s", calls[i].method, calls[i].params, status_word(last_error.status),
				 last_error.message);
	}
	memset(text, 'q', sizeof(text));
	text[sizeof(text) - 1] = 0;
	ASK("generate.start", "'request':1,'owner':1,'prompt':{'text':'%s'}", text);
	last_error = (struct error){0};
	while (!last_error.status)
		assert_true(pump());
	assert_int_equal(last_error.status, STATUS_LIMIT_EXCEEDED);
	print_message("%s\n", last_error.message);
	assert_non_null(strstr(last_error.message, "256")); // and how many it has
	// The node's side: a ping, and nothing else.
	CALL_STATUS(&worker, worker.node, "worker.ping", STATUS_OK, "%s", "");
	CALL_STATUS(&worker, worker.node, "worker.device", STATUS_METHOD_NOT_FOUND, "'device':0,'hardware_key':'cpu'");
	CALL_STATUS(&worker, worker.node, "worker.open", STATUS_METHOD_NOT_FOUND,
		    "'backend':'cpu','cache_directory':null");
	end_well();
}

static void a_load_that_fails_may_be_tried_again(void **state)
{
	(void)state;
	static const char stage[] =
		"'stages':[{'hardware_key':'%s','first_layer':%d,'layer_count':%d,'host_layers':0}],"
		"'context_tokens':%d,'page_count':%u,'batch_rows':%d,'sequences':%d";
	static const struct {
		const char *key;
		int first, count, context, rows, sequences;
		enum status status;
	} wrong[] = {
		{"gpu", 0, 2, 64, 16, 4, STATUS_NOT_FOUND},       {"cpu", 0, 1, 64, 16, 4, STATUS_INVALID_PARAMS},
		{"cpu", 1, 1, 64, 16, 4, STATUS_INVALID_PARAMS},  {"cpu", 0, 3, 64, 16, 4, STATUS_INVALID_PARAMS},
		{"cpu", 0, 2, 257, 16, 4, STATUS_INVALID_PARAMS}, {"cpu", 0, 2, 0, 16, 4, STATUS_INVALID_PARAMS},
		{"cpu", 0, 2, 64, 4, 8, STATUS_INVALID_PARAMS},   {"cpu", 0, 2, 64, 9000, 8, STATUS_INVALID_PARAMS},
	};
	start_with(NULL);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		int before = loads;
		ASK("instance.load", stage, wrong[i].key, wrong[i].first, wrong[i].count, wrong[i].context, 8u,
		    wrong[i].rows, wrong[i].sequences);
		while (loads == before)
			assert_true(pump());
		if (last_error.status != wrong[i].status)
			fail_msg("%zu: %s: %s", i, status_word(last_error.status), last_error.message);
	}
	// In two stages, and in another format.
	ASK("instance.load",
	    "'stages':[{'hardware_key':'cpu','first_layer':0,'layer_count':1,'host_layers':0},"
	    "{'hardware_key':'cpu','first_layer':1,'layer_count':1,'host_layers':0}],'context_tokens':%d,"
	    "'page_count':16,'batch_rows':16,'sequences':4",
	    CONTEXT);
	int before = loads;
	while (loads == before)
		assert_true(pump());
	assert_int_equal(last_error.status, STATUS_OK);
	ask_text(7, "in two parts", ",'max_tokens':30,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(7);
	check_talk(&talks[7], "in two parts");
	end_well();
}

// A stage in slices is one to everybody else; slices that are not all there, or not alike, are refused.
static void slices_are_one_stage(void **state)
{
	(void)state;
#define SLICE(layers, slice) \
	"{'hardware_key':'cpu','first_layer':0,'layer_count':" layers ",'host_layers':0,'slices':2,'slice':" slice "}"
	static const char *const wrong[] = {SLICE("2", "0"), SLICE("2", "1"), SLICE("2", "0") "," SLICE("2", "0"),
					    SLICE("2", "0") "," SLICE("1", "1")};
	start_with(NULL);
	for (size_t i = 0; i <= sizeof(wrong) / sizeof(wrong[0]); i++) {
		const bool right = i == sizeof(wrong) / sizeof(wrong[0]);
		int before = loads;
		ASK("instance.load", "'stages':[%s],'context_tokens':%d,'page_count':16,'batch_rows':16,'sequences':4",
		    right ? SLICE("2", "0") "," SLICE("2", "1") : wrong[i], CONTEXT);
		while (loads == before)
			assert_true(pump());
		if (last_error.status != (right ? STATUS_OK : STATUS_INVALID_PARAMS))
			fail_msg("%zu: %s: %s", i, status_word(last_error.status), last_error.message);
	}
#undef SLICE
	assert_int_equal(json_count(json_get(last_result, "memory")), 2);
	ask_text(7, "in two slices", ",'max_tokens':30,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(7);
	check_talk(&talks[7], "in two slices");
	end_well();
}

// What is no message is answered if it is framed as one, and else the end.
static void noise_is_survived_or_the_end(void **state)
{
	(void)state;
	static const char *const heads[] = {"",
					    "x",
					    "{}",
					    "[]",
					    "{\"jsonrpc\":\"2.0\"}",
					    "\xff\xfe",
					    "null",
					    "{\"jsonrpc\":\"2.0\",\"method\":\"generate.start\",\"params\":{}}",
					    "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"};
	const uint8_t lengths[][8] = {{3, 0, 0, 0}, {255, 255, 255, 255, 0, 0, 0, 0}, {8, 0, 0, 0, 255, 255, 0, 0}};
	start_with(NULL);
	load_well(16, 16, 2);
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		struct buffer out;
		buffer_init(&out, 4096);
		message_encode_stream(&out, heads[i], strlen(heads[i]), NULL, 0);
		send_bytes(worker.server, out.data, out.length);
		buffer_finish(&out);
		last_error = (struct error){0};
		while (!last_error.status)
			assert_true(pump());
	}
	ask_text(1, "after the noise", ",'max_tokens':5,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(1);
	check_talk(&talks[1], "after the noise");
	end_well();
	for (size_t i = 0; i < 2; i++) {
		char said[1024];
		start_with(NULL);
		send_bytes(worker.server, lengths[i], 8);
		assert_false(pump());
		assert_int_equal(worker_end(&worker, said, sizeof(said)), 1);
	}
}

static void a_ping_is_answered_in_a_long_step(void **state)
{
	(void)state;
	start_with("step-hang:cpu");
	load_well(16, 16, 2);
	ask_text(1, "for ever", "");
	while (!talks[1].answered)
		assert_true(pump());
	struct answer answer;
	double oldest = 0;
	for (int i = 0; i < 1000 && oldest < 50; i++) {
		int id = post(&worker, worker.node, "worker.ping", NULL, 0, "%s", "");
		expect(worker.node, &answer, id, "worker.ping", STATUS_OK);
		oldest = json_get_number(answer.message.result, "oldest_ms", 0);
		answer_finish(&answer);
		usleep(5000);
	}
	assert_true(oldest >= 50);
	end_well();
}

static void a_lost_device_ends_the_worker_only(void **state)
{
	(void)state;
	char said[4096];
	start_with("step-lost:cpu");
	load_well(16, 16, 2);
	for (int i = 1; i <= 5; i++)
		ask_text(i, "never", "");
	while (pump())
		;
	for (int i = 1; i <= 5; i++)
		assert_false(talks[i].ended); // they go on elsewhere
	const int end = worker_end(&worker, said, sizeof(said));
	if (end != WORKER_DEVICE_LOST)
		fail_msg("it ends with %d and says %s", end, said);
	assert_null(strstr(said, "never")); // nothing of a prompt
}

// Nothing is read for a while: the worker waits, answers its node, and goes on where it was.
static void a_server_that_does_not_read(void **state)
{
	(void)state;
	int small = 4096;
	start_with(NULL);
	load_well(64, 64, 8);
	setsockopt(worker.server, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	for (int i = 1; i <= 100; i++)
		ask_text(i, "much to say",
			 ",'ignore_end':true,'max_tokens':200,'sampling':{'temperature':0,'logprobs':true,"
			 "'top_logprobs':20}");
	for (int i = 0; i < 100; i++) {
		CALL_STATUS(&worker, worker.node, "worker.ping", STATUS_OK, "%s", "");
		usleep(20000);
	}
	for (int i = 1; i <= 100; i++)
		wait_for_end(i);
	for (int i = 1; i <= 100; i++) {
		assert_int_equal(talks[i].count, 200);
		assert_int_equal(talks[i].choices, 200);
	}
	check_talk(&talks[100], "much to say");
	end_well();
}

static void a_file_that_is_cut_off(void **state)
{
	(void)state;
	struct model_file small = model_file_small();
	char other[] = "/tmp/exogpu-cut-XXXXXX";
	int fd = mkstemp(other), kept = worker_model;
	assert_true(fd >= 0 && model_file_save(&small, other));
	worker_model = open(other, O_RDONLY | O_CLOEXEC);
	start_with(NULL);
	assert_int_equal(truncate(other, 5000), 0);
	assert_int_equal(load(16, 16, 2, ""), STATUS_INVALID_PARAMS);
	print_message("%s\n", last_error.message);
	end_well();
	close(fd);
	close(worker_model);
	unlink(other);
	worker_model = kept;
}

static void without_its_file(void **state)
{
	(void)state;
	int kept = worker_model;
	worker_model = -1;
	worker_start(&worker, NULL);
	CALL_STATUS(&worker, worker.node, "worker.instance", STATUS_INVALID_REQUEST,
		    "'backend':'cpu','cache_directory':null");
	worker_end(&worker, NULL, 0);
	worker_model = kept;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_params_are_the_body),
		cmocka_unit_test(wrong_calls_are_answered),
		cmocka_unit_test(a_load_that_fails_may_be_tried_again),
		cmocka_unit_test(slices_are_one_stage),
		cmocka_unit_test(noise_is_survived_or_the_end),
		cmocka_unit_test(a_ping_is_answered_in_a_long_step),
		cmocka_unit_test(a_lost_device_ends_the_worker_only),
		cmocka_unit_test(a_server_that_does_not_read),
		cmocka_unit_test(a_file_that_is_cut_off),
		cmocka_unit_test(without_its_file),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
