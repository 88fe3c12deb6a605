/* A server's end of the node's socket, and the real node process at the other, for the tests of this folder.
 *
 * The fake server takes the node's registration, its reports and readings, checks everything that the node says against
 * the contract, and keeps the latest of each. One at a time. */
#pragma once
#include "common/base/clock.h"
#include "common/net/ws/ws.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum {
	PATIENCE_MS = 240000, // for what comes in a moment, on a machine that does much else
	LOOK_MS = 10
};

// What the fake server has seen, and what it waits for.
struct bench {
	struct net_loop *loop;
	struct contract *contract;
	struct net_listener *listener;
	struct net_conn *conn;
	struct net_timer patience, look; // look: what no message tells is looked at again and again
	struct json *record, *devices;   // the latest
	struct json *speeds;             // of node.devices, the latest; NULL: it told none
	bool takes_speeds;               // it says so, as one of a build before does not
	bool (*enough)(const struct bench *bench);
	bool met;
	int connections, reports, closes, telemetry, results, errors;
	void (*heard)(const struct message *message); // answers and notifications, too; may be NULL
	pid_t node;
	char folder[64], socket[96], manifests[96], manifest[128];
};

static struct bench bench;
#ifdef NDEBUG
static const bool has_faults = false; // see engine/worker/fault.h
#else
static const bool has_faults = true;
#endif

static inline void answer(struct net_conn *conn, const struct json *id, struct json *result)
{
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES);
	assert_int_equal(message_print_result(&text, id, result), STATUS_OK);
	net_conn_send_text(conn, buffer_text(&text), text.length);
	buffer_finish(&text);
}

static inline bool upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)response;
	*user = context;
	return request->local && !strcmp(request->path, "/node");
}

static inline void opened(void *user, struct net_conn *conn)
{
	((struct bench *)user)->conn = conn;
	((struct bench *)user)->connections++;
	net_conn_trust(conn);
}

static inline void look_for_enough(struct bench *all)
{
	if (all->enough && all->enough(all)) {
		all->met = true;
		net_loop_stop(all->loop);
	}
}

static inline void closed(void *user, struct net_conn *conn, int code)
{
	struct bench *all = user;
	(void)conn, (void)code;
	all->conn = NULL;
	all->closes++;
	look_for_enough(all);
}

// Everything that a node says must be in the contract.
static inline void received(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct bench *all = user;
	struct message message = {0};
	struct error error = {0};
	(void)binary;
	assert_int_equal(message_decode_text(&message, (const char *)bytes, length, &error), STATUS_OK);
	if (message.kind == MESSAGE_REQUEST || message.kind == MESSAGE_NOTIFICATION) {
		const struct contract_method *method = contract_find(all->contract, message.method);
		assert_non_null(method);
		enum status status = contract_check_params(all->contract, method, message.params, &error);
		if (status)
			print_error("%s: %s\n", message.method, error.message);
		assert_int_equal(status, STATUS_OK);
	}
	if (message.kind == MESSAGE_REQUEST && !strcmp(message.method, "node.register")) {
		struct json *result = json_new_object();
		json_set_integer(result, "protocol", 1);
		json_set_bool(result, "watched", true);
		if (all->takes_speeds)
			json_set_bool(result, "peer_speeds", true);
		answer(conn, message.id, result);
		json_destroy(&all->record);
		all->record = json_copy(json_get(message.params, "node"));
	} else if (message.kind == MESSAGE_REQUEST && !strcmp(message.method, "node.devices")) {
		answer(conn, message.id, json_new_object());
		json_destroy(&all->devices);
		all->devices = json_copy(json_get(message.params, "devices"));
		json_destroy(&all->speeds);
		all->speeds = json_copy(json_get(message.params, "peer_speeds"));
		assert_true(all->takes_speeds || !all->speeds);
		all->reports++;
	} else if (message.kind == MESSAGE_NOTIFICATION) {
		all->telemetry += !strcmp(message.method, "node.telemetry");
	} else if (message.kind == MESSAGE_RESULT) {
		all->results++;
	} else {
		all->errors++;
	}
	if (all->heard && message.kind != MESSAGE_REQUEST)
		all->heard(&message);
	message_finish(&message);
	look_for_enough(all);
}

static const struct net_handler handler = {.upgrade = upgrade, .opened = opened, .message = received, .closed = closed};

static inline void listen_again(void)
{
	static const char *const subprotocols[] = {"exogpu.node.v1", NULL};
	struct error error = {0};
	struct net_listener_params params = {.socket_path = bench.socket,
					     .ping_s = 3,
					     .silence_s = 8,
					     .subprotocols = subprotocols,
					     .handler = &handler,
					     .context = &bench};
	enum status status = net_listener_create(&bench.listener, bench.loop, &params, &error);
	if (status)
		print_error("%s\n", error.message);
	assert_int_equal(status, STATUS_OK);
}

static inline void out_of_patience(void *arg)
{
	net_loop_stop(arg);
}

static inline void look_again(void *arg)
{
	struct bench *all = arg;
	look_for_enough(all);
	if (!all->met)
		net_timer_start(all->loop, &all->look, LOOK_MS, look_again, all);
}

// The loop turns meanwhile: a node that hears nothing for a few seconds would dial again.
static inline void wait_for(bool (*enough)(const struct bench *bench))
{
	bench.enough = enough;
	bench.met = enough(&bench);
	net_timer_start(bench.loop, &bench.patience, PATIENCE_MS, out_of_patience, bench.loop);
	net_timer_start(bench.loop, &bench.look, LOOK_MS, look_again, &bench);
	if (!bench.met)
		net_loop_run(bench.loop);
	net_timer_stop(bench.loop, &bench.patience);
	net_timer_stop(bench.loop, &bench.look);
	bench.enough = NULL;
	if (!bench.met && bench.devices) {
		struct buffer text;
		buffer_init(&text, LIMIT_HEAD_BYTES);
		json_print(bench.devices, &text);
		print_error("the last report was %s\n", buffer_text(&text));
		buffer_finish(&text);
	}
	assert_true(bench.met);
}

static inline void start_node_of(const char *binary, const char *fault, const char *backends)
{
	char join[128];
	snprintf(join, sizeof(join), "unix:%s", bench.socket);
	bench.node = fork();
	assert_true(bench.node >= 0);
	if (!bench.node) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fault)
			setenv("EXOGPU_FAULT", fault, 1);
		setenv("VK_DRIVER_FILES", bench.manifest, 1);
		execl(binary, "exogpu", "node", "--join", join, "--data", bench.folder, "--backends", backends,
		      "--log-level", "warning", NULL);
		_exit(127);
	}
}

static inline void start_node(const char *fault, const char *backends)
{
	start_node_of(EXOGPU_BINARY, fault, backends);
}

// Children of the node: its workers.
static inline int count_workers(void)
{
	char path[96], text[1024] = "";
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)bench.node, (int)bench.node);
	FILE *file = fopen(path, "r");
	int count = 0;
	if (file && fgets(text, sizeof(text), file))
		for (const char *at = text; *at; at++)
			count += *at == ' ';
	if (file)
		fclose(file);
	return count;
}

static inline bool no_worker(const struct bench *all)
{
	(void)all;
	return !count_workers();
}

static inline int count_descriptors(void)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)bench.node);
	DIR *entries = opendir(path);
	int count = 0;
	while (entries && readdir(entries))
		count++;
	if (entries)
		closedir(entries);
	return count;
}

static inline void stop_node(void)
{
	int wait_status = 0;
	int64_t began_ms = clock_steady_ms();
	kill(bench.node, SIGTERM);
	while (waitpid(bench.node, &wait_status, WNOHANG) == 0) {
		assert_true(clock_steady_ms() - began_ms < PATIENCE_MS);
		usleep(5000);
	}
	assert_true(WIFEXITED(wait_status));
	assert_int_equal(WEXITSTATUS(wait_status), 0);
	bench.node = 0;
}

static inline const struct json *device_of(const struct bench *all, const char *backend)
{
	for (const struct json *device = json_first(all->devices); device; device = json_next(device))
		if (!strcmp(json_get_string(device, "backend", ""), backend))
			return device;
	return NULL;
}

static inline const char *verification_of(const struct bench *all, const char *backend)
{
	return json_get_string(json_get(device_of(all, backend), "verification"), "state", "");
}

static inline bool cpu_passed(const struct bench *all)
{
	return !strcmp(verification_of(all, "cpu"), "passed");
}

static inline bool vulkan_passed(const struct bench *all)
{
	return !strcmp(verification_of(all, "vulkan"), "passed") &&
	       json_get_bool(device_of(all, "vulkan"), "present", false);
}

static inline void forget(void)
{
	json_destroy(&bench.record);
	json_destroy(&bench.devices);
	json_destroy(&bench.speeds);
	bench.reports = bench.telemetry = 0;
}

// The machine's own llvmpipe manifest is put into the test's folder; false if there is none.
static inline bool install_driver(void)
{
	DIR *entries = opendir("/usr/share/vulkan/icd.d");
	struct dirent *entry;
	char from[512] = "", bytes[4096];
	while (entries && (entry = readdir(entries)))
		if (strstr(entry->d_name, "lvp"))
			snprintf(from, sizeof(from), "/usr/share/vulkan/icd.d/%s", entry->d_name);
	if (entries)
		closedir(entries);
	int in = open(from, O_RDONLY), out = in < 0 ? -1 : open(bench.manifest, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	ssize_t got = in < 0 ? -1 : read(in, bytes, sizeof(bytes));
	bool done = got > 0 && write(out, bytes, (size_t)got) == got;
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
	return done;
}

static inline int make_bench(void **state)
{
	(void)state;
	snprintf(bench.folder, sizeof(bench.folder), "/tmp/exogpu-node-XXXXXX");
	assert_non_null(mkdtemp(bench.folder));
	assert_int_equal(chmod(bench.folder, 0755), 0); // a worker's own user reads the manifest and libraries in it
	snprintf(bench.socket, sizeof(bench.socket), "%s/exogpu.sock", bench.folder);
	snprintf(bench.manifest, sizeof(bench.manifest), "%s/lvp_icd.json", bench.folder);
	assert_int_equal(contract_create(&bench.contract, CONTRACT_NODE, NULL), STATUS_OK);
	return (int)net_loop_create(&bench.loop, NULL);
}

static inline int remove_bench(void **state)
{
	char command[96];
	(void)state;
	net_loop_destroy(&bench.loop);
	contract_destroy(&bench.contract);
	snprintf(command, sizeof(command), "rm -rf %s", bench.folder);
	return system(command);
}

static inline int begin_test(void **state)
{
	(void)state;
	listen_again();
	return 0;
}

static inline int end_test(void **state)
{
	(void)state;
	if (bench.node > 0) {
		kill(bench.node, SIGKILL);
		waitpid(bench.node, NULL, 0);
		bench.node = 0;
	}
	net_close_all(bench.loop, 1001);
	net_listener_destroy(&bench.listener);
	bench.conn = NULL;
	forget();
	return 0;
}

#define NODE_TEST(test) cmocka_unit_test_setup_teardown(test, begin_test, end_test)
