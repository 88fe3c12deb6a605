/* TLS of listeners and of those that dial: who is let in and who is not, and what they are told. The other end is our
 * own, in the same loop, or a thread with OpenSSL or a bare socket. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/ws.h"
#include "tests/common/net/certificates.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVER_URI "exogpu:server:c1"
#define SERVER_NAMES "URI:" SERVER_URI ",DNS:box.example,IP:127.0.0.1"
#define NODE_URI "exogpu:node:n1"

enum { WAIT_MS = 60000 };

struct fixture {
	struct net_loop *loop;
	struct net_tls *tls;
	struct net_listener *listener;
	struct made authority, foreign, server, node;
	struct net_timer timer;
	// What happened.
	struct net_conn *at_server, *at_client;
	struct net_request request;
	size_t asked, opened, messages, answers, server_closed, client_closed, http;
	int server_code, client_code;
	char fault[512], heard[64];
	bool idle_stops; // whatever happens stops the loop
	// The thread.
	pthread_t thread;
	bool running;
	void (*script)(struct fixture *fixture);
	char got[512];
	int alert;
	size_t resumed, key_updates;
};

static void happened(struct fixture *fixture)
{
	if (fixture->loop)
		net_loop_stop(fixture->loop);
}

static void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	struct fixture *fixture = context;
	fixture->request = *request;
	fixture->http++;
	response->status = 404;
	happened(fixture);
}

static bool on_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	struct fixture *fixture = context;
	(void)response;
	fixture->asked++;
	fixture->request = *request;
	*user = fixture;
	return true;
}

static void on_opened(void *user, struct net_conn *conn)
{
	struct fixture *fixture = user;
	fixture->opened++;
	fixture->at_server = conn;
	net_conn_trust(conn);
	happened(fixture);
}

static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fixture *fixture = user;
	(void)binary;
	fixture->messages++;
	net_conn_send_text(conn, (const char *)bytes, length);
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	struct fixture *fixture = user;
	(void)conn;
	fixture->server_closed++;
	fixture->server_code = code;
	fixture->at_server = NULL;
	happened(fixture);
}

static void client_opened(void *user, struct net_conn *conn)
{
	struct fixture *fixture = user;
	fixture->at_client = conn;
	happened(fixture);
}

static void client_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fixture *fixture = user;
	(void)conn, (void)binary;
	fixture->answers++;
	snprintf(fixture->heard, sizeof fixture->heard, "%.*s", (int)length, (const char *)bytes);
	happened(fixture);
}

static void client_failed(void *user, const char *fault)
{
	struct fixture *fixture = user;
	snprintf(fixture->fault, sizeof fixture->fault, "%s", fault);
}

static void client_closed(void *user, struct net_conn *conn, int code)
{
	struct fixture *fixture = user;
	(void)conn;
	fixture->client_closed++;
	fixture->client_code = code;
	fixture->at_client = NULL;
	happened(fixture);
}

static const struct net_handler handler = {
	.http = on_http, .upgrade = on_upgrade, .opened = on_opened, .message = on_message, .closed = on_closed};
static const struct net_handler client_handler = {
	.opened = client_opened, .message = client_message, .failed = client_failed, .closed = client_closed};
static const char *const protocols[] = {"test", NULL};
static const struct net_header headers[] = {{NULL, NULL}};

static void show(struct fixture *fixture, enum net_tls_identity identity, const struct made *made)
{
	struct error error = {0};
	enum status status = net_tls_show(fixture->tls, identity, made->pem, made->key_pem, &error);
	if (status)
		fail_msg("net_tls_show: %s", error.message);
}

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	assert_non_null(fixture);
	fixture->authority = make_authority("the cluster");
	fixture->foreign = make_authority("another");
	fixture->server = make_signed(&fixture->authority, SERVER_NAMES, "serverAuth");
	fixture->node = make_signed(&fixture->authority, "URI:" NODE_URI, "clientAuth");
	assert_int_equal(net_loop_create(&fixture->loop, NULL), STATUS_OK);
	assert_int_equal(net_tls_create(&fixture->tls, fixture->loop, fixture->authority.pem, NULL), STATUS_OK);
	show(fixture, NET_TLS_CLUSTER, &fixture->server);
	struct net_listener_params params = {.address = "127.0.0.1",
					     .ping_s = 20,
					     .silence_s = 30,
					     .subprotocols = protocols,
					     .tls = fixture->tls,
					     .headers = headers,
					     .handler = &handler,
					     .context = fixture};
	assert_int_equal(net_listener_create(&fixture->listener, fixture->loop, &params, NULL), STATUS_OK);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;
	struct net_loop *loop = fixture->loop;
	net_listener_destroy(&fixture->listener);
	net_tls_destroy(&fixture->tls);
	fixture->loop = NULL;
	net_loop_destroy(&loop);
	if (fixture->running)
		pthread_join(fixture->thread, NULL);
	made_finish(&fixture->authority);
	made_finish(&fixture->foreign);
	made_finish(&fixture->server);
	made_finish(&fixture->node);
	free(fixture);
	return 0;
}

static void stop(void *arg)
{
	net_loop_stop(((struct fixture *)arg)->loop);
}

static void run_ms(struct fixture *fixture, int64_t ms)
{
	net_timer_start(fixture->loop, &fixture->timer, ms, stop, fixture);
	net_loop_run(fixture->loop);
	net_timer_stop(fixture->loop, &fixture->timer);
}

// Run until `*count` is `wanted`, a minute at most.
static void wait_for(struct fixture *fixture, const size_t *count, size_t wanted)
{
	int64_t until_ms = clock_steady_ms() + WAIT_MS;
	while (*count < wanted && clock_steady_ms() < until_ms)
		run_ms(fixture, 1000);
	assert_int_equal(*count, wanted);
}

// Dial, and wait for what comes of it. Returns whether it opened; both ends are closed again unless `stay`.
static bool dial_to(struct fixture *fixture, const char *host, const struct net_dial_tls *tls, bool stay)
{
	struct net_dial_params params = {.host = host,
					 .port = net_listener_port(fixture->listener),
					 .path = "/",
					 .subprotocol = "test",
					 .tls = tls,
					 .ping_s = 20,
					 .silence_s = 30,
					 .handler = &client_handler,
					 .user = fixture};
	struct error error = {0};
	size_t closed = fixture->client_closed;
	int64_t until_ms = clock_steady_ms() + WAIT_MS;
	fixture->fault[0] = 0;
	assert_null(fixture->at_client);
	if (net_dial(fixture->loop, &params, &error))
		fail_msg("net_dial: %s", error.message);
	while (!fixture->at_client && fixture->client_closed == closed && clock_steady_ms() < until_ms)
		run_ms(fixture, 1000);
	bool open = fixture->at_client != NULL;
	if (!open)
		assert_int_equal(fixture->client_closed, closed + 1);
	if (!open || stay)
		return open;
	size_t server_closed = fixture->server_closed;
	net_conn_close(fixture->at_client, 1000, "");
	wait_for(fixture, &fixture->client_closed, closed + 1);
	wait_for(fixture, &fixture->server_closed, server_closed + 1);
	return true;
}

static bool dial(struct fixture *fixture, const struct net_dial_tls *tls)
{
	return dial_to(fixture, "127.0.0.1", tls, false);
}

static struct net_dial_tls of_the_cluster(const struct fixture *fixture)
{
	return (struct net_dial_tls){.authority_pem = fixture->authority.pem, .server_uri = SERVER_URI};
}

static void assert_fault(const struct fixture *fixture, const char *part)
{
	if (!strstr(fixture->fault, part))
		fail_msg("the fault is \"%s\", wanted: %s", fixture->fault, part);
}

static void both_ways(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	const uint8_t *sha256 = NULL;
	uint8_t wanted[NET_SHA256_BYTES];
	unsigned length = sizeof wanted;
	tls.chain_pem = fixture->node.pem;
	tls.key_pem = fixture->node.key_pem;
	assert_true(dial_to(fixture, "127.0.0.1", &tls, true));
	assert_true(fixture->request.tls);
	assert_string_equal(fixture->request.certificate.uri, NODE_URI);
	X509_digest(fixture->node.certificate, EVP_sha256(), wanted, &length);
	assert_memory_equal(fixture->request.certificate.sha256, wanted, sizeof wanted);
	assert_true(fixture->request.certificate.not_after_ms > clock_wall_ms() + 3000 * 1000);
	assert_true(fixture->request.certificate.not_after_ms < clock_wall_ms() + 4000 * 1000);
	char serial[NET_SERIAL_BYTES];
	snprintf(serial, sizeof serial, "%lx", ASN1_INTEGER_get(X509_get0_serialNumber(fixture->node.certificate)));
	assert_string_equal(fixture->request.certificate.serial, serial);
	X509_digest(fixture->authority.certificate, EVP_sha256(), wanted, &length);
	assert_string_equal(net_conn_authority(fixture->at_client, &sha256), fixture->authority.pem);
	assert_memory_equal(sha256, wanted, sizeof wanted);
	assert_null(net_conn_authority(fixture->at_server, &sha256));
	assert_null(sha256);
	assert_int_equal(net_conn_send_text(fixture->at_client, "hello", 5), STATUS_OK);
	wait_for(fixture, &fixture->answers, 1);
	assert_string_equal(fixture->heard, "hello");
	net_conn_close(fixture->at_server, 4401, "not you");
	wait_for(fixture, &fixture->client_closed, 1);
	wait_for(fixture, &fixture->server_closed, 1);
	assert_int_equal(fixture->client_code, 4401);
	tls.chain_pem = tls.key_pem = NULL; // none is needed
	assert_true(dial_to(fixture, "127.0.0.1", &tls, true));
	assert_true(fixture->request.tls);
	assert_string_equal(fixture->request.certificate.uri, "");
	net_conn_close(fixture->at_client, 4410, "enough");
	wait_for(fixture, &fixture->client_closed, 2);
	wait_for(fixture, &fixture->server_closed, 2);
	assert_int_equal(fixture->server_code, 4410);
}

// What a node shows that is not from the authority, or no longer, or for something else, ends the handshake.
static void clients_refused(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	const struct made *authority = &fixture->authority;
	struct made bad[] = {
		make_certificate(&(struct making){
			.name = "self", .sans = "URI:" NODE_URI, .usage = "clientAuth", .from_s = -60, .to_s = 600}),
		make_signed(&fixture->foreign, "URI:" NODE_URI, "clientAuth"),
		make_certificate(&(struct making){.issuer = authority,
						  .name = "expired",
						  .sans = "URI:" NODE_URI,
						  .usage = "clientAuth",
						  .from_s = -600,
						  .to_s = -60}),
		make_certificate(&(struct making){.issuer = authority,
						  .name = "early",
						  .sans = "URI:" NODE_URI,
						  .usage = "clientAuth",
						  .from_s = 600,
						  .to_s = 900}),
		make_signed(authority, "URI:" NODE_URI, "serverAuth"),
	};
	const char *faults[] = {"another authority", "another authority", "has expired", "refuses", "refuses"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		tls.chain_pem = bad[i].pem;
		tls.key_pem = bad[i].key_pem;
		assert_false(dial(fixture, &tls));
		assert_fault(fixture, faults[i]);
		made_finish(&bad[i]);
	}
	assert_int_equal(fixture->asked, 0);
	tls.chain_pem = fixture->node.pem;
	tls.key_pem = fixture->node.key_pem;
	assert_true(dial(fixture, &tls));
}

static void show_for(struct fixture *fixture, const struct made *issuer, const char *names, const char *usage)
{
	struct made made = make_signed(issuer, names, usage);
	show(fixture, NET_TLS_CLUSTER, &made);
	made_finish(&made);
}

static void servers_refused(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	const char *tail = "exogpu:server:c1x";
	tls.server_uri = "exogpu:server:c2";
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "not for exogpu:server:c2; it is for: exogpu:server:c1, box.example, 127.0.0.1");
	tls.server_uri = tail;
	assert_false(dial(fixture, &tls));
	tls.server_uri = "exogpu:server:c";
	assert_false(dial(fixture, &tls));
	tls.server_uri = "exogpu:server:";
	assert_true(dial(fixture, &tls));
	show_for(fixture, &fixture->foreign, SERVER_NAMES, "serverAuth");
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "not from this cluster's authority");
	show_for(fixture, &fixture->authority, SERVER_NAMES, "clientAuth");
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "not one for servers");
	show_for(fixture, &fixture->authority, "URI:" NODE_URI, "serverAuth");
	assert_false(dial(fixture, &tls));
	struct made expired = make_certificate(&(struct making){.issuer = &fixture->authority,
								.name = "expired",
								.sans = SERVER_NAMES,
								.usage = "serverAuth",
								.from_s = -7200,
								.to_s = -3600});
	show(fixture, NET_TLS_CLUSTER, &expired);
	made_finish(&expired);
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "expired on 20");
	assert_int_equal(fixture->asked, 1);
}

static void four_kinds_of_trust(void **state)
{
	struct fixture *fixture = *state;
	uint8_t sha256[NET_SHA256_BYTES];
	unsigned length = sizeof sha256;
	X509_digest(fixture->authority.certificate, EVP_sha256(), sha256, &length);
	struct net_dial_tls tls = {.authority_sha256 = sha256, .server_uri = SERVER_URI};
	assert_true(dial(fixture, &tls));
	sha256[31] ^= 1;
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "not from the authority that was asked for");
	X509_digest(fixture->server.certificate, EVP_sha256(), sha256, &length); // the server's own is no authority
	assert_false(dial(fixture, &tls));
	tls = (struct net_dial_tls){.any_authority = true, .server_uri = "exogpu:server:"};
	assert_true(dial_to(fixture, "127.0.0.1", &tls, true));
	assert_string_equal(net_conn_authority(fixture->at_client, NULL), fixture->authority.pem);
	net_conn_close(fixture->at_client, 1000, "");
	wait_for(fixture, &fixture->server_closed, 2);
	wait_for(fixture, &fixture->client_closed, 4);
	tls = (struct net_dial_tls){0};
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "no authority that this system trusts");
	// One that does not send its authority along.
	struct made alone = make_certificate(&(struct making){.issuer = &fixture->authority,
							      .name = "alone",
							      .sans = SERVER_NAMES,
							      .usage = "serverAuth",
							      .from_s = -60,
							      .to_s = 600});
	show(fixture, NET_TLS_CLUSTER, &alone);
	made_finish(&alone);
	tls = (struct net_dial_tls){.any_authority = true, .server_uri = SERVER_URI};
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "does not send its authority");
	tls = of_the_cluster(fixture);
	assert_true(dial(fixture, &tls));
}

static void names_and_addresses(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = {.authority_pem = fixture->authority.pem};
	assert_true(dial(fixture, &tls));
	assert_false(dial_to(fixture, "localhost", &tls, false));
	assert_fault(fixture, "not for localhost");
	show_for(fixture, &fixture->authority, "DNS:localhost,IP:127.0.0.2", "serverAuth");
	assert_true(dial_to(fixture, "localhost", &tls, false));
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "it is for: localhost, 127.0.0.2");
	show_for(fixture, &fixture->authority, NULL, "serverAuth"); // a subject is no name
	assert_false(dial_to(fixture, "somebody", &tls, false));
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "it is for: nobody");
}

static void wrong_params(void **state)
{
	struct fixture *fixture = *state;
	struct error error = {0};
	struct net_dial_tls bad[] = {
		{.authority_pem = "not PEM"},
		{.server_uri = SERVER_URI}, // under whose authority?
		{.authority_pem = fixture->authority.pem,
		 .chain_pem = fixture->node.pem,
		 .key_pem = fixture->server.key_pem},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct net_dial_params params = {.host = "127.0.0.1",
						 .port = 1,
						 .path = "/",
						 .tls = &bad[i],
						 .handler = &client_handler,
						 .user = fixture};
		assert_int_equal(net_dial(fixture->loop, &params, &error), STATUS_INVALID_PARAMS);
	}
	assert_int_equal(fixture->client_closed, 0);
	struct net_tls *tls = NULL;
	assert_int_equal(net_tls_create(&tls, fixture->loop, fixture->node.pem, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(net_tls_create(&tls, fixture->loop, "", NULL), STATUS_INVALID_PARAMS);
	assert_null(tls);
	assert_int_equal(net_tls_show(fixture->tls, NET_TLS_PUBLIC, fixture->node.pem, fixture->server.key_pem, NULL),
			 STATUS_INVALID_PARAMS);
	assert_int_equal(net_tls_show(fixture->tls, NET_TLS_PUBLIC, "", fixture->server.key_pem, NULL),
			 STATUS_INVALID_PARAMS);
	assert_int_equal(net_tls_show(fixture->tls, NET_TLS_PUBLIC, fixture->server.pem, "", NULL),
			 STATUS_INVALID_PARAMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(both_ways, set_up, tear_down),
		cmocka_unit_test_setup_teardown(clients_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(servers_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(four_kinds_of_trust, set_up, tear_down),
		cmocka_unit_test_setup_teardown(names_and_addresses, set_up, tear_down),
		cmocka_unit_test_setup_teardown(wrong_params, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
