/* Workers that are started before anybody asks, and GPUs that are measured while nobody uses them. The GPUs are those
 * of the driver that stands for NVIDIA's. */
#include "tests/engine/node/workers/asking.h"

// ---- spares ----

// The worker that waits for a session; 0: none.
static pid_t spare_of(const struct bench *all)
{
	char path[96], name[32];
	int pid = 0, found = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)all->node, (int)all->node);
	FILE *children = fopen(path, "r");
	while (children && !found && fscanf(children, "%d", &pid) == 1) {
		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		FILE *comm = fopen(path, "r");
		if (comm && fgets(name, sizeof(name), comm) && !strcmp(name, "exogpu-spare\n"))
			found = pid;
		if (comm)
			fclose(comm);
	}
	if (children)
		fclose(children);
	return (pid_t)found;
}

static pid_t killed_spare;

static bool another_spare_waits(const struct bench *all)
{
	const pid_t spare = spare_of(all);
	return spare && spare != killed_spare;
}

static bool is_gone(pid_t pid)
{
	char path[32], line[256] = "";
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");
	const bool there = file && fgets(line, sizeof(line), file);
	if (file)
		fclose(file);
	return !there || strstr(line, ") Z "); // what is nobody's child any more may wait for init
}

// A session's worker and its device. Whether it had waited; *ms: how long both took.
static bool open_session(const char *id, const char *backend, double *ms)
{
	char text[200];
	snprintf(text, sizeof(text), ",\"key\":\"k\",\"backend\":\"%s\",\"device_id\":\"%s\"", backend,
		 json_get_string(device_of(&bench, backend), "device_id", ""));
	struct answer *answer = ask_well("tenant.open", id, text);
	const bool spare = json_get_bool(answer->result, "spare", false);
	*ms = json_get_number(answer->result, "started_ms", -1);
	assert_true(json_get(answer->result, "sandbox") != NULL);
	answer = ask_well("tenant.device", id, device_parameters(backend, 5));
	*ms += json_get_number(answer->result, "opened_ms", -1);
	assert_true(json_get_number(json_get(answer->result, "limits"), "memory_bytes", 0) > 0);
	return spare;
}

// A session that gets the spare, which may have to open its device first. Its worker.
static pid_t open_with_spare(const char *name, const char *backend, double *ms)
{
	const int64_t began_ms = clock_steady_ms();
	char id[32];
	for (int i = 0; clock_steady_ms() - began_ms < PATIENCE_MS; i++) {
		wait_for(another_spare_waits);
		const pid_t spare = spare_of(&bench);
		snprintf(id, sizeof(id), "%s%d", name, i);
		if (open_session(id, backend, ms))
			return spare;
		ask_well("tenant.close", id, "");
		usleep(50000);
	}
	fail_msg("no session got a spare");
	return 0;
}

// The process of a session that got the spare; the sessions "first" and another are open then.
static pid_t use_spare(const char *backend)
{
	double first_ms, second_ms;
	killed_spare = 0;
	wait_for(another_spare_waits); // no session came yet: verifying the device took long enough
	const bool waited = !open_session("first", backend, &first_ms);
	const pid_t spare = open_with_spare("second", backend, &second_ms);
	assert_false(is_gone(spare));
	assert_true(spare_of(&bench) != spare); // it is called a worker now
	print_message("%s: worker and device took %.1f ms %s a spare, then %.1f ms with one\n", backend, first_ms,
		      waited ? "without" : "with", second_ms);
	return spare;
}

static void a_session_gets_the_worker_that_waits(void **state)
{
	double third_ms;
	(void)state;
	setenv("EXOGPU_SPARES", "1", 1);
	start_node(NULL, "cpu");
	unsetenv("EXOGPU_SPARES");
	wait_for(cpu_settled); // there may be no moment without a worker: the one that waits is begun as soon as it may
	const pid_t spare = use_spare("cpu");

	// One that dies is replaced, and the next session gets another than the one before.
	wait_for(another_spare_waits);
	killed_spare = spare_of(&bench);
	assert_int_equal(kill(killed_spare, SIGKILL), 0);
	const pid_t other = open_with_spare("third", "cpu", &third_ms);
	assert_true(is_gone(killed_spare));
	assert_true(other != spare && other != killed_spare && !is_gone(spare));
	assert_int_equal(ends, 0); // the server knows nothing of it

	// Nothing is left of those that waited, nor of their sessions.
	const int descriptors = count_descriptors();
	ask_well("tenant.close", "first", "");
	wait_for(another_spare_waits);
	const pid_t last = spare_of(&bench);
	assert_in_range(count_descriptors(), 1, descriptors + 1);
	stop_node();
	for (int ms = 0; ms < PATIENCE_MS && !(is_gone(spare) && is_gone(other) && is_gone(last)); ms += 10)
		usleep(10000);
	assert_true(is_gone(spare) && is_gone(other) && is_gone(last));
}

static void a_session_gets_the_gpu_that_is_open(void **state)
{
	(void)state;
	if (!install_driver()) {
		print_message("skipped: no llvmpipe here (apt-get install mesa-vulkan-drivers)\n");
		skip();
	}
	setenv("EXOGPU_SPARES", "1", 1);
	start_node(NULL, "vulkan");
	unsetenv("EXOGPU_SPARES");
	wait_for(vulkan_passed);
	use_spare("vulkan");
	stop_node();
	unlink(bench.manifest);
}

// ---- GPUs, by the driver that stands for NVIDIA's ----

// What is told of the first direction; NULL: nothing yet.
static const struct json *speed_told(const struct bench *all)
{
	return json_first(json_get(json_first(all->speeds), "peers"));
}

static bool measured_or_waits(const struct bench *all)
{
	return json_get_number(speed_told(all), "bytes_per_s", 0) > 0 ||
	       strstr(json_get_string(speed_told(all), "reason", ""), "waits until");
}

static bool measured(const struct bench *all)
{
	return json_get_number(speed_told(all), "bytes_per_s", 0) > 0;
}

static bool registered(const struct bench *all)
{
	return all->record;
}

static bool cuda_passed(const struct bench *all)
{
	return !strcmp(verification_of(all, "cuda"), "passed");
}

static char first_at[40], verified_at[40];

static const char *verified_when(const struct bench *all)
{
	return json_get_string(json_get(device_of(all, "cuda"), "verification"), "at", "");
}

static bool verified_anew(const struct bench *all)
{
	return cuda_passed(all) && strcmp(verified_when(all), verified_at) != 0;
}

static bool measured_anew(const struct bench *all)
{
	const char *at = json_get_string(speed_told(all), "measured_at", "");
	return at[0] && strcmp(at, first_at) != 0;
}

static void start_with_gpus(bool takes_speeds)
{
	char link[128], folders[4096];
	snprintf(link, sizeof(link), "%s/libcuda.so.1", bench.folder);
	// A worker's root has the link there, and what it points to only if that is named, too.
	snprintf(folders, sizeof(folders), "%s:%.*s", bench.folder, (int)(strrchr(CUDA_STRUCK, '/') - CUDA_STRUCK),
		 CUDA_STRUCK);
	unlink(link);
	assert_int_equal(symlink(CUDA_STRUCK, link), 0);
	bench.takes_speeds = takes_speeds;
	setenv("LD_LIBRARY_PATH", folders, 1);
	setenv("CUDA_STANDIN", "90", 1);
	setenv("EXOGPU_TEST_MEASUREMENT_MS", "240000", 1); // it took 20 s on a busy machine with a sanitizer
	setenv("EXOGPU_SPARES", "off", 1); // on a busy machine the stand-in is slow to open, and would have one
	start_node(NULL, "cuda");
	unsetenv("EXOGPU_SPARES");
	unsetenv("EXOGPU_TEST_MEASUREMENT_MS");
	unsetenv("CUDA_STANDIN");
	unsetenv("LD_LIBRARY_PATH");
	wait_for(registered);
}

static void gpus_are_measured_while_nobody_uses_them(void **state)
{
	static const char open[] = ",\"key\":\"secret\",\"backend\":\"cuda\"";
	char text[256];
	(void)state;
	start_with_gpus(true);
	ask_well("tenant.open", "w1", open);
	wait_for(measured_or_waits); // the worker may have come too late
	print_message("%s\n",
		      measured(&bench) ? "was measured before" : json_get_string(speed_told(&bench), "reason", ""));
	ask_well("tenant.close", "w1", "");
	wait_for(measured);
	assert_true(json_get_bool(speed_told(&bench), "direct", false));
	snprintf(first_at, sizeof(first_at), "%s", json_get_string(speed_told(&bench), "measured_at", ""));
	wait_for(no_worker);

	ask_well("tenant.open", "w2", open); // that a person asks changes nothing while somebody is there
	snprintf(verified_at, sizeof(verified_at), "%s", verified_when(&bench));
	const int length = snprintf(text, sizeof(text),
				    "{\"jsonrpc\":\"2.0\",\"id\":100000,\"method\":\"device.verify\",\"params\":{"
				    "\"device_id\":\"%s\"}}",
				    json_get_string(device_of(&bench, "cuda"), "device_id", ""));
	net_conn_send_text(bench.conn, text, (size_t)length);
	wait_for(verified_anew);
	assert_false(measured_anew(&bench));
	ask_well("tenant.close", "w2", "");
	wait_for(measured_anew);
	stop_node();
}

static void a_server_of_a_build_before_is_not_told(void **state)
{
	(void)state;
	start_with_gpus(false);
	wait_for(cuda_passed);
	ask_well("tenant.open", "w1", ",\"key\":\"secret\",\"backend\":\"cuda\"");
	ask_well("tenant.close", "w1", "");
	assert_null(bench.speeds);
	stop_node();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TENANT_TEST(a_session_gets_the_worker_that_waits),
		TENANT_TEST(a_session_gets_the_gpu_that_is_open),
		TENANT_TEST(gpus_are_measured_while_nobody_uses_them),
		TENANT_TEST(a_server_of_a_build_before_is_not_told),
	};
	return cmocka_run_group_tests_name("node/tenants_gpus", tests, make_bench, remove_bench);
}
