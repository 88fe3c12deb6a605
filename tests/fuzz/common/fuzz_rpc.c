/* Fuzz target: one end of a connection between two processes (common/wire/rpc.h).
 *
 * Each line is a message that comes; `!` makes a call, with a deadline of as many ms as the next byte says, `~` lets 50
 * ms pass and ends what is late, `-` closes the end and begins another. Every call is told its end once, a result fits
 * the contract, no more wait than may, and what is not taken says why. */
#include "common/wire/rpc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_CALLS = 4, MOST_LINES = 256 };

static int64_t now_ms;
static unsigned told[MOST_LINES];

static void require(bool condition)
{
	if (!condition)
		abort();
}

static const struct contract *contract_of_nodes(void)
{
	static struct contract *contract; // for the life of the process
	if (!contract)
		require(contract_create(&contract, CONTRACT_NODE, NULL) == STATUS_OK);
	return contract;
}

static int64_t test_clock(void)
{
	return now_ms;
}

static enum status send(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct message message;
	(void)arg;
	require(!body && !message_decode_text(&message, buffer_text(head), head->length, NULL));
	message_finish(&message);
	return STATUS_OK;
}

static enum status serve(void *arg, const struct message *message, struct error *error)
{
	const struct contract *contract = contract_of_nodes();
	(void)arg;
	require(!contract_check_params(contract, contract_find(contract, message->method), message->params, NULL));
	return strcmp(message->method, "node.devices") != 0 ? error_set(error, STATUS_CONFLICT, "not now") : STATUS_OK;
}

static void done(void *context, enum status status, const struct json *result, const struct error *error)
{
	const struct contract *contract = contract_of_nodes();
	++*(unsigned *)context;
	require(status ? !result && error->status == status && error->message[0]
		       : !contract_check_result(contract, contract_find(contract, "device.verify"), result, NULL));
}

static void begin(struct rpc *rpc)
{
	static const struct rpc_method methods[] = {
		{"node.devices", serve}, {"node.log", serve}, {"node.burst", serve}};
	rpc_init(rpc, &(struct rpc_params){.contract = contract_of_nodes(),
					   .serves = "node-to-server",
					   .peer = "the node",
					   .methods = methods,
					   .method_count = sizeof methods / sizeof *methods,
					   .most_calls = MOST_CALLS,
					   .answers_faults = true,
					   .send = send,
					   .now_ms = test_clock});
}

static void end(struct rpc *rpc)
{
	rpc_close(rpc, &(struct error){.status = STATUS_UNAVAILABLE, .message = "it is gone"});
	require(!rpc->first && !rpc->waiting);
}

static void hear(struct rpc *rpc, const uint8_t *line, size_t length)
{
	struct error error = {0};
	const enum rpc_heard heard = rpc_receive(rpc, line, length, false, &error);
	require((heard == RPC_SERVED || heard == RPC_ANSWERED) == !error.message[0]);
}

static bool call(struct rpc *rpc, unsigned *context, uint8_t patience_ms)
{
	const size_t waiting = rpc->waiting;
	const enum status status = rpc_call(rpc, &(struct rpc_ask){.method = "device.verify",
								   .params = json_new_object(),
								   .patience_ms = patience_ms,
								   .done = done,
								   .context = context});
	require(status ? waiting == MOST_CALLS : rpc->waiting == waiting + 1);
	return !status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rpc rpc;
	size_t calls = 0;
	memset(told, 0, sizeof told);
	now_ms = 1;
	begin(&rpc);
	for (size_t lines = 0; size && lines < MOST_LINES; lines++) {
		const uint8_t *stop = memchr(data, '\n', size);
		const size_t length = stop ? (size_t)(stop - data) : size;
		if (length && data[0] == '!') {
			calls += call(&rpc, &told[calls], length > 1 ? data[1] : 0);
		} else if (length && data[0] == '~') {
			now_ms += 50;
			const int64_t next_ms = rpc_expire(&rpc);
			require(next_ms == -1 || next_ms > 0);
		} else if (length && data[0] == '-') {
			end(&rpc);
			begin(&rpc);
		} else {
			hear(&rpc, data, length);
		}
		data += length + (stop != NULL);
		size -= length + (stop != NULL);
	}
	end(&rpc);
	for (size_t i = 0; i < calls; i++)
		require(told[i] == 1);
	return 0;
}
