/* The lease: it runs out once nothing was heard for LIMIT_LEASE_MS, and goes on with the next byte. The connection is
 * one without pings, so that what is heard is what the test says. */
#include "common/base/clock.h"
#include "engine/node/uplink/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static struct net_loop *loop;
static struct net_conn *server_conn, *node_conn;
static struct net_timer say, patience;
static struct lease lease;
static int fences, lifts;
static int64_t heard_ms, fenced_ms;

static void changed(void *arg, bool fenced)
{
	assert_ptr_equal(arg, &lease);
	fences += fenced;
	lifts += !fenced;
	fenced_ms = clock_steady_ms();
	net_loop_stop(loop);
}

static void speak(void *arg)
{
	(void)arg;
	net_conn_send_text(server_conn, "x", 1);
}

static void out_of_patience(void *arg)
{
	(void)arg;
	net_loop_stop(loop);
}

static void run(int64_t patience_ms)
{
	net_timer_start(loop, &patience, patience_ms, out_of_patience, NULL);
	net_loop_run(loop);
	net_timer_stop(loop, &patience);
}

static bool upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)request, (void)response;
	*user = context;
	return true;
}

static void server_opened(void *user, struct net_conn *conn)
{
	(void)user;
	server_conn = conn;
}

static void node_opened(void *user, struct net_conn *conn)
{
	(void)user;
	node_conn = conn;
	heard_ms = clock_steady_ms();
	lease_begin(&lease, conn);
	net_loop_stop(loop);
}

static void message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	(void)user, (void)conn, (void)bytes, (void)length, (void)binary;
	heard_ms = clock_steady_ms();
	lease_heard(&lease);
}

static void closed(void *user, struct net_conn *conn, int code)
{
	(void)user, (void)conn, (void)code;
}

static void it_runs_out_and_goes_on(void **state)
{
	static const struct net_handler at_server = {
		.upgrade = upgrade, .opened = server_opened, .message = message, .closed = closed};
	static const struct net_handler at_node = {.opened = node_opened, .message = message, .closed = closed};
	static const char *const subprotocols[] = {"exogpu.node.v1", NULL};
	char folder[] = "/tmp/exogpu-lease-XXXXXX", path[64];
	struct net_listener *listener;
	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/server", folder);
	assert_int_equal(net_loop_create(&loop, NULL), STATUS_OK);
	const struct net_listener_params params = {
		.socket_path = path, .subprotocols = subprotocols, .handler = &at_server};
	assert_int_equal(net_listener_create(&listener, loop, &params, NULL), STATUS_OK);
	lease = (struct lease){.loop = loop, .changed = changed, .arg = &lease};
	const struct net_dial_params dial = {
		.socket_path = path, .path = "/node", .subprotocol = "exogpu.node.v1", .handler = &at_node};
	assert_int_equal(net_dial(loop, &dial, NULL), STATUS_OK);
	run(60000);
	assert_non_null(node_conn);

	// A word before it runs out renews it in full.
	net_timer_start(loop, &say, 2000, speak, NULL);
	run(20000);
	print_message("fenced %lld ms after the last byte\n", (long long)(fenced_ms - heard_ms));
	assert_int_equal(fences, 1);
	assert_int_equal(lifts, 0);
	assert_true(lease.fenced && fenced_ms - heard_ms >= LIMIT_LEASE_MS - 1);

	speak(NULL);
	run(20000);
	assert_int_equal(lifts, 1);
	assert_false(lease.fenced);

	lease_end(&lease);
	lease_end(&lease);
	assert_int_equal(fences + lifts, 2);
	net_close_all(loop, 1001);
	net_listener_destroy(&listener);
	net_loop_destroy(&loop);
	unlink(path);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_runs_out_and_goes_on)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
