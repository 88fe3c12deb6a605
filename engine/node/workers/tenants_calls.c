/* Calls between the node and one worker, over its socket. See tenants_inside.h. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/node/workers/tenants_inside.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

// ---- calling ----

double tenant_elapsed_ms(int64_t began_ns)
{
	return (double)(clock_steady_ns() - began_ns) * 1e-6;
}

enum status tenant_call(struct tenant *tenant, const struct tenant_ask *params, struct error *error)
{
	struct ask *ask = malloc(sizeof(*ask));
	if (!ask) {
		struct json *unused = params->params;
		json_destroy(&unused);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a call to a worker");
	}
	int passed = params->passed;
	*ask = (struct ask){.tenant = tenant, .call = params->call, .began_ns = clock_steady_ns()};
	const enum status status = rpc_call(&tenant->rpc,
					    &(struct rpc_ask){.method = params->method,
							      .params = params->params,
							      .patience_ms = params->patience_ms,
							      .done = params->done,
							      .context = ask,
							      .body = &(struct rpc_body){.holder = &passed}});
	if (!status)
		return STATUS_OK;
	free(ask);
	return error_set(error, STATUS_LIMIT_EXCEEDED, "the worker has %zu calls under way", tenant->rpc.waiting);
}

void tenant_answer(struct ask *ask, struct json *result, const struct error *error)
{
	if (ask->call)
		uplink_answer(&ask->call, result, error);
	else
		json_destroy(&result);
	free(ask);
}

// Send all of it, with a descriptor if `passed` is not -1. False with errno; 0: only a part was sent.
static bool send_whole(int fd, const struct buffer *out, int passed)
{
	alignas(struct cmsghdr) uint8_t room[CMSG_SPACE(sizeof(passed))] = {0};
	struct iovec part = {.iov_base = out->data, .iov_len = out->length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (passed >= 0) {
		message.msg_control = room;
		message.msg_controllen = sizeof(room);
		struct cmsghdr *one = CMSG_FIRSTHDR(&message);
		*one = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(passed))};
		memcpy(CMSG_DATA(one), &passed, sizeof(passed));
	}
	const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
	if (sent >= 0)
		errno = 0;
	return sent == (ssize_t)out->length;
}

// If the worker has closed its end it has ended, or is about to (a program that cannot be run ends before its first
// call): its exit status tells why. Calls are short and few, so a full socket means that the worker does not read.
static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct tenant *tenant = arg;
	struct buffer out;
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	const enum status status = message_encode_stream(&out, (const char *)head->data, head->length, NULL, 0);
	const bool sent = !status && tenant->socket &&
			  send_whole(tenant->socket_fd, &out, body ? *(const int *)body->holder : -1);
	if (!tenant->socket || (!sent && !status && (errno == EPIPE || errno == ECONNRESET)))
		process_expect_end(&tenant->process);
	else if (!sent)
		tenant_kill_for(tenant, "the worker did not take a call");
	buffer_finish(&out);
	return STATUS_OK; // waiting calls fail when the process has ended
}

// ---- receiving ----

static enum status worker_busy(void *arg, const struct message *message, struct error *error)
{
	(void)error;
	tenant_busy(arg, json_get_integer(message->params, "ms", 0));
	return STATUS_OK;
}

static const struct rpc_method methods[] = {{"worker.busy", worker_busy}};

static void take_message(struct tenant *tenant, const uint8_t *frame, size_t length)
{
	struct error error = {0};
	const enum rpc_heard heard = rpc_receive(&tenant->rpc, frame, length, true, &error);
	if (heard == RPC_SERVED || heard == RPC_ANSWERED)
		return;
	log_warning("node", "worker %s breaks the protocol: %s", tenant->worker_id, error.message);
	tenant_kill_for(tenant, "the worker broke the protocol");
}

bool tenant_take_answers(struct tenant *tenant)
{
	uint8_t bytes[4096];
	while (tenant->socket && !tenant->fault[0]) {
		int passed = -1;
		ssize_t got = refusals_receive(tenant->socket_fd, bytes, sizeof(bytes), &passed);
		if (passed >= 0 && (tenant->refusals || tenant->open))
			close(passed); // from a worker that has sent one already, or that runs a tenant's code
		else if (passed >= 0)
			refusals_create(&tenant->refusals, tenant->all->params.loop, passed, tenant->backend);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
		const uint8_t *frame;
		size_t frame_bytes, used = 1;
		enum status status = buffer_append(&tenant->in, bytes, (size_t)got);
		while (!status && used && !tenant->fault[0]) {
			status = message_next(&tenant->in, &frame, &frame_bytes, &used);
			if (!status && used) {
				take_message(tenant, frame, frame_bytes);
				buffer_consume(&tenant->in, used);
			}
		}
		if (status)
			tenant_kill_for(tenant, "the worker sent a message of no possible length");
	}
	return false;
}

void tenant_calls_init(struct tenant *tenant)
{
	rpc_init(&tenant->rpc, &(struct rpc_params){.contract = tenant->all->params.contract,
						    .serves = "worker-to-node",
						    .peer = "the worker",
						    .methods = methods,
						    .method_count = sizeof(methods) / sizeof(methods[0]),
						    .most_calls = TENANT_CALLS,
						    .send = send_message,
						    .arg = tenant});
}
