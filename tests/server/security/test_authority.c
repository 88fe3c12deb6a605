/* The authority over a real store: made, kept, damaged, renewed; the server's own certificate; the operator's. */
#include "tests/server/security/authority.h"

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
		cmocka_unit_test_setup_teardown(a_wrong_clock_is_said, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(the_operators_own_certificate, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(own_files_are_read_again, support_setup, support_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
