/* Certificates of nodes, from an authority over a real store: issued, replaced, revoked, refused. */
#include "tests/server/security/authority.h"

static void commit(struct world *world, struct store_batch **batch)
{
	struct error error = {0};
	if (store_commit_wait(world->store, batch, &error))
		fail_msg("%s", error.message);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nodes_get_certificates, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_node_has_few_certificates_at_a_time, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(revoked_certificates_take_no_place_for_good, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(requests_that_are_none, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(what_is_not_stored_changes_nothing, support_setup, support_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
