/* Fuzz target: what a node that nobody has vouched for may send, from the bytes to the six digits.
 *
 * Each line is a message of a stranger's connection; `+` ends the connection and begins another, from another address,
 * `*` lets ten minutes pass. Every message is decoded, checked against the contract and, if it is join.request or
 * join.reveal, given to who keeps those that wait, as server/api/nodes/join.c does. No more may wait than are allowed,
 * a code is there only after a nonce that opens its commitment, and every refusal says why. */
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "server/security/joining.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

struct stranger {
	struct joining *joining;
	struct joining_request *request;
	char peer[64], commitment[PAIRING_HEX_BYTES];
	bool asked;
	unsigned address;
	int64_t now_ms;
};

static const struct contract *contract_of_nodes(void)
{
	static struct contract *contract; // for the life of the process
	if (!contract)
		require(contract_create(&contract, CONTRACT_NODE, NULL) == STATUS_OK);
	return contract;
}

static void begin_again(struct stranger *stranger)
{
	joining_end(stranger->joining, &stranger->request);
	stranger->asked = false;
	snprintf(stranger->peer, sizeof stranger->peer, "192.0.2.%u", stranger->address++ % 200);
}

// Another one, while this one goes on waiting.
static void next_stranger(struct stranger *stranger)
{
	stranger->request = NULL;
	begin_again(stranger);
}

static void check_waiting(const struct stranger *stranger)
{
	const struct joining_request *request;
	size_t count = 0;
	for (; (request = joining_at(stranger->joining, count)); count++) {
		require(request->node && request->pem && request->key_bytes);
		require(joining_find(stranger->joining, request->node_id) != NULL);
		require(!request->code[0] || strlen(request->code) == 6);
	}
	require(count <= LIMIT_WAITING_NODES);
}

static enum status ask(struct stranger *stranger, const struct json *params, struct error *error)
{
	void *replaced;
	struct joining_ask asked = {.peer = stranger->peer,
				    .node = json_get(params, "node"),
				    .pem = json_get_string(params, "request", ""),
				    .commitment = json_get_string(params, "commitment", ""),
				    .wall_ms = stranger->now_ms,
				    .steady_ms = stranger->now_ms,
				    .owner = stranger};
	if (stranger->asked || strlen(json_get_string(asked.node, "node_id", "")) >= JOINING_ID_BYTES)
		return error_set(error, STATUS_CONFLICT, "asked already, or a node_id that is too long");
	stranger->asked = true;
	enum status status = joining_ask(stranger->joining, &asked, &stranger->request, &replaced, error);
	require(!status == (stranger->request != NULL));
	if (!status) {
		require(!stranger->request->code[0]);
		snprintf(stranger->commitment, sizeof stranger->commitment, "%s", asked.commitment);
	}
	return status;
}

static enum status reveal(struct stranger *stranger, const struct json *params, struct error *error)
{
	uint8_t nonce[PAIRING_NONCE_BYTES], commitment[32];
	const char *text = json_get_string(params, "nonce", "");
	if (!stranger->request)
		return error_set(error, STATUS_CONFLICT, "it does not wait");
	bool opens = pairing_read(text, nonce) && pairing_read(stranger->commitment, commitment) &&
		     pairing_opens(nonce, commitment);
	bool shown = stranger->request->code[0];
	enum status status = joining_reveal(stranger->joining, stranger->request, text, error);
	require(!status == (opens && !shown));
	return status;
}

static void hear(struct stranger *stranger, const char *line, size_t length)
{
	struct message message;
	struct error error = {0};
	enum status status = message_decode_text(&message, line, length, &error);
	const struct contract_method *method = status || !message.method
						       ? NULL
						       : contract_find(contract_of_nodes(), message.method);
	const bool request = method && !strcmp(method->name, "join.request");
	if (!request && !(method && !strcmp(method->name, "join.reveal")))
		status = error_set(&error, STATUS_UNAUTHENTICATED, "only those two");
	if (!status)
		status = contract_check_params(contract_of_nodes(), method, message.params, &error);
	if (!status)
		status = request ? ask(stranger, message.params, &error) : reveal(stranger, message.params, &error);
	require(!status == !error.message[0]);
	if (status) // one try: the connection is closed
		begin_again(stranger);
	message_finish(&message);
	check_waiting(stranger);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t authority[32] = {7};
	struct stranger stranger = {.now_ms = 1000};
	require(joining_create(&stranger.joining, authority) == STATUS_OK);
	begin_again(&stranger);
	for (size_t at = 0; at < size;) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		size_t length = end ? (size_t)(end - data) - at : size - at;
		if (length == 1 && data[at] == '+')
			next_stranger(&stranger);
		else if (length == 1 && data[at] == '*')
			stranger.now_ms += LIMIT_JOIN_MS;
		else if (length <= LIMIT_LOGIN_BYTES)
			hear(&stranger, (const char *)data + at, length);
		at += length + 1;
	}
	joining_destroy(&stranger.joining);
	return 0;
}
