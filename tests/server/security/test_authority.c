/* The authority over a real store: made, kept, damaged, renewed; nodes' certificates; the operator's own. */
#include "server/security/certificates/authority_inside.h"
#include "tests/server/store/support.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

static int64_t now_ms;

static int64_t told_time(void)
{
	return now_ms;
}

struct world {
	struct support *support;
	struct store *store;
	struct audit *audit;
	struct authority *authority;
	struct authority_params params;
	int entries;
	char actions[512]; // of the entries, in their order
};

static void on_entry(void *context, struct json *entry)
{
	struct world *world = context;
	size_t used = strlen(world->actions);
	snprintf(world->actions + used, sizeof(world->actions) - used, "%s %s\n", json_get_string(entry, "action", ""),
		 json_get_string(entry, "node_id", "-"));
	world->entries++;
	json_destroy(&entry);
}

static enum status try_open(struct world *world, struct error *error)
{
	*error = (struct error){0};
	world->entries = 0;
	world->actions[0] = 0;
	const struct store_params store = {.loop = world->support->loop, .directory = world->support->directory};
	const struct audit_params audit = {.loop = world->support->loop, .publish = on_entry, .context = world};
	if (store_create(&world->store, &store, error))
		fail_msg("%s", error->message);
	struct audit_params with_store = audit;
	with_store.store = world->store;
	if (audit_create(&world->audit, &with_store, error))
		fail_msg("%s", error->message);
	world->params.loop = world->support->loop;
	world->params.store = world->store;
	world->params.audit = world->audit;
	world->params.directory = world->support->directory;
	world->params.cluster_id = "clu_1";
	world->params.cluster_name = "polaris";
	world->params.now_ms = told_time;
	return authority_create(&world->authority, &world->params, error);
}

static void open_world(struct world *world, struct support *support)
{
	struct error error;
	if (!world->support)
		now_ms = clock_wall_ms();
	world->support = support;
	if (try_open(world, &error))
		fail_msg("%s (%s)", error.message, error.hint);
}

static void close_world(struct world *world)
{
	authority_destroy(&world->authority);
	audit_destroy(&world->audit);
	store_destroy(&world->store);
}

static void reopen(struct world *world)
{
	close_world(world);
	open_world(world, world->support);
}

static void commit(struct world *world, struct store_batch **batch)
{
	struct error error = {0};
	if (store_commit_wait(world->store, batch, &error))
		fail_msg("%s", error.message);
}

static void look_for_renewal(void *context)
{
	static struct net_timer timer;
	struct world *world = context;
	if (world->authority->next.certificate)
		net_timer_start(world->support->loop, &timer, 1, look_for_renewal, world);
	else
		net_loop_stop(world->support->loop);
}

// The renewal that is under way, to its end.
static void finish_renewal(struct world *world)
{
	struct net_timer timer = {0};
	assert_non_null(world->authority->next.certificate);
	net_timer_start(world->support->loop, &timer, 0, look_for_renewal, world);
	net_loop_run(world->support->loop);
}

static char *tls_path(const struct world *world, const char *name)
{
	static char path[512];
	snprintf(path, sizeof(path), "%s/tls%s%s", world->support->directory, name[0] ? "/" : "", name);
	return path;
}

static unsigned mode_of(const char *path)
{
	struct stat file;
	assert_int_equal(lstat(path, &file), 0);
	return file.st_mode & 07777;
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void keep_text(const char *path, char text[8192])
{
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	text[fread(text, 1, 8191, file)] = 0;
	fclose(file);
}

static void first_start_makes_what_is_missing(void **state)
{
	struct world world = {0};
	uint8_t before[32];
	struct certificate_facts server;
	open_world(&world, *state);
	assert_int_equal(mode_of(tls_path(&world, "")), 0700);
	static const char *const files[] = {"authority.pem", "authority.key", "server.pem", "server.key"};
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(mode_of(tls_path(&world, files[i])), 0600);
	const struct authority *authority = world.authority;
	assert_int_equal(X509_check_ca(authority->certificate), 1);
	assert_true(authority->facts.not_after_ms - now_ms > 9 * 365 * AUTHORITY_DAY_MS);
	assert_string_equal(authority_server_uri(authority), "exogpu:server:clu_1");
	assert_int_equal(X509_check_host(authority->server.certificate, "localhost", 0, 0, NULL), 1);
	assert_int_equal(X509_check_ip_asc(authority->server.certificate, "127.0.0.1", 0), 1);
	assert_int_equal(X509_check_ip_asc(authority->server.certificate, "::1", 0), 1);
	assert_true(authority_knows_name(authority, "localhost"));
	assert_false(authority_knows_name(authority, "evil.example"));
	assert_string_equal(strstr(authority_fingerprint(authority), "SHA256:"), authority_fingerprint(authority));

	memcpy(before, authority_sha256(authority), 32);
	server = authority->server.facts;
	reopen(&world);
	assert_memory_equal(authority_sha256(world.authority), before, 32);
	assert_string_equal(world.authority->server.facts.sha256, server.sha256);

	// Others could read a key: it is private again.
	chmod(tls_path(&world, "authority.key"), 0644);
	reopen(&world);
	assert_int_equal(mode_of(tls_path(&world, "authority.key")), 0600);
	close_world(&world);
}

static void a_damaged_authority_ends_the_start(void **state)
{
	static const struct {
		const char *name, *text; // text NULL: the file is removed
		const char *said;
	} faults[] = {
		{"authority.key", NULL, "authority.key is missing"},
		{"authority.key", "", "authority.key holds no key"},
		{"authority.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "holds no key"},
		{"authority.pem", "nonsense", "authority.pem holds no certificate"},
		{"authority.pem", "", "authority.pem holds no certificate"},
	};
	struct world world = {0};
	struct error error;
	char kept[8192];
	open_world(&world, *state);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		close_world(&world);
		keep_text(tls_path(&world, faults[i].name), kept);
		if (faults[i].text)
			write_text(tls_path(&world, faults[i].name), faults[i].text);
		else
			unlink(tls_path(&world, faults[i].name));
		assert_int_equal(try_open(&world, &error), STATUS_UNAVAILABLE);
		assert_null(world.authority);
		if (!strstr(error.message, faults[i].said))
			fail_msg("said \"%s\" instead of \"%s\"", error.message, faults[i].said);
		assert_non_null(strstr(error.hint, "copy"));
		close_world(&world);
		write_text(tls_path(&world, faults[i].name), kept);
		open_world(&world, *state);
	}

	// A key that is another's.
	EVP_PKEY *key = EVP_EC_gen("P-256");
	struct buffer text;
	buffer_init(&text, 8192);
	assert_int_equal(certificate_print_key(key, &text), STATUS_OK);
	close_world(&world);
	write_text(tls_path(&world, "authority.key"), buffer_text(&text));
	assert_int_equal(try_open(&world, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "not the key"));
	close_world(&world);
	EVP_PKEY_free(key);
	buffer_finish(&text);

	// Too long to be one, and not a file at all.
	truncate(tls_path(&world, "authority.pem"), LIMIT_CERTIFICATE_FILE_BYTES + 1);
	assert_int_equal(try_open(&world, &error), STATUS_LIMIT_EXCEEDED);
	close_world(&world);
	unlink(tls_path(&world, "authority.pem"));
	assert_int_equal(symlink("/etc/hostname", tls_path(&world, "authority.pem")), 0);
	assert_int_equal(try_open(&world, &error), STATUS_FORBIDDEN);
	close_world(&world);

	// A key alone is what a first start leaves that was cut short.
	unlink(tls_path(&world, "authority.pem"));
	open_world(&world, *state);
	close_world(&world);
}

static void a_damaged_server_certificate_is_made_anew(void **state)
{
	static const char *const names[] = {"server.pem", "server.key"};
	struct world world = {0};
	uint8_t before[32];
	open_world(&world, *state);
	memcpy(before, authority_sha256(world.authority), 32);
	for (int i = 0; i < 4; i++) {
		char sha256[65];
		memcpy(sha256, world.authority->server.facts.sha256, 65);
		close_world(&world);
		if (i < 2)
			write_text(tls_path(&world, names[i]), "nonsense");
		else
			unlink(tls_path(&world, names[i - 2]));
		open_world(&world, *state);
		assert_memory_equal(authority_sha256(world.authority), before, 32);
		assert_string_not_equal(world.authority->server.facts.sha256, sha256);
		reopen(&world);
	}
	// Of another cluster.
	char sha256[65];
	memcpy(sha256, world.authority->server.facts.sha256, 65);
	close_world(&world);
	unlink(tls_path(&world, "authority.pem"));
	unlink(tls_path(&world, "authority.key"));
	open_world(&world, *state);
	assert_string_not_equal(world.authority->server.facts.sha256, sha256);
	close_world(&world);
}

static void renewal_comes_at_two_thirds_of_a_life(void **state)
{
	struct world world = {0};
	open_world(&world, *state);
	const struct certificate_facts first = world.authority->server.facts;
	assert_in_range(first.not_after_ms - first.not_before_ms, 89 * AUTHORITY_DAY_MS, 91 * AUTHORITY_DAY_MS);
	support_run_until(world.support->loop, &world.entries, 2); // the authority's and the server's
	now_ms += 59 * AUTHORITY_DAY_MS;
	authority_check(world.authority);
	assert_null(world.authority->next.certificate);
	assert_string_equal(world.authority->server.facts.sha256, first.sha256);
	now_ms += 2 * AUTHORITY_DAY_MS;
	authority_check(world.authority);
	authority_check(world.authority);                                        // one is under way: not another
	assert_string_equal(world.authority->server.facts.sha256, first.sha256); // not before its entry is on disk
	finish_renewal(&world);
	assert_string_not_equal(world.authority->server.facts.sha256, first.sha256);
	assert_true(world.authority->server.facts.not_after_ms > first.not_after_ms);
	assert_string_equal(world.actions, "certificate.issue -\ncertificate.issue -\ncertificate.renew -\n");
	const struct certificate_facts second = world.authority->server.facts;
	reopen(&world);
	assert_string_equal(world.authority->server.facts.sha256, second.sha256);

	// A server that slept through its certificate's end.
	now_ms += 200 * AUTHORITY_DAY_MS;
	reopen(&world);
	assert_string_not_equal(world.authority->server.facts.sha256, second.sha256);
	assert_true(world.authority->server.facts.not_after_ms > now_ms);
	close_world(&world);
}

static void names_and_addresses(void **state)
{
	struct world world = {0};
	struct error error;
	world.params.names = "GPU.example.org,10.9.8.7,fd00:0::5";
	open_world(&world, *state);
	char sha256[65];
	memcpy(sha256, world.authority->server.facts.sha256, 65);
	assert_true(authority_knows_name(world.authority, "gpu.example.org"));
	assert_int_equal(X509_check_ip_asc(world.authority->server.certificate, "10.9.8.7", 0), 1);
	assert_int_equal(X509_check_ip_asc(world.authority->server.certificate, "fd00::5", 0), 1);
	assert_string_equal(authority_reachable_name(world.authority), "gpu.example.org");
	reopen(&world);
	assert_string_equal(world.authority->server.facts.sha256, sha256);

	// Fewer is no reason for a new one; one more is.
	close_world(&world);
	world.params.names = "GPU.example.org";
	open_world(&world, *state);
	assert_string_equal(world.authority->server.facts.sha256, sha256);
	close_world(&world);
	world.params.names = "other.example.org";
	open_world(&world, *state);
	assert_string_not_equal(world.authority->server.facts.sha256, sha256);
	assert_false(authority_knows_name(world.authority, "gpu.example.org"));

	// The same while it runs.
	memcpy(sha256, world.authority->server.facts.sha256, 65);
	world.authority->params.names = "third.example.org";
	authority_check(world.authority);
	finish_renewal(&world);
	assert_string_not_equal(world.authority->server.facts.sha256, sha256);
	assert_true(authority_knows_name(world.authority, "third.example.org"));

	static const char *const wrong[] = {"a b", "-x", "a,,b", "*.example.org", "a/b", "name:80", "a\nb", "é"};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		close_world(&world);
		world.params.names = wrong[i];
		if (try_open(&world, &error) != STATUS_INVALID_PARAMS)
			fail_msg("\"%s\" was taken", wrong[i]);
		assert_true(error.hint[0]);
	}
	close_world(&world);
}

static void too_many_names_are_cut(void **state)
{
	static char list[LIMIT_CERTIFICATE_NAMES * 40];
	struct world world = {0};
	for (int i = 0; i < 2 * LIMIT_CERTIFICATE_NAMES; i++) {
		size_t used = strlen(list);
		snprintf(list + used, sizeof(list) - used, "%sname-%d.example", i ? "," : "", i);
	}
	world.params.names = list;
	open_world(&world, *state);
	assert_int_equal(world.authority->names.count, LIMIT_CERTIFICATE_NAMES);
	authority_check(world.authority);
	assert_null(world.authority->next.certificate);
	close_world(&world);
}

// A request, signed by `key`; freed by the caller.
static char *make_request(EVP_PKEY *key)
{
	X509_REQ *request = X509_REQ_new();
	X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(request), "CN", MBSTRING_ASC,
				   (const unsigned char *)"exogpu:server:clu_1", -1, -1, 0);
	assert_int_equal(X509_REQ_set_pubkey(request, key), 1);
	assert_true(X509_REQ_sign(request, key, EVP_sha256()) > 0);
	BIO *bio = BIO_new(BIO_s_mem());
	char *bytes;
	PEM_write_bio_X509_REQ(bio, request);
	long length = BIO_get_mem_data(bio, &bytes);
	char *text = buffer_copy_text(bytes, (size_t)length);
	BIO_free(bio);
	X509_REQ_free(request);
	return text;
}

static X509 *issue(struct world *world, const char *node_id)
{
	struct error error = {0};
	struct store_batch *batch;
	char *pem;
	X509 *certificate;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	char *request = make_request(key);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	if (authority_issue(world->authority, node_id, request, batch, &pem, &error))
		fail_msg("%s", error.message);
	commit(world, &batch);
	assert_int_equal(certificate_parse(&certificate, pem, strlen(pem), &error), STATUS_OK);
	assert_int_equal(X509_check_private_key(certificate, key), 1);
	authority_settle(world->authority, pem, true);
	free(pem);
	free(request);
	EVP_PKEY_free(key);
	return certificate;
}

static struct net_certificate shown(X509 *certificate)
{
	struct net_certificate net = {0};
	struct certificate_facts facts;
	certificate_describe(certificate, &facts);
	certificate_uri(certificate, net.uri, sizeof(net.uri));
	snprintf(net.serial, sizeof(net.serial), "%.47s", facts.serial);
	memcpy(net.sha256, facts.digest, sizeof(net.sha256));
	net.not_after_ms = facts.not_after_ms;
	return net;
}

static bool accepts(struct world *world, X509 *certificate, const char *expected)
{
	char node_id[STORE_ID_BYTES];
	const struct net_certificate net = shown(certificate);
	bool accepted = authority_accepts(world->authority, &net, node_id);
	assert_string_equal(node_id, accepted ? expected : "");
	return accepted;
}

static int verify_purpose(struct world *world, X509 *certificate, int purpose)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *context = X509_STORE_CTX_new();
	X509_STORE_add_cert(store, world->authority->certificate);
	X509_STORE_CTX_init(context, store, certificate, NULL);
	X509_STORE_CTX_set_purpose(context, purpose);
	X509_STORE_CTX_set_flags(context, X509_V_FLAG_X509_STRICT);
	X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(context), (time_t)(now_ms / 1000));
	int good = X509_verify_cert(context);
	X509_STORE_CTX_free(context);
	X509_STORE_free(store);
	return good;
}

static void nodes_get_certificates(void **state)
{
	struct world world = {0};
	open_world(&world, *state);
	X509 *one = issue(&world, "node_a"), *other = issue(&world, "node_b");
	struct certificate_facts facts;
	certificate_describe(one, &facts);
	assert_in_range(facts.not_after_ms - now_ms, 29 * AUTHORITY_DAY_MS, 31 * AUTHORITY_DAY_MS);
	assert_int_equal(strlen(facts.serial), 32);
	assert_string_equal(shown(one).uri, "exogpu:node:node_a"); // whatever the request called itself
	assert_int_equal(verify_purpose(&world, one, X509_PURPOSE_SSL_CLIENT), 1);
	assert_int_equal(verify_purpose(&world, one, X509_PURPOSE_SSL_SERVER), 1);
	assert_int_equal(verify_purpose(&world, world.authority->server.certificate, X509_PURPOSE_SSL_SERVER), 1);
	assert_int_equal(verify_purpose(&world, world.authority->server.certificate, X509_PURPOSE_SSL_CLIENT), 0);
	assert_int_equal(X509_check_ca(one), 0);
	assert_true(accepts(&world, one, "node_a"));
	assert_true(accepts(&world, other, "node_b"));
	assert_false(accepts(&world, world.authority->server.certificate, ""));
	assert_false(accepts(&world, world.authority->certificate, ""));

	reopen(&world);
	assert_true(accepts(&world, one, "node_a"));
	struct store_batch *batch;
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	authority_revoke_node(world.authority, "node_a", batch);
	assert_false(accepts(&world, one, "")); // before it is on disk
	assert_true(accepts(&world, other, "node_b"));
	commit(&world, &batch);
	support_run_until(world.support->loop, &world.entries, 1);
	assert_string_equal(world.actions, "certificate.revoke node_a\n");
	reopen(&world);
	assert_false(accepts(&world, one, ""));
	assert_true(accepts(&world, other, "node_b"));

	struct json *list = authority_list(world.authority);
	assert_int_equal(json_count(list), 4);
	const struct json *newest = json_next(json_next(json_first(list)));
	assert_string_equal(json_get_string(newest, "kind", ""), "node");
	json_destroy(&list);

	// One that is over is not taken, and later forgotten, also on disk.
	now_ms += 31 * AUTHORITY_DAY_MS;
	assert_false(accepts(&world, other, ""));
	authority_check(world.authority);
	assert_int_equal(world.authority->node_count, 2);
	now_ms += 8 * AUTHORITY_DAY_MS;
	authority_check(world.authority);
	assert_int_equal(world.authority->node_count, 0);
	reopen(&world);
	assert_int_equal(world.authority->node_count, 0);
	X509_free(one);
	X509_free(other);
	close_world(&world);
}

static void a_node_has_few_certificates_at_a_time(void **state)
{
	struct world world = {0};
	X509 *certificates[LIMIT_CERTIFICATES_OF_NODE + 2];
	open_world(&world, *state);
	X509 *other = issue(&world, "node_b");
	for (size_t i = 0; i < LIMIT_CERTIFICATES_OF_NODE + 2; i++)
		certificates[i] = issue(&world, "node_a");
	reopen(&world);
	for (size_t i = 0; i < LIMIT_CERTIFICATES_OF_NODE + 2; i++) {
		assert_int_equal(accepts(&world, certificates[i], "node_a"), i >= 2);
		X509_free(certificates[i]);
	}
	assert_true(accepts(&world, other, "node_b"));
	X509_free(other);

	// A new authority knows none of them.
	close_world(&world);
	unlink(tls_path(&world, "authority.pem"));
	unlink(tls_path(&world, "authority.key"));
	open_world(&world, *state);
	assert_int_equal(world.authority->node_count, 0);
	reopen(&world);
	assert_int_equal(world.authority->node_count, 0);
	close_world(&world);
}

static void revoked_certificates_take_no_place_for_good(void **state)
{
	enum { REVOKED = LIMIT_CERTIFICATES_ENDED + 3 };
	struct world world = {0};
	X509 *revoked[REVOKED];
	open_world(&world, *state);
	X509 *other = issue(&world, "node_b");
	for (size_t i = 0; i < REVOKED; i++) {
		struct store_batch *batch;
		revoked[i] = issue(&world, "node_a");
		assert_int_equal(store_batch_create(&batch), STATUS_OK);
		authority_revoke_node(world.authority, "node_a", batch);
		commit(&world, &batch);
	}
	X509 *newest = issue(&world, "node_a");
	for (int again = 0; again < 2; again++) {
		assert_int_equal(world.authority->node_count, LIMIT_CERTIFICATES_ENDED + 2);
		assert_true(accepts(&world, other, "node_b"));
		assert_true(accepts(&world, newest, "node_a"));
		for (size_t i = 0; i < REVOKED; i++)
			assert_false(accepts(&world, revoked[i], ""));
		reopen(&world);
	}
	for (size_t i = 0; i < REVOKED; i++)
		X509_free(revoked[i]);
	X509_free(other);
	X509_free(newest);
	close_world(&world);
}

static EVP_PKEY *explicit_key(void)
{
	EVP_PKEY *key = NULL;
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
	EVP_PKEY_keygen_init(context);
	EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1);
	EVP_PKEY_CTX_set_ec_param_enc(context, OPENSSL_EC_EXPLICIT_CURVE);
	EVP_PKEY_generate(context, &key);
	EVP_PKEY_CTX_free(context);
	return key;
}

static void requests_that_are_none(void **state)
{
	struct world world = {0};
	struct store_batch *batch;
	struct error error = {0};
	char *pem, *request;
	open_world(&world, *state);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);

	EVP_PKEY *keys[] = {EVP_EC_gen("P-384"), EVP_RSA_gen(2048), EVP_EC_gen("secp256k1"), explicit_key()};
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		assert_non_null(keys[i]);
		request = make_request(keys[i]);
		enum status status = authority_issue(world.authority, "node_a", request, batch, &pem, &error);
		if (status != STATUS_INVALID_PARAMS)
			fail_msg("key %zu: %s", i, status_text(status));
		assert_null(pem);
		free(request);
		EVP_PKEY_free(keys[i]);
	}

	// Every bit of a good one, flipped: none gets a certificate for another key.
	EVP_PKEY *key = EVP_EC_gen("P-256");
	request = make_request(key);
	unsigned taken = 0;
	for (size_t i = 0; i < strlen(request) * 8; i++) {
		request[i / 8] = (char)(request[i / 8] ^ 1 << i % 8);
		if (!authority_issue(world.authority, "node_a", request, batch, &pem, NULL)) {
			X509 *certificate;
			assert_int_equal(certificate_parse(&certificate, pem, strlen(pem), NULL), STATUS_OK);
			assert_int_equal(X509_check_private_key(certificate, key), 1);
			X509_free(certificate);
			authority_settle(world.authority, pem, false);
			free(pem);
			taken++;
		}
		request[i / 8] = (char)(request[i / 8] ^ 1 << i % 8);
	}
	assert_in_range(taken, 0, strlen(request)); // line ends and the like are all that may change
	free(request);
	EVP_PKEY_free(key);

	static const char *const texts[] = {"", "nonsense",
					    "-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n",
					    "-----BEGIN CERTIFICATE REQUEST-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: "
					    "AES-128-CBC,0123456789ABCDEF01234567"
					    "89ABCDEF\n\nAAAA\n-----END CERTIFICATE REQUEST-----\n"};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(authority_issue(world.authority, "node_a", texts[i], batch, &pem, &error),
				 STATUS_INVALID_PARAMS);
	static char endless[4 * LIMIT_CSR_BYTES];
	memset(endless, 'A', sizeof(endless) - 1);
	assert_int_equal(authority_issue(world.authority, "node_a", endless, batch, &pem, &error),
			 STATUS_INVALID_PARAMS);
	store_batch_destroy(&batch);
	close_world(&world);
}

// A disk that is full must not cost a node the certificate that it has.
static void what_is_not_stored_changes_nothing(void **state)
{
	struct world world = {0};
	struct error error = {0};
	struct store_batch *batch;
	char *pem;
	open_world(&world, *state);
	X509 *one = issue(&world, "node_a"), *certificate;
	struct certificate_facts facts;
	certificate_describe(one, &facts);
	EVP_PKEY *key = EVP_EC_gen("P-256");
	char *request = make_request(key);
	for (int i = 0; i < 2 * LIMIT_CERTIFICATES_OF_NODE; i++) { // the other half takes the place of what there is
		bool replaces = i % 2;
		assert_int_equal(store_batch_create(&batch), STATUS_OK);
		assert_int_equal(authority_issue(world.authority, "node_a", request, batch, &pem, &error), STATUS_OK);
		if (replaces)
			authority_replace(world.authority, "node_a", pem, batch);
		assert_int_equal(certificate_parse(&certificate, pem, strlen(pem), &error), STATUS_OK);
		assert_false(accepts(&world, certificate, "")); // nobody has it yet
		assert_true(accepts(&world, one, "node_a"));
		assert_int_equal(authority_stands(world.authority, "node_a"), !replaces);
		assert_int_equal(authority_standing(world.authority, "node_a", facts.digest), AUTHORITY_KNOWN);
		store_batch_destroy(&batch);
		authority_settle(world.authority, pem, false);
		assert_false(accepts(&world, certificate, ""));
		assert_true(accepts(&world, one, "node_a"));
		assert_true(authority_stands(world.authority, "node_a"));
		X509_free(certificate);
		free(pem);
	}
	assert_int_equal(world.authority->node_count, 1);

	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	assert_int_equal(authority_issue(world.authority, "node_a", request, batch, &pem, &error), STATUS_OK);
	authority_replace(world.authority, "node_a", pem, batch);
	commit(&world, &batch);
	authority_settle(world.authority, pem, true);
	assert_int_equal(certificate_parse(&certificate, pem, strlen(pem), &error), STATUS_OK);
	assert_true(accepts(&world, certificate, "node_a"));
	assert_false(accepts(&world, one, ""));
	reopen(&world);
	assert_true(accepts(&world, certificate, "node_a"));
	assert_false(accepts(&world, one, ""));
	X509_free(certificate);
	X509_free(one);
	free(pem);
	free(request);
	EVP_PKEY_free(key);
	close_world(&world);
}

static void a_wrong_clock_is_said(void **state)
{
	struct world world = {0};
	struct error error = {0};
	struct store_batch *batch;
	struct net_tls *tls;
	char *pem;
	open_world(&world, *state);
	EVP_PKEY *key = EVP_EC_gen("P-256");
	char *request = make_request(key);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	const int64_t right = now_ms;
	const int64_t wrong[] = {0, right + 11 * 365 * AUTHORITY_DAY_MS};
	for (int i = 0; i < 2; i++) {
		now_ms = wrong[i];
		error = (struct error){0};
		assert_int_equal(authority_issue(world.authority, "node_a", request, batch, &pem, &error),
				 STATUS_UNAVAILABLE);
		assert_non_null(strstr(error.hint, "clock"));
	}
	// An authority that is over is not shown, and does not stop a server that shows nothing.
	reopen(&world);
	assert_int_equal(net_tls_create(&tls, world.support->loop, authority_pem(world.authority), &error), STATUS_OK);
	error = (struct error){0};
	assert_int_equal(authority_show(world.authority, tls, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "ended at"));
	now_ms = right;
	reopen(&world);
	assert_int_equal(authority_show(world.authority, tls, &error), STATUS_OK);

	// Near its end: what is issued ends with it.
	now_ms = world.authority->facts.not_after_ms - 10 * AUTHORITY_DAY_MS;
	authority_check(world.authority);
	finish_renewal(&world);
	assert_int_equal(world.authority->server.facts.not_after_ms, world.authority->facts.not_after_ms);
	now_ms += 9 * AUTHORITY_DAY_MS;
	authority_check(world.authority); // no new one: it would not live longer
	assert_null(world.authority->next.certificate);
	store_batch_destroy(&batch);
	close_world(&world);
	net_tls_destroy(&tls);
	free(request);
	EVP_PKEY_free(key);
}

// A pair of files that no authority of ours made.
static void write_own(struct world *world, const char *name, int64_t not_before_ms, int64_t not_after_ms)
{
	static const char dns[1][256] = {"own.example.org"};
	X509 *certificate;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	struct buffer text;
	char path[512];
	const struct certificate_params params = {.kind = CERTIFICATE_SERVER,
						  .key = key,
						  .issuer_key = key,
						  .subject = name,
						  .uri = "https://own.example.org/",
						  .names = dns,
						  .name_count = 1,
						  .not_before_ms = not_before_ms,
						  .not_after_ms = not_after_ms};
	assert_int_equal(certificate_make(&certificate, &params, NULL), STATUS_OK);
	buffer_init(&text, 8192);
	certificate_print(certificate, &text);
	snprintf(path, sizeof(path), "%s/%s.pem", world->support->directory, name);
	write_text(path, buffer_text(&text));
	buffer_clear(&text);
	certificate_print_key(key, &text);
	snprintf(path, sizeof(path), "%s/%s.key", world->support->directory, name);
	write_text(path, buffer_text(&text));
	buffer_finish(&text);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

static void the_operators_own_certificate(void **state)
{
	static const struct {
		const char *cert, *key, *said;
	} wrong[] = {
		{"none.pem", "own.key", "cannot be read"},
		{"own.pem", "none.key", "cannot be read"},
		{"own.pem", "other.key", "is not the key"},
		{"own.key", "own.key", "no certificate"},
		{"own.pem", "own.pem", "no private key"},
		{"over.pem", "over.key", "ended at"},
		{"early.pem", "early.key", "begins at"},
		{"own.pem", "secret.key", "encrypted"},
		{"tls", "own.key", "no file"},
		{"/dev/zero", "own.key", "no file"},
	};
	struct world world = {0};
	struct error error;
	char cert[512], key[512];
	open_world(&world, *state);
	const char *directory = world.support->directory;
	write_own(&world, "own", now_ms - AUTHORITY_DAY_MS, now_ms + 60 * AUTHORITY_DAY_MS);
	write_own(&world, "other", now_ms - AUTHORITY_DAY_MS, now_ms + 60 * AUTHORITY_DAY_MS);
	write_own(&world, "over", now_ms - 9 * AUTHORITY_DAY_MS, now_ms - AUTHORITY_DAY_MS);
	write_own(&world, "early", now_ms + AUTHORITY_DAY_MS, now_ms + 9 * AUTHORITY_DAY_MS);
	snprintf(cert, sizeof(cert), "%s/secret.key", directory);
	BIO *secret = BIO_new_file(cert, "w");
	EVP_PKEY *secret_key = EVP_EC_gen("P-256");
	PEM_write_bio_PKCS8PrivateKey(secret, secret_key, EVP_aes_128_cbc(), "word", 4, NULL, NULL);
	BIO_free(secret);
	EVP_PKEY_free(secret_key);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		close_world(&world);
		snprintf(cert, sizeof(cert), wrong[i].cert[0] == '/' ? "%.0s%s" : "%s/%s", directory, wrong[i].cert);
		snprintf(key, sizeof(key), "%s/%s", directory, wrong[i].key);
		world.params.cert_file = cert;
		world.params.key_file = key;
		assert_int_equal(try_open(&world, &error), STATUS_INVALID_PARAMS);
		if (!strstr(error.message, wrong[i].said) || !error.hint[0])
			fail_msg("%s with %s: said \"%s\" (%s)", wrong[i].cert, wrong[i].key, error.message,
				 error.hint);
	}
	close_world(&world);
	snprintf(cert, sizeof(cert), "%s/own.pem", directory);
	snprintf(key, sizeof(key), "%s/own.key", directory);
	open_world(&world, *state);
	assert_true(authority_knows_name(world.authority, "own.example.org"));
	assert_string_equal(authority_reachable_name(world.authority), "own.example.org");
	close_world(&world);
}

// What the timer does, as often as it takes.
static void look_thrice(struct world *world)
{
	for (int i = 0; i < 3; i++)
		authority_look_at_own(world->authority);
}

static void own_files_are_read_again(void **state)
{
	struct world world = {0};
	char cert[512], key[512], sha256[65];
	struct net_tls *tls;
	struct error error = {0};
	open_world(&world, *state);
	write_own(&world, "own", now_ms - AUTHORITY_DAY_MS, now_ms + 60 * AUTHORITY_DAY_MS);
	close_world(&world);
	snprintf(cert, sizeof(cert), "%s/own.pem", world.support->directory);
	snprintf(key, sizeof(key), "%s/own.key", world.support->directory);
	world.params.cert_file = cert;
	world.params.key_file = key;
	open_world(&world, *state);
	assert_int_equal(net_tls_create(&tls, world.support->loop, authority_pem(world.authority), &error), STATUS_OK);
	assert_int_equal(authority_show(world.authority, tls, &error), STATUS_OK);
	memcpy(sha256, world.authority->own.facts.sha256, 65);
	look_thrice(&world);
	assert_string_equal(world.authority->own.facts.sha256, sha256);

	// Half of a new pair, a whole one, one that is over, none at all.
	char old_key[8192];
	keep_text(key, old_key);
	write_own(&world, "own", now_ms - AUTHORITY_DAY_MS, now_ms + 70 * AUTHORITY_DAY_MS);
	char new_key[8192];
	keep_text(key, new_key);
	write_text(key, old_key);
	look_thrice(&world);
	assert_string_equal(world.authority->own.facts.sha256, sha256);
	write_text(key, new_key);
	authority_look_at_own(world.authority); // it may still be changing
	assert_string_equal(world.authority->own.facts.sha256, sha256);
	authority_look_at_own(world.authority);
	assert_string_not_equal(world.authority->own.facts.sha256, sha256);
	support_run_until(world.support->loop, &world.entries, 1);
	assert_string_equal(world.actions, "certificate.reload -\n");
	memcpy(sha256, world.authority->own.facts.sha256, 65);
	write_own(&world, "own", now_ms - 9 * AUTHORITY_DAY_MS, now_ms - AUTHORITY_DAY_MS);
	look_thrice(&world);
	assert_string_equal(world.authority->own.facts.sha256, sha256);
	unlink(cert);
	look_thrice(&world);
	assert_string_equal(world.authority->own.facts.sha256, sha256);
	write_own(&world, "own", now_ms - AUTHORITY_DAY_MS, now_ms + 80 * AUTHORITY_DAY_MS);
	look_thrice(&world);
	assert_string_not_equal(world.authority->own.facts.sha256, sha256);
	close_world(&world);
	net_tls_destroy(&tls);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(first_start_makes_what_is_missing, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_damaged_authority_ends_the_start, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_damaged_server_certificate_is_made_anew, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(renewal_comes_at_two_thirds_of_a_life, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(names_and_addresses, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(too_many_names_are_cut, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(nodes_get_certificates, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_node_has_few_certificates_at_a_time, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(revoked_certificates_take_no_place_for_good, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(requests_that_are_none, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(what_is_not_stored_changes_nothing, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_wrong_clock_is_said, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(the_operators_own_certificate, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(own_files_are_read_again, support_setup, support_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
