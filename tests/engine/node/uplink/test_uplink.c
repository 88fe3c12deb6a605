/* The node's connection to a server on another machine, and the files that say who it is: a renewal that is taken,
 * those that are not, a certificate that has expired, a removal, a server that is another. The server is in the same
 * loop and signs what the test tells it to. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/message.h"
#include "engine/node/uplink/uplink.h"
#include "server/security/certificates/certificate.h"
#include "tests/common/net/certificates.h"
#include "tests/server/store/support.h"

#include <openssl/pem.h>

#define SERVER_URI "exogpu:server:clu_1"
#define NODE_ID "node_1"
#define DAY_MS ((int64_t)24 * 3600 * 1000)

struct world {
	struct support *support;
	struct contract *contract;
	struct made authority, foreign, server;
	struct net_tls *tls;
	struct net_listener *listener;
	struct net_conn *at_server;
	struct credentials credentials;
	struct uplink *uplink;
	char folder[256];
	int registered, renewals, closed, gone, upgrades;
	enum status gone_with;
	char serial[NET_SERIAL_BYTES]; // of the certificate that was shown last
	// How the server grants: by whom, and to which node.
	const struct made *by;
	const char *to;
};

static struct made make_cluster(const char *name)
{
	struct made made = {0};
	struct buffer text;
	struct error error = {0};
	buffer_init(&text, 65536);
	if (certificate_make_key(&made.key, &error) ||
	    certificate_make(&made.certificate,
			     &(struct certificate_params){.kind = CERTIFICATE_AUTHORITY,
							  .issuer_key = made.key,
							  .key = made.key,
							  .subject = name,
							  .uri = "exogpu:authority:clu_1",
							  .not_before_ms = clock_wall_ms() - 100 * DAY_MS,
							  .not_after_ms = clock_wall_ms() + 100 * DAY_MS},
			     &error) ||
	    certificate_print(made.certificate, &text))
		fail_msg("%s", error.message);
	made.pem = strdup(buffer_text(&text));
	buffer_finish(&text);
	return made;
}

// A certificate for `key`, valid from so many days ago for so many days.
static char *sign(const struct made *issuer, EVP_PKEY *key, const char *node_id, const int64_t days[2])
{
	char uri[128];
	X509 *certificate;
	struct buffer text;
	struct error error = {0};
	int64_t now_ms = clock_wall_ms();
	snprintf(uri, sizeof uri, "exogpu:node:%s", node_id);
	buffer_init(&text, 65536);
	if (certificate_make(&certificate,
			     &(struct certificate_params){.kind = CERTIFICATE_NODE,
							  .issuer = issuer->certificate,
							  .issuer_key = issuer->key,
							  .key = key,
							  .subject = node_id,
							  .uri = uri,
							  .not_before_ms = now_ms - days[0] * DAY_MS,
							  .not_after_ms = now_ms + (days[1] - days[0]) * DAY_MS},
			     &error) ||
	    certificate_print(certificate, &text))
		fail_msg("%s", error.message);
	char *pem = strdup(buffer_text(&text));
	X509_free(certificate);
	buffer_finish(&text);
	return pem;
}

// ---- the server ----

static void answer(struct net_conn *conn, const struct json *id, struct json *result)
{
	struct buffer text;
	buffer_init(&text, 1 << 20);
	assert_int_equal(message_print_result(&text, id, result), STATUS_OK);
	net_conn_send_text(conn, buffer_text(&text), text.length);
	buffer_finish(&text);
}

static void renew(struct world *world, struct net_conn *conn, const struct message *message)
{
	EVP_PKEY *key;
	struct error error = {0};
	const char *request = json_get_string(message->params, "request", "");
	struct json *result = json_new_object(), *grant = json_new_object();
	if (certificate_parse_request(&key, request, strlen(request), &error))
		fail_msg("%s", error.message);
	char *pem = sign(world->by, key, world->to, (const int64_t[]){0, 30});
	json_set_string(grant, "certificate", pem);
	json_set_string(grant, "authority", world->by->pem);
	json_set_string(grant, "server_uri", SERVER_URI);
	json_set(result, "grant", grant);
	world->renewals++;
	answer(conn, message->id, result);
	EVP_PKEY_free(key);
	free(pem);
}

static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct world *world = user;
	struct message message;
	assert_false(binary);
	assert_int_equal(message_decode_text(&message, (const char *)bytes, length, NULL), STATUS_OK);
	if (message.method && !strcmp(message.method, "node.register")) {
		struct json *result = json_new_object();
		json_set_integer(result, "protocol", 1);
		json_set_bool(result, "watched", false);
		world->registered++;
		answer(conn, message.id, result);
	} else if (message.method && !strcmp(message.method, "node.renew")) {
		renew(world, conn, &message);
	} else if (message.id && message.method) {
		answer(conn, message.id, json_new_object());
	}
	message_finish(&message);
}

static void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	(void)context, (void)request;
	response->status = 404;
}

static bool on_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	struct world *world = context;
	(void)response;
	assert_string_equal(request->certificate.uri, "exogpu:node:" NODE_ID);
	snprintf(world->serial, sizeof world->serial, "%s", request->certificate.serial);
	world->upgrades++;
	*user = world;
	return true;
}

static void on_opened(void *user, struct net_conn *conn)
{
	struct world *world = user;
	world->at_server = conn;
	net_conn_trust(conn);
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	struct world *world = user;
	(void)conn, (void)code;
	world->at_server = NULL;
	world->closed++;
}

static const struct net_handler handler = {
	.http = on_http, .upgrade = on_upgrade, .opened = on_opened, .message = on_message, .closed = on_closed};

static const char *const subprotocols[] = {"exogpu.node.v1", NULL};

// ---- the node ----

static struct json *build_record(void *arg)
{
	(void)arg;
	return json_new_object();
}

static bool all_found(void *arg)
{
	(void)arg;
	return true;
}

static struct json *build_devices(void *arg)
{
	(void)arg;
	return json_new_array();
}

static void set_watched(void *arg, bool watched)
{
	(void)arg, (void)watched;
}

static void serve(void *arg, struct uplink_call *call)
{
	(void)arg;
	uplink_answer(&call, json_new_object(), NULL);
}

static const struct uplink_method served[] = {{"device.verify", serve}};

static void lost(void *arg)
{
	(void)arg;
}

static void fenced(void *arg, bool fenced_now)
{
	(void)arg, (void)fenced_now;
}

static void gone(void *arg, enum status status, const char *why)
{
	struct world *world = arg;
	assert_true(why[0]);
	world->gone++;
	world->gone_with = status;
}

// It has joined `days[0]` days ago, with a certificate for days[1] days.
static void join_as(struct world *world, const int64_t days[2])
{
	struct credentials_request request;
	struct error error = {0};
	char address[64];
	if (credentials_load(&world->credentials, world->folder, &error) ||
	    credentials_ask(&world->credentials, true, &request, &error))
		fail_msg("%s", error.message);
	BIO *bio = BIO_new_mem_buf(request.key_pem, -1);
	EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
	assert_non_null(key);
	char *pem = sign(&world->authority, key, NODE_ID, days);
	uint8_t digest[32];
	assert_int_equal(X509_digest(world->authority.certificate, EVP_sha256(), digest, NULL), 1);
	snprintf(address, sizeof address, "127.0.0.1:%d", net_listener_port(world->listener));
	const struct credentials_grant grant = {.certificate = pem,
						.authority = world->authority.pem,
						.server_uri = SERVER_URI,
						.address = address,
						.node_id = NODE_ID,
						.authority_sha256 = digest,
						.key_pem = request.key_pem};
	if (credentials_take(&world->credentials, &grant, &error))
		fail_msg("%s (%s)", error.message, error.hint);
	assert_true(world->credentials.joined);
	free(pem);
	EVP_PKEY_free(key);
	BIO_free(bio);
	credentials_request_finish(&request);
}

static void start_uplink(struct world *world)
{
	struct error error = {0};
	const struct uplink_params params = {.loop = world->support->loop,
					     .contract = world->contract,
					     .host = "127.0.0.1",
					     .port = net_listener_port(world->listener),
					     .credentials = &world->credentials,
					     .node_id = NODE_ID,
					     .record = build_record,
					     .devices = build_devices,
					     .complete = all_found,
					     .watched = set_watched,
					     .methods = served,
					     .method_count = sizeof served / sizeof *served,
					     .lost = lost,
					     .fenced = fenced,
					     .gone = gone,
					     .arg = world};
	if (uplink_create(&world->uplink, &params, &error))
		fail_msg("%s", error.message);
	assert_true(uplink_remote(world->uplink));
}

static void open_world(struct world *world, struct support *support)
{
	struct error error = {0};
	*world = (struct world){.support = support, .to = NODE_ID};
	snprintf(world->folder, sizeof world->folder, "%s/tls", support->directory);
	world->authority = make_cluster("cluster");
	world->foreign = make_cluster("another");
	world->server = make_signed(&world->authority, "URI:" SERVER_URI ",IP:127.0.0.1", "serverAuth");
	world->by = &world->authority;
	if (contract_create(&world->contract, CONTRACT_NODE, &error) ||
	    net_tls_create(&world->tls, support->loop, world->authority.pem, &error) ||
	    net_tls_show(world->tls, NET_TLS_CLUSTER, world->server.pem, world->server.key_pem, &error) ||
	    net_listener_create(&world->listener, support->loop,
				&(struct net_listener_params){.address = "127.0.0.1",
							      .ping_s = 20,
							      .silence_s = 30,
							      .tls = world->tls,
							      .subprotocols = subprotocols,
							      .handler = &handler,
							      .context = world},
				&error))
		fail_msg("%s", error.message);
}

static void close_world(struct world *world)
{
	net_close_all(world->support->loop, 1001);
	uplink_destroy(&world->uplink);
	credentials_finish(&world->credentials);
	net_listener_destroy(&world->listener);
	net_tls_destroy(&world->tls);
	contract_destroy(&world->contract);
	made_finish(&world->authority);
	made_finish(&world->foreign);
	made_finish(&world->server);
}

// ---- the tests ----

static void the_certificate_is_renewed_and_used(void **state)
{
	struct world world;
	struct credentials again;
	open_world(&world, *state);
	join_as(&world, (const int64_t[]){25, 30}); // past two thirds of its life
	char *old = strdup(world.credentials.chain_pem);
	start_uplink(&world);
	support_run_until(world.support->loop, &world.renewals, 1);
	char first[NET_SERIAL_BYTES];
	memcpy(first, world.serial, sizeof first);
	net_conn_close(world.at_server, 1001, "the server restarts");
	support_run_until(world.support->loop, &world.registered, 2);
	assert_int_equal(world.gone, 0);
	assert_string_not_equal(world.serial, first);
	assert_string_not_equal(world.credentials.chain_pem, old);
	assert_true(world.credentials.not_after_ms > clock_wall_ms() + 29 * DAY_MS);
	assert_int_equal(world.renewals, 1); // the new one is young
	struct error error = {0};
	assert_int_equal(credentials_load(&again, world.folder, &error), STATUS_OK);
	assert_true(again.joined); // on disk too
	assert_string_equal(again.chain_pem, world.credentials.chain_pem);
	credentials_finish(&again);
	free(old);
	close_world(&world);
}

static void what_is_granted_wrongly_is_not_taken(void **state)
{
	struct world world;
	open_world(&world, *state);
	join_as(&world, (const int64_t[]){25, 30});
	char *old = strdup(world.credentials.chain_pem);
	world.by = &world.foreign; // another authority takes the node over
	start_uplink(&world);
	support_run_until(world.support->loop, &world.renewals, 1);
	net_conn_close(world.at_server, 1000, "");
	world.by = &world.authority;
	world.to = "node_2"; // a certificate of somebody else
	support_run_until(world.support->loop, &world.renewals, 2);
	net_conn_close(world.at_server, 1000, "");
	support_run_until(world.support->loop, &world.registered, 3);
	assert_true(world.credentials.joined);
	assert_string_equal(world.credentials.chain_pem, old);
	free(old);
	close_world(&world);
}

static void a_removed_node_is_told(void **state)
{
	struct world world;
	open_world(&world, *state);
	join_as(&world, (const int64_t[]){1, 30});
	start_uplink(&world);
	support_run_until(world.support->loop, &world.registered, 1);
	net_conn_close(world.at_server, 4403, "removed");
	support_run_until(world.support->loop, &world.gone, 1);
	assert_int_equal(world.gone_with, STATUS_FORBIDDEN);
	assert_int_equal(world.renewals, 0);
	credentials_drop(&world.credentials);
	assert_false(world.credentials.joined);
	credentials_finish(&world.credentials);
	assert_int_equal(credentials_load(&world.credentials, world.folder, NULL), STATUS_OK);
	assert_false(world.credentials.joined);
	assert_true(world.credentials.address[0]); // it still knows of whom it was
	close_world(&world);
}

static void an_expired_certificate_is_not_shown(void **state)
{
	struct world world;
	open_world(&world, *state);
	join_as(&world, (const int64_t[]){31, 30});
	start_uplink(&world);
	support_run_until(world.support->loop, &world.gone, 1);
	assert_int_equal(world.gone_with, STATUS_UNAUTHENTICATED);
	assert_int_equal(world.upgrades, 0);
	close_world(&world);
}

static int ticks;
static void tick(void *arg)
{
	(void)arg;
	ticks++;
}

static void another_server_is_not_taken_for_the_own(void **state)
{
	struct world world;
	struct net_timer timer = {0};
	struct error error = {0};
	open_world(&world, *state);
	join_as(&world, (const int64_t[]){1, 30});
	struct made other = make_signed(&world.authority, "URI:exogpu:server:clu_2,IP:127.0.0.1", "serverAuth");
	assert_int_equal(net_tls_show(world.tls, NET_TLS_CLUSTER, other.pem, other.key_pem, &error), STATUS_OK);
	start_uplink(&world);
	ticks = 0;
	net_timer_start(world.support->loop, &timer, 1000, tick, NULL);
	support_run_until(world.support->loop, &ticks, 1);
	assert_int_equal(world.upgrades, 0);
	assert_int_equal(world.gone, 0); // it goes on trying: the address may be wrong for a while
	made_finish(&other);
	close_world(&world);
}

static void damaged_files_are_not_believed(void **state)
{
	struct world world;
	char path[300];
	struct credentials read;
	static const char *const files[] = {"node.pem", "authority.pem", "server"};
	log_set_level(LOG_ERROR);
	open_world(&world, *state);
	join_as(&world, (const int64_t[]){1, 30});
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		char text[8192];
		snprintf(path, sizeof path, "%s/%s", world.folder, files[i]);
		FILE *file = fopen(path, "r+e");
		assert_non_null(file);
		size_t length = fread(text, 1, sizeof text - 1, file);
		for (size_t cut = 0; cut < length; cut += length / 20 + 1) { // a part of it
			assert_int_equal(ftruncate(fileno(file), (off_t)cut), 0);
			assert_int_equal(credentials_load(&read, world.folder, NULL), STATUS_OK);
			assert_false(read.joined);
			credentials_finish(&read);
			rewind(file);
			assert_int_equal(fwrite(text, 1, length, file), length);
			fflush(file);
		}
		fclose(file);
		assert_int_equal(credentials_load(&read, world.folder, NULL), STATUS_OK);
		assert_true(read.joined); // whole again
		credentials_finish(&read);
	}
	close_world(&world);
}

static void a_key_is_made_once(void **state)
{
	struct support *support = *state;
	struct credentials credentials;
	struct credentials_request first, second, apart;
	char folder[256];
	snprintf(folder, sizeof folder, "%s/tls", support->directory);
	assert_int_equal(credentials_load(&credentials, folder, NULL), STATUS_OK);
	assert_int_equal(credentials_ask(&credentials, true, &first, NULL), STATUS_OK);
	assert_int_equal(credentials_ask(&credentials, true, &second, NULL), STATUS_OK);
	assert_int_equal(credentials_ask(&credentials, false, &apart, NULL), STATUS_OK);
	assert_int_equal(first.spki_bytes, second.spki_bytes);
	assert_memory_equal(first.spki, second.spki, first.spki_bytes);
	assert_memory_not_equal(first.spki, apart.spki, first.spki_bytes);
	credentials_request_finish(&apart);
	credentials_request_finish(&second);
	credentials_request_finish(&first);
	credentials_finish(&credentials);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
	const struct CMUnitTest tests[] = {
		TEST(the_certificate_is_renewed_and_used),
		TEST(what_is_granted_wrongly_is_not_taken),
		TEST(a_removed_node_is_told),
		TEST(an_expired_certificate_is_not_shown),
		TEST(another_server_is_not_taken_for_the_own),
		TEST(damaged_files_are_not_believed),
		TEST(a_key_is_made_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
