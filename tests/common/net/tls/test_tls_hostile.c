/* TLS of a listener whose peers are old, wrong, silent or stay half there, and new keys while much is on its way. */
#include "tests/common/net/tls/tls_ends.h"

static void connect_old(struct fixture *fixture)
{
	SSL_CTX *context = raw_context(TLS1_2_VERSION);
	SSL *ssl = SSL_new(context);
	int fd = raw_connect(fixture);
	SSL_set_fd(ssl, fd);
	fixture->results[0] = SSL_connect(ssl);
	fixture->results[1] = ERR_GET_REASON(ERR_peek_error());
	SSL_free(ssl);
	SSL_CTX_free(context);
	close(fd);
}

static void old_versions(void **state)
{
	struct fixture *fixture = *state;
	perform(fixture, connect_old);
	assert_int_not_equal(fixture->results[0], 1);
	assert_int_equal(fixture->results[1], SSL_R_TLSV1_ALERT_PROTOCOL_VERSION);
}

static void speak_plain(struct fixture *fixture)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: box\r\n\r\n";
	int fd = raw_connect(fixture);
	raw_send(fd, request, sizeof request - 1);
	fixture->results[0] = raw_read_all(fd, fixture->got, sizeof fixture->got);
	close(fd);
}

static void plain_http(void **state)
{
	struct fixture *fixture = *state;
	perform(fixture, speak_plain);
	assert_true(fixture->results[0]);
	if (strncmp(fixture->got, "HTTP/1.1 400 ", 13) != 0 || !strstr(fixture->got, "\r\n\r\nThis port speaks HTTPS"))
		fail_msg("the answer was: %s", fixture->got);
	assert_int_equal(fixture->http, 0);
}

static void send_garbage(struct fixture *fixture)
{
	char rest[256];
	uint8_t garbage[1500];
	for (size_t i = 0; i < sizeof garbage; i++)
		garbage[i] = (uint8_t)(i * 2654435761u >> 11);
	for (int first = 0; first < 256; first += 5) { // before the handshake, also as what begins like one
		int fd = raw_connect(fixture);
		garbage[0] = (uint8_t)first;
		raw_send(fd, garbage, sizeof garbage);
		fixture->results[0] += first != 22 && !raw_read_all(fd, rest, sizeof rest);
		close(fd);
	}
	SSL_CTX *context = raw_context(TLS1_3_VERSION); // in a connection
	SSL *ssl = raw_tls(fixture, context);
	fixture->results[1] = SSL_connect(ssl);
	raw_upgrade(ssl);
	raw_send(SSL_get_fd(ssl), garbage, sizeof garbage);
	fixture->results[0] += !raw_read_all(SSL_get_fd(ssl), rest, sizeof rest);
	raw_finish(&ssl);
	SSL_CTX_free(context);
}

static void garbage(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	perform(fixture, send_garbage);
	assert_int_equal(fixture->results[0], 0); // none stayed open
	assert_int_equal(fixture->results[1], 1);
	wait_for(fixture, &fixture->server_closed, 1);
	assert_int_equal(fixture->opened, 1);
	assert_true(dial(fixture, &tls));
}

// One that says nothing, and one that stops in the middle of its first message: both are closed in time, and until then
// keep nobody out.
static void stay_half(struct fixture *fixture)
{
	SSL_CTX *context = raw_context(TLS1_3_VERSION);
	SSL *ssl = SSL_new(context);
	BIO *sent = BIO_new(BIO_s_mem());
	char *hello, rest[64];
	SSL_set_bio(ssl, BIO_new(BIO_s_mem()), sent);
	SSL_connect(ssl);
	size_t length = (size_t)BIO_get_mem_data(sent, &hello);
	int silent = raw_connect(fixture), half = raw_connect(fixture);
	raw_send(half, hello, length / 2);
	net_loop_post(fixture->loop, stop, fixture); // they are there
	fixture->results[0] = raw_read_all(silent, rest, sizeof rest);
	fixture->results[1] = raw_read_all(half, rest, sizeof rest);
	close(silent);
	close(half);
	SSL_free(ssl);
	SSL_CTX_free(context);
}

static void half_handshakes(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	assert_int_equal(setenv("EXOGPU_TEST_ARRIVAL_MS", "10000", 1), 0); // after which those are closed
	fixture->script = stay_half;
	fixture->running = true;
	assert_int_equal(pthread_create(&fixture->thread, NULL, play, fixture), 0);
	run_ms(fixture, WAIT_MS);
	bool there = true;
	int beside = 0; // that came while those were there: a busy machine may have time for one only
	for (int i = 0; i < 5 && there; i++) {
		assert_true(dial(fixture, &tls));
		there = pthread_tryjoin_np(fixture->thread, NULL) != 0;
		beside += there;
	}
	assert_true(beside > 0);
	int64_t until_ms = clock_steady_ms() + WAIT_MS;
	while (there && clock_steady_ms() < until_ms) {
		run_ms(fixture, 1000);
		there = pthread_tryjoin_np(fixture->thread, NULL) != 0;
	}
	assert_false(there);
	fixture->running = false;
	assert_true(fixture->results[0]);
	assert_true(fixture->results[1]);
}

static void fail_often(struct fixture *fixture)
{
	for (int i = 0; i < LIMIT_CONNECTIONS + 100; i++) {
		int fd = raw_connect(fixture);
		if (fd < 0)
			fixture->results[0]++;
		if (i % 3)
			raw_send(fd, "x", 1);
		close(fd);
	}
}

// Each place that a failed handshake took is given back.
static void places_given_back(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	perform(fixture, fail_often);
	assert_int_equal(fixture->results[0], 0);
	assert_true(dial(fixture, &tls));
}

// Keys.

static void count_key_updates(int ours, int version, int type, const void *bytes, size_t length, SSL *ssl, void *arg)
{
	struct fixture *fixture = arg;
	const uint8_t *message = bytes; // its type, three bytes of length, whether one is asked for in return
	(void)version, (void)ssl;
	if (!ours && type == SSL3_RT_HANDSHAKE && length == 5 && message[0] == SSL3_MT_KEY_UPDATE)
		fixture->results[message[4] ? 0 : 2]++;
}

static void update_server_keys(void *arg)
{
	struct fixture *fixture = arg;
	if (fixture->at_server)
		net_conn_update_keys(fixture->at_server);
	__atomic_store_n(&fixture->replaced, true, __ATOMIC_RELEASE);
}

static bool say_hi(SSL *ssl)
{
	static const uint8_t hello[] = {0x81, 0x82, 0, 0, 0, 0, 'h', 'i'};
	uint8_t answer[4];
	return SSL_write(ssl, hello, sizeof hello) == sizeof hello && SSL_read(ssl, answer, sizeof answer) == 4 &&
	       !memcmp(answer, "\x81\x02hi", 4);
}

static void see_new_keys(struct fixture *fixture)
{
	SSL_CTX *context = raw_context(TLS1_3_VERSION);
	SSL *ssl = raw_tls(fixture, context);
	SSL_set_msg_callback(ssl, count_key_updates);
	SSL_set_msg_callback_arg(ssl, fixture);
	SSL_connect(ssl);
	raw_upgrade(ssl);
	for (int i = 0; i < 3; i++) {
		__atomic_store_n(&fixture->replaced, false, __ATOMIC_RELEASE);
		net_loop_post(fixture->loop, update_server_keys, fixture);
		while (!__atomic_load_n(&fixture->replaced, __ATOMIC_ACQUIRE))
			usleep(1000);
		fixture->results[1] += say_hi(ssl);
		SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
		fixture->results[1] += say_hi(ssl);
	}
	raw_finish(&ssl);
	SSL_CTX_free(context);
}

static void new_keys(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	perform(fixture, see_new_keys);
	wait_for(fixture, &fixture->server_closed, 1);
	assert_int_equal(fixture->results[1], 6);
	assert_int_equal(fixture->results[0], 3); // the server's own, which came before what it said next
	assert_int_equal(fixture->results[2], 3); // and its answers to the client's
	assert_true(dial_to(fixture, "127.0.0.1", &tls, true));
	char *text = malloc(LARGE_BYTES);
	assert_non_null(text);
	for (size_t i = 0; i < LARGE_BYTES; i++)
		text[i] = (char)('a' + i % 23);
	fixture->wanted = text;
	for (size_t i = 1; i <= 8; i++) { // while much is on its way in both directions
		assert_int_equal(net_conn_send_text(fixture->at_client, text, LARGE_BYTES), STATUS_OK);
		assert_int_equal(net_conn_update_keys(fixture->at_client), STATUS_OK);
		while (fixture->messages < i) {
			run_ms(fixture, 1);
			assert_int_equal(net_conn_update_keys(fixture->at_server), STATUS_OK);
		}
		assert_int_equal(net_conn_update_keys(fixture->at_server), STATUS_OK);
		wait_for(fixture, &fixture->answers, i);
	}
	assert_int_equal(fixture->bad, 0);
	net_conn_close(fixture->at_client, 1000, "");
	wait_for(fixture, &fixture->server_closed, 2);
	wait_for(fixture, &fixture->client_closed, 1);
	free(text);
}

// With the thread sanitizer 5,000 take long.
#if defined(__SANITIZE_THREAD__)
enum { FLOOD = 1000 };
#else
enum { FLOOD = 5000 };
#endif

static void count_turn(void *arg)
{
	struct fixture *fixture = arg;
	fixture->results[1]++;
	if (!__atomic_load_n(&fixture->replaced, __ATOMIC_ACQUIRE))
		net_loop_post(fixture->loop, count_turn, fixture);
}

// Thousands of new keys at once, then a WebSocket: results[0] says that it was opened and answers.
static void flood_with_keys(struct fixture *fixture)
{
	SSL_CTX *context = raw_context(TLS1_3_VERSION);
	SSL *ssl = raw_tls(fixture, context);
	BIO *all = BIO_new(BIO_s_mem());
	char *bytes = NULL;
	SSL_connect(ssl);
	BIO *wire = SSL_get_wbio(ssl);
	BIO_up_ref(wire);
	SSL_set0_wbio(ssl, all);
	for (int i = 0; i < FLOOD; i++) {
		SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
		SSL_do_handshake(ssl);
	}
	long length = BIO_get_mem_data(all, &bytes);
	__atomic_store_n(&fixture->replaced, false, __ATOMIC_RELEASE);
	net_loop_post(fixture->loop, count_turn, fixture);
	for (ssize_t sent = 1; length > 0 && sent > 0; length -= sent, bytes += sent)
		sent = send(SSL_get_fd(ssl), bytes, (size_t)length, MSG_NOSIGNAL);
	SSL_set0_wbio(ssl, wire);
	raw_upgrade(ssl);
	fixture->results[0] = say_hi(ssl);
	__atomic_store_n(&fixture->replaced, true, __ATOMIC_RELEASE);
	raw_finish(&ssl);
	SSL_CTX_free(context);
}

// One who sends nothing but new keys has a turn for each, as others have theirs.
static void many_new_keys(void **state)
{
	struct fixture *fixture = *state;
	perform(fixture, flood_with_keys);
	assert_int_equal(fixture->results[0], 1);
	if (fixture->results[1] < FLOOD / 10 * 9)
		fail_msg("while %d new keys came the loop had %d turns", FLOOD, fixture->results[1]);
	wait_for(fixture, &fixture->server_closed, 1);
}

static void leave_often(struct fixture *fixture)
{
	SSL_CTX *context = raw_context(TLS1_3_VERSION);
	static uint8_t message[14 + 60000] = {0x82, 0x80 | 127, [8] = 60000 >> 8, [9] = 60000 & 0xff};
	static char some[100000];
	for (int i = 0; i < 60; i++) {
		struct linger at_once = {.l_onoff = i % 3 == 1};
		SSL *ssl = raw_tls(fixture, context);
		if (SSL_connect(ssl) == 1)
			raw_upgrade(ssl);
		SSL_write(ssl, message, (i * 997) % (int)sizeof message + 1);
		if (i % 2)
			fixture->results[0] += SSL_read(ssl, some, sizeof some) > 0;
		if (i % 5 == 0)
			SSL_shutdown(ssl);
		setsockopt(SSL_get_fd(ssl), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
		raw_finish(&ssl);
	}
	SSL_CTX_free(context);
}

// Clients that go in the middle of a message, their own or one to them, orderly or not.
static void left_in_the_middle(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	fixture->greeting = net_frame_alloc(LARGE_BYTES);
	assert_non_null(fixture->greeting);
	memset(net_frame_data(fixture->greeting), 'g', LARGE_BYTES);
	perform(fixture, leave_often);
	assert_int_equal(fixture->results[0], 30);
	assert_int_equal(fixture->opened, 60);
	wait_for(fixture, &fixture->server_closed, 60);
	net_frame_unref(&fixture->greeting);
	assert_true(dial(fixture, &tls));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(old_versions, set_up, tear_down),
		cmocka_unit_test_setup_teardown(plain_http, set_up, tear_down),
		cmocka_unit_test_setup_teardown(garbage, set_up, tear_down),
		cmocka_unit_test_setup_teardown(half_handshakes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(places_given_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(left_in_the_middle, set_up, tear_down),
		cmocka_unit_test_setup_teardown(new_keys, set_up, tear_down),
		cmocka_unit_test_setup_teardown(many_new_keys, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
