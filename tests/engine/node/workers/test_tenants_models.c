/* Workers of model instances, as the real node starts and connects them. */
#include "tests/engine/node/workers/asking.h"

static const char *model_parameters(const char *name)
{
	static char text[256];
	snprintf(text, sizeof(text), ",\"key\":\"k\",\"backend\":\"cpu\",\"model_path\":\"%s/%s\"", bench.folder, name);
	return text;
}

static void make_files(void)
{
	char path[160], to[160];
	FILE *file;
	snprintf(path, sizeof(path), "%s/model.gguf", bench.folder);
	file = fopen(path, "w");
	assert_true(file && fputs("GGUF, and nothing that anybody reads here", file) > 0 && !fclose(file));
	snprintf(to, sizeof(to), "%s/link.gguf", bench.folder);
	unlink(to); // of another test
	assert_int_equal(symlink(path, to), 0);
	snprintf(to, sizeof(to), "%s/pipe.gguf", bench.folder);
	unlink(to);
	assert_int_equal(mkfifo(to, 0600), 0);
}

static void a_model_s_worker_has_its_file(void **state)
{
	(void)state;
	char link[64], path[160] = "", wanted[160];
	start_settled();
	make_files();
	int descriptors = count_descriptors();
	for (int i = 0; i < 3; i++) {
		ask_ill("tenant.open", "w1", model_parameters("none.gguf"), STATUS_NOT_FOUND);
		ask_ill("tenant.open", "w1", model_parameters("link.gguf"), STATUS_UNAVAILABLE);
		ask_ill("tenant.open", "w1", model_parameters("pipe.gguf"), STATUS_INVALID_PARAMS);
		ask_ill("tenant.open", "w1", model_parameters("."), STATUS_INVALID_PARAMS);
	}
	wait_for_descriptors(descriptors);
	assert_int_equal(stream_count, 0);
	struct answer *answer = ask_well("tenant.open", "w1", model_parameters("model.gguf"));
	assert_true(json_get_number(answer->result, "started_ms", -1) >= 0);
	snprintf(wanted, sizeof(wanted), "%s/model.gguf", bench.folder);
	snprintf(link, sizeof(link), "/proc/%d/fd/5", (int)newest_worker());
	// In a release build nobody may look into a worker.
	if (has_faults && readlink(link, path, sizeof(path) - 1) < 0)
		fail_msg("%s: %s", link, strerror(errno));
	if (has_faults)
		assert_string_equal(path, wanted);
	ask_ill("tenant.device", "w1", device_parameters("cpu", 0), STATUS_METHOD_NOT_FOUND);
	kill(newest_worker(), SIGKILL);
	wait_for(told_of_an_end);
	if (!strstr(ended_message, "killed from outside"))
		fail_msg("the server was told: %s", ended_message);
	ask_well("tenant.open", "w2", model_parameters("model.gguf"));
	ask_well("tenant.close", "w2", "");
	wait_for(no_worker);
	stop_node();
}

static void a_model_that_is_cut_off_is_told(void **state)
{
	(void)state;
	if (!has_faults) {
		print_message("skipped: a release build injects no faults\n");
		skip();
	}
	start_node("open-cut:cpu", "cpu");
	wait_for(cpu_settled);
	make_files();
	struct answer *answer = ask("tenant.open", "w1", model_parameters("model.gguf"));
	assert_true(answer->failed);
	if (!strstr(answer->error.message, "the model's file was cut off"))
		fail_msg("the server was told: %s", answer->error.message);
	stop_node();
}

static bool two_hops_ended(const struct bench *all)
{
	(void)all;
	return hop_ends == 2;
}

static const char *hop_parameters(const char *end, const char *hop_id)
{
	static char text[256];
	snprintf(text, sizeof(text), ",\"end\":\"%s\",\"hop_id\":\"%s\",\"key\":\"k\",\"via\":\"local\"", end, hop_id);
	return text;
}

static bool is_socket(pid_t worker, int fd)
{
	char link[64], target[64] = "";
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)worker, fd);
	return readlink(link, target, sizeof(target) - 1) > 0 && !strncmp(target, "socket:", 7);
}

static void parts_of_a_model_are_connected(void **state)
{
	char more[320];
	(void)state;
	make_files();
	start_settled();
	ask_ill("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\",\"ring\":true", STATUS_INVALID_PARAMS);
	snprintf(more, sizeof(more), "%s,\"ring\":true", model_parameters("model.gguf"));
	ask_well("tenant.open", "w1", more);
	if (has_faults)
		for (int fd = 3; fd <= 8; fd++)
			assert_int_equal(is_socket(newest_worker(), fd), fd != 5 && fd != 8);
	ask_well("tenant.open", "w2", more);
	awaited = send_call("hop.connect", "w1", hop_parameters("out", "h1"));
	send_call("hop.connect", "w2", hop_parameters("out", "h2"));
	send_call("hop.connect", "w2", hop_parameters("in", "h1"));
	int last = send_call("hop.connect", "w1", hop_parameters("in", "h2"));
	wait_for(all_answered);
	for (int call = awaited; call <= last; call++)
		assert_false(answers[call].failed);
	ask_ill("hop.connect", "w3", hop_parameters("in", "h2"), STATUS_NOT_FOUND);
	ask_well("tenant.close", "w2", "");
	wait_for(two_hops_ended); // of the other, both
	ask_ill("hop.connect", "w2", hop_parameters("in", "h2"), STATUS_NOT_FOUND);
	ask_well("tenant.close", "w1", "");
	assert_int_equal(hop_ends, 2);
	assert_int_equal(ends, 0);
	stop_node();
}

// Nothing of it is asked for: the file is all holes, and no server is needed.
static void a_model_out_of_the_cache(void **state)
{
	char text[256], path[160], target[160] = "";
	(void)state;
	start_settled();
	ask_ill("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\",\"model_id\":\"mdl_1\"", STATUS_NOT_FOUND);
	int length = snprintf(text, sizeof(text),
			      "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"model.fetch\",\"params\":{\"model_id\":"
			      "\"mdl_1\",\"key\":\"k\",\"bytes\":1000000,\"ranges\":[]}}",
			      awaited = ++last_call);
	net_conn_send_text(bench.conn, text, (size_t)length);
	wait_for(all_answered);
	assert_false(answers[awaited].failed);
	ask_well("tenant.open", "w1", ",\"key\":\"k\",\"backend\":\"cpu\",\"model_id\":\"mdl_1\",\"ring\":true");
	snprintf(path, sizeof(path), "/proc/%d/fd/5", (int)newest_worker());
	if (has_faults && readlink(path, target, sizeof(target) - 1) < 0)
		fail_msg("%s: %s", path, strerror(errno));
	print_message("the worker has %s\n", target);
	if (has_faults)
		assert_non_null(strstr(target, "/models/mdl_1.part"));
	ask_well("tenant.close", "w1", "");
	stop_node();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TENANT_TEST(a_model_s_worker_has_its_file),
		TENANT_TEST(a_model_that_is_cut_off_is_told),
		TENANT_TEST(parts_of_a_model_are_connected),
		TENANT_TEST(a_model_out_of_the_cache),
	};
	return cmocka_run_group_tests_name("node/tenants_models", tests, make_bench, remove_bench);
}
