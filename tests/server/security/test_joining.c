/* Nodes that wait for a person: the meeting, one try of it, how many may wait, and who takes whose place. */
#include "engine/node/uplink/credentials.h"
#include "server/security/joining.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t authority[32] = {1, 2, 3};

// A node as it asks.
struct asking {
	struct json *record;
	struct credentials_request request;
	uint8_t nonce[PAIRING_NONCE_BYTES];
	char commitment[PAIRING_HEX_BYTES], opening[PAIRING_HEX_BYTES];
};

static void asking_init(struct asking *asking, const char *node_id)
{
	uint8_t digest[32];
	struct error error = {0};
	const struct credentials nothing = {0};
	asking->record = json_new_object();
	json_set_string(asking->record, "node_id", node_id);
	if (credentials_ask(&nothing, false, &asking->request, &error))
		fail_msg("%s", error.message);
	assert_int_equal(pairing_nonce(asking->nonce), STATUS_OK);
	pairing_commit(asking->nonce, digest);
	pairing_print(digest, asking->commitment);
	pairing_print(asking->nonce, asking->opening);
}

static void asking_finish(struct asking *asking)
{
	json_destroy(&asking->record);
	credentials_request_finish(&asking->request);
}

struct place {
	const char *peer;
	int64_t steady_ms;
	void *owner;
};

static enum status ask(struct joining *joining, const struct asking *asking, const struct place *place,
		       struct joining_request **request, void **replaced)
{
	struct error error = {0};
	const struct joining_ask ask = {.peer = place->peer,
					.node = asking->record,
					.pem = asking->request.pem,
					.commitment = asking->commitment,
					.wall_ms = 1000000,
					.steady_ms = place->steady_ms,
					.owner = place->owner};
	enum status status = joining_ask(joining, &ask, request, replaced, &error);
	assert_true(!status == !error.message[0]); // a refusal says why
	return status;
}

static void both_sides_show_the_same_digits(void **state)
{
	struct joining *joining;
	struct joining_request *request;
	struct asking node;
	void *replaced;
	char code[PAIRING_CODE_BYTES];
	uint8_t server_nonce[PAIRING_NONCE_BYTES];
	(void)state;
	asking_init(&node, "node_a");
	assert_int_equal(joining_create(&joining, authority), STATUS_OK);
	assert_int_equal(ask(joining, &node, &(struct place){.peer = "192.0.2.1"}, &request, &replaced), STATUS_OK);
	assert_string_equal(request->code, "");
	assert_true(pairing_read(request->nonce, server_nonce));
	assert_int_equal(joining_reveal(joining, request, node.opening, NULL), STATUS_OK);
	pairing_code(&(struct pairing){.authority_sha256 = authority,
				       .key = node.request.spki,
				       .key_bytes = node.request.spki_bytes,
				       .node_nonce = node.nonce,
				       .server_nonce = server_nonce},
		     code);
	assert_string_equal(request->code, code);
	assert_ptr_equal(joining_find(joining, "node_a"), request);
	assert_ptr_equal(joining_at(joining, 0), request);
	assert_null(joining_at(joining, 1));
	assert_null(joining_find(joining, "node_b"));
	joining_destroy(&joining);
	asking_finish(&node);
}

static void the_nonce_has_one_try(void **state)
{
	struct joining *joining;
	struct joining_request *request;
	struct asking node;
	void *replaced;
	struct error error = {0};
	(void)state;
	asking_init(&node, "node_a");
	assert_int_equal(joining_create(&joining, authority), STATUS_OK);
	assert_int_equal(ask(joining, &node, &(struct place){.peer = "192.0.2.1"}, &request, &replaced), STATUS_OK);
	assert_int_equal(joining_reveal(joining, request, node.commitment, &error), STATUS_FORBIDDEN);
	assert_string_equal(request->code, "");
	joining_end(joining, &request); // what the caller does then
	assert_null(request);
	assert_null(joining_find(joining, "node_a"));
	assert_int_equal(ask(joining, &node, &(struct place){.peer = "192.0.2.1"}, &request, &replaced), STATUS_OK);
	assert_int_equal(joining_reveal(joining, request, node.opening, NULL), STATUS_OK);
	assert_int_equal(joining_reveal(joining, request, node.opening, NULL), STATUS_CONFLICT);
	joining_destroy(&joining);
	asking_finish(&node);
}

static void the_server_chooses_anew_each_time(void **state)
{
	struct joining *joining;
	struct joining_request *request;
	struct asking node;
	void *replaced;
	char first[PAIRING_HEX_BYTES];
	(void)state;
	asking_init(&node, "node_a");
	assert_int_equal(joining_create(&joining, authority), STATUS_OK);
	assert_int_equal(ask(joining, &node, &(struct place){.peer = "192.0.2.1"}, &request, &replaced), STATUS_OK);
	memcpy(first, request->nonce, sizeof first);
	assert_int_equal(ask(joining, &node, &(struct place){.peer = "192.0.2.1"}, &request, &replaced), STATUS_OK);
	assert_string_not_equal(request->nonce, first);
	joining_destroy(&joining);
	asking_finish(&node);
}

static void only_the_same_key_takes_a_place(void **state)
{
	struct joining *joining;
	struct joining_request *request, *second;
	struct asking node, thief;
	void *replaced;
	int owners[2];
	(void)state;
	asking_init(&node, "node_a");
	asking_init(&thief, "node_a");
	assert_int_equal(joining_create(&joining, authority), STATUS_OK);
	assert_int_equal(
		ask(joining, &node, &(struct place){.peer = "192.0.2.1", .owner = &owners[0]}, &request, &replaced),
		STATUS_OK);
	assert_null(replaced);
	assert_int_equal(ask(joining, &thief, &(struct place){.peer = "192.0.2.2"}, &second, &replaced),
			 STATUS_CONFLICT);
	assert_null(replaced);
	assert_ptr_equal(joining_find(joining, "node_a"), request);
	assert_int_equal(
		ask(joining, &node, &(struct place){.peer = "192.0.2.1", .owner = &owners[1]}, &second, &replaced),
		STATUS_OK);
	assert_ptr_equal(replaced, &owners[0]);
	assert_ptr_equal(joining_find(joining, "node_a"), second);
	assert_null(joining_at(joining, 1));
	joining_destroy(&joining);
	asking_finish(&thief);
	asking_finish(&node);
}

static void what_is_no_request_is_refused(void **state)
{
	struct joining *joining;
	struct joining_request *request;
	struct asking node;
	void *replaced;
	char kept[PAIRING_HEX_BYTES];
	(void)state;
	asking_init(&node, "node_a");
	assert_int_equal(joining_create(&joining, authority), STATUS_OK);
	memcpy(kept, node.commitment, sizeof kept);
	node.commitment[0] = 'x';
	assert_int_equal(ask(joining, &node, &(struct place){.peer = "192.0.2.1"}, &request, &replaced),
			 STATUS_INVALID_PARAMS);
	memcpy(node.commitment, kept, sizeof kept);
	for (size_t at = 30; at < strlen(node.request.pem) - 30; at += 17) { // some byte of it
		char byte = node.request.pem[at];
		node.request.pem[at] = byte == 'A' ? 'B' : 'A';
		assert_int_not_equal(ask(joining, &node, &(struct place){.peer = "192.0.2.1"}, &request, &replaced),
				     STATUS_OK);
		node.request.pem[at] = byte;
	}
	assert_null(joining_at(joining, 0));
	assert_int_equal(ask(joining, &node, &(struct place){.peer = "192.0.2.1"}, &request, &replaced), STATUS_OK);
	joining_destroy(&joining);
	asking_finish(&node);
}

static void few_may_wait(void **state)
{
	struct joining *joining;
	struct joining_request *request;
	struct asking nodes[LIMIT_WAITING_NODES + 1];
	void *replaced;
	char text[64];
	(void)state;
	assert_int_equal(joining_create(&joining, authority), STATUS_OK);
	for (int i = 0; i <= LIMIT_WAITING_NODES; i++) {
		snprintf(text, sizeof text, "node_%d", i);
		asking_init(&nodes[i], text);
	}
	for (int i = 0; i <= LIMIT_WAITING_NODES_OF_ADDRESS; i++) // one /64 is one address
	{
		snprintf(text, sizeof text, "2001:db8::%d", i + 1);
		assert_int_equal(ask(joining, &nodes[i], &(struct place){.peer = text}, &request, &replaced),
				 i < LIMIT_WAITING_NODES_OF_ADDRESS ? STATUS_OK : STATUS_RATE_LIMITED);
	}
	for (int i = LIMIT_WAITING_NODES_OF_ADDRESS; i <= LIMIT_WAITING_NODES; i++) {
		snprintf(text, sizeof text, "192.0.2.%d", i + 1);
		assert_int_equal(ask(joining, &nodes[i], &(struct place){.peer = text}, &request, &replaced),
				 i < LIMIT_WAITING_NODES ? STATUS_OK : STATUS_RATE_LIMITED);
	}
	joining_destroy(&joining);
	for (int i = 0; i <= LIMIT_WAITING_NODES; i++)
		asking_finish(&nodes[i]);
}

// Each request is one chance for somebody in between, so their number is bounded too.
static void few_may_ask_in_ten_minutes(void **state)
{
	struct joining *joining;
	struct joining_request *request = NULL;
	struct asking node;
	void *replaced;
	char peer[32];
	int64_t now_ms = 5000;
	(void)state;
	asking_init(&node, "node_a");
	assert_int_equal(joining_create(&joining, authority), STATUS_OK);
	for (int i = 0; i < LIMIT_JOIN_REQUESTS; i++) {
		snprintf(peer, sizeof peer, "192.0.2.%d", 1 + i / LIMIT_JOIN_REQUESTS_OF_ADDRESS);
		struct place place = {.peer = peer, .steady_ms = now_ms++};
		assert_int_equal(ask(joining, &node, &place, &request, &replaced), STATUS_OK);
		if (i == LIMIT_JOIN_REQUESTS_OF_ADDRESS - 1) {
			joining_end(joining, &request);
			assert_int_equal(ask(joining, &node, &place, &request, &replaced), STATUS_RATE_LIMITED);
			continue;
		}
		joining_end(joining, &request);
	}
	struct place other = {.peer = "192.0.2.200", .steady_ms = now_ms};
	assert_int_equal(ask(joining, &node, &other, &request, &replaced), STATUS_RATE_LIMITED);
	other.steady_ms = now_ms + LIMIT_JOIN_MS;
	assert_int_equal(ask(joining, &node, &other, &request, &replaced), STATUS_OK);
	joining_destroy(&joining);
	asking_finish(&node);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_sides_show_the_same_digits),   cmocka_unit_test(the_nonce_has_one_try),
		cmocka_unit_test(the_server_chooses_anew_each_time), cmocka_unit_test(only_the_same_key_takes_a_place),
		cmocka_unit_test(what_is_no_request_is_refused),     cmocka_unit_test(few_may_wait),
		cmocka_unit_test(few_may_ask_in_ten_minutes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
