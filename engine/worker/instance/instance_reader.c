/* The reader's thread of a model instance: both sockets, and prompts to tokens. See instance.h.
 *
 * A message is received whole before it is parsed. A message that is too long ends the session; a malformed head gets
 * an error as its answer. A body contains the params that the head had no room for. Prompts are tokenized on this
 * thread, so that a long prompt delays no step. A ping waits for that; before a very long prompt the node is
 * notified. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "engine/worker/instance/instance_ring.h"
#include "engine/worker/node_end.h"
#include "engine/worker/prefix/prefix.h"
#include "engine/worker/worker.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	READ_BYTES = 65536,
	TICK_MS = 500,        // of the watch over the driver
	LAST_WORDS_MS = 1000, // how long the server may take to read them
	LENGTHS_BYTES = 8,
	LONG_BYTES = 256 * 1024, // of a message: from here on it may take longer than a ping may wait
	LONG_MS = 2000,          // and then this, and 1 ms more for each of
	LONG_BYTES_PER_MS = 1000,
};

struct reader {
	struct instance *instance;
	struct node_end node;
	struct buffer in, sending; // `sending`: taken from the queue
	size_t sent;               // of `sending`
};

// ---- the node ----

static void tell_busy(struct reader *reader, size_t bytes)
{
	struct json *params = json_new_object();
	json_set_integer(params, "ms", LONG_MS + (int64_t)(bytes / LONG_BYTES_PER_MS));
	rpc_notify(&reader->node.rpc, "worker.busy", params);
}

// How long the oldest order or step has been in progress.
static int64_t oldest_ns(struct instance *instance)
{
	pthread_mutex_lock(&instance->lock);
	int64_t since_ns = instance->work_ns ? instance->work_ns : instance->step_ns;
	if (!since_ns && instance->orders)
		since_ns = instance->orders->arrived_ns;
	pthread_mutex_unlock(&instance->lock);
	return since_ns ? clock_steady_ns() - since_ns : 0;
}

static enum status ping(void *arg, const struct message *message, struct error *error)
{
	struct node_end *node = arg;
	struct json *result = json_new_object();
	(void)error;
	json_set_number(result, "oldest_ms", (double)oldest_ns(node->owner) * 1e-6);
	rpc_answer(&node->rpc, message->method, message->id, result, NULL);
	return STATUS_PENDING;
}

// The descriptor that came with the call is an end of a channel.
static enum status take_channel(void *arg, const struct message *message, struct error *error)
{
	struct node_end *node = arg;
	if (node->given < 0)
		return error_set(error, STATUS_UNAVAILABLE, "no descriptor came with the call");
	const enum status status = prefix_channel(node->owner, message->params, node->given, error);
	if (!status)
		node->given = -1;
	return status;
}

static const struct rpc_method node_methods[] = {{"worker.ping", ping}, {"worker.channel", take_channel}};

// ---- the server's calls ----

static const struct {
	const char *method;
	enum order_kind kind;
} methods[] = {
	{"instance.load", ORDER_LOAD},      {"instance.adopt", ORDER_ADOPT},   {"instance.check", ORDER_CHECK},
	{"generate.start", ORDER_GENERATE}, {"generate.cancel", ORDER_CANCEL}, {"generate.embed", ORDER_EMBED},
	{"generate.forget", ORDER_FORGET},  {"instance.pace", ORDER_PACE},     {"prefix.take", ORDER_TAKE},
};

// Long params are the body, and the head's are empty.
static enum status take_body(struct message *message, struct error *error)
{
	struct json *params = NULL;
	enum status status = json_parse(&params, (const char *)message->body, message->body_bytes, error);
	if (!status && (json_type(params) != JSON_OBJECT || json_first(message->params)))
		status = error_set(error, STATUS_INVALID_PARAMS, "a body is an object, and all of the params");
	if (status) {
		json_destroy(&params);
		return status;
	}
	json_set(message->head, "params", params);
	message->params = params;
	return STATUS_OK;
}

static enum status check(const struct instance *instance, struct order *order, struct error *error)
{
	struct message *message = &order->message;
	if (message->kind != MESSAGE_REQUEST)
		return error_set(error, STATUS_INVALID_REQUEST, "a model instance answers requests only");
	const struct contract_method *method = contract_find(instance->contract, message->method);
	for (size_t i = 0; method && i < sizeof(methods) / sizeof(methods[0]); i++)
		if (!strcmp(methods[i].method, method->name))
			order->kind = methods[i].kind;
	if (order->kind == ORDER_UNKNOWN)
		return error_set(error, STATUS_METHOD_NOT_FOUND, "a model instance has no method %.64s here",
				 message->method);
	if (message->body_bytes && method->body == CONTRACT_BODY_NONE)
		return error_set(error, STATUS_INVALID_PARAMS, "%s takes no body", method->name);
	if (message->body_bytes && take_body(message, error))
		return error->status;
	return contract_check_params(instance->contract, method, message->params, error);
}

static enum status take_tokens(const struct json *list, struct token_list *out, struct error *error)
{
	enum status status = STATUS_OK;
	for (const struct json *one = json_first(list); one && !status; one = json_next(one))
		status = token_list_add(out, (uint32_t)json_number(one, 0));
	return status ? error_set(error, status, "no memory for a prompt") : STATUS_OK;
}

// A reranker has scores for pairs and nothing else, and no other model has any.
static enum status check_task(const struct instance *instance, bool pair, struct error *error)
{
	const bool ranks = model_shape(instance->model)->pooling == POOLING_RANK;
	if (pair == ranks)
		return STATUS_OK;
	error_hint(
		error,
		ranks ? "ask POST /v1/rerank"
		      : "choose a model whose KIND is rerank (exogpu model list): a cross-encoder, or Qwen3-Reranker");
	return error_set(error, STATUS_INVALID_PARAMS,
			 ranks ? "the model is a reranker: it has no embeddings" : "the model is no reranker");
}

// Make the prompt's tokens. In a prompt, text such as <|eot_id|> becomes that special token. In a text to be embedded
// or ranked it is ordinary text.
static enum status take_prompt(struct instance *instance, struct order *order, struct error *error)
{
	const struct json *prompt = json_get(order->message.params, "prompt");
	const struct json *text = json_get(prompt, "text"), *tokens = json_get(prompt, "tokens");
	const struct json *messages = json_get(prompt, "messages"), *pair = json_get(prompt, "pair");
	if (!instance_loaded(instance))
		return error_set(error, STATUS_CONFLICT, "no model is loaded yet");
	if (instance->ring && !instance_ring_is_last(instance))
		return error_set(error, STATUS_CONFLICT, "this is a part of a model: the last part generates");
	if (json_get(prompt, "suffix") && !text)
		return error_set(error, STATUS_INVALID_PARAMS, "suffix: the prompt must be a text");
	if ((text != NULL) + (tokens != NULL) + (messages != NULL) + (pair != NULL) != 1 ||
	    (pair && order->kind != ORDER_EMBED))
		return error_set(error, STATUS_INVALID_PARAMS, "a prompt is text, tokens or messages: one of them");
	if (order->kind == ORDER_EMBED && check_task(instance, pair != NULL, error))
		return error->status;
	order->prompt.limit = LIMIT_PROMPT_TOKENS;
	if (pair && instance->pair_template)
		return chat_pair(instance->pair_template, instance->tokenizer, json_string(json_first(pair), ""),
				 json_string(json_next(json_first(pair)), ""), &order->prompt, error);
	if (pair)
		return tokenize_pair(instance->tokenizer, json_string(json_first(pair), ""),
				     json_string(json_next(json_first(pair)), ""), &order->prompt, error);
	if (tokens)
		return take_tokens(tokens, &order->prompt, error);
	if (messages)
		return instance_take_messages(instance, order, error);
	if (json_get(prompt, "suffix"))
		return tokenize_fill(instance->tokenizer, json_string(text, ""), json_get_string(prompt, "suffix", ""),
				     &order->prompt, error);
	const struct tokenize_params params = {.text = json_string(text, ""),
					       .length = strlen(json_string(text, "")),
					       .special = order->kind == ORDER_GENERATE,
					       .begin = true};
	return tokenize(instance->tokenizer, &params, &order->prompt, error);
}

// Errors: STATUS_OUT_OF_MEMORY. What is wrong with the call is answered.
static enum status server_call(struct reader *reader, const uint8_t *frame, size_t length, struct error *error)
{
	struct instance *instance = reader->instance;
	struct error refusal = {0};
	struct order *order = calloc(1, sizeof(*order));
	if (!order)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a call");
	enum status status = message_decode(&order->message, frame, length, &refusal);
	if (!status)
		status = check(instance, order, &refusal);
	order->message.body = NULL; // it lies in the frame
	if (!status && (order->kind == ORDER_GENERATE || order->kind == ORDER_EMBED))
		status = take_prompt(instance, order, &refusal);
	order->prompt_count = order->prompt.count;
	const bool counts = json_get_bool(order->message.params, "counts", false);
	if (!status && counts && !json_get_bool(order->message.params, "cached", false)) {
		struct json *result = json_new_object();
		json_set_integer(result, "prompt_tokens", (int64_t)order->prompt_count);
		instance_answer(instance, order->message.id, NULL, result);
		order_destroy(&order);
		return STATUS_OK;
	}
	if (!status && order->kind == ORDER_GENERATE && !counts)
		status = instance_take_form(instance, order, &refusal);
	if (!status && order->kind == ORDER_GENERATE && !counts)
		status = instance_take_tools(instance, order, &refusal);
	if (!status)
		status = take_tokens(json_get(order->message.params, "generated"), &order->prompt, &refusal);
	if (!status) {
		instance_put(instance, order);
		return STATUS_OK;
	}
	error_set(&refusal, status, "%s", status_text(status));
	instance_answer(instance, order->message.id, &refusal, NULL);
	order_destroy(&order);
	return STATUS_OK;
}

// Whether more may be taken from the server.
static bool has_room(struct instance *instance)
{
	pthread_mutex_lock(&instance->lock);
	bool room = instance->order_count < LIMIT_INSTANCE_ORDERS && !instance->full;
	pthread_mutex_unlock(&instance->lock);
	return room;
}

// Messages that have come whole, as long as there is room.
static enum status serve_messages(struct reader *reader, struct error *error)
{
	const uint8_t *frame;
	size_t length, used = 1;
	enum status status = STATUS_OK;
	while (!status && used && has_room(reader->instance)) {
		status = message_next(&reader->in, &frame, &length, &used);
		if (status)
			return error_set(error, STATUS_INVALID_REQUEST, "the server's bytes are not a framed message");
		if (used) {
			if (length >= LONG_BYTES)
				tell_busy(reader, length);
			status = server_call(reader, frame, length, error);
			buffer_consume(&reader->in, used);
		}
	}
	return status;
}

// Receive once into `in`. Errors: STATUS_UNAVAILABLE: the socket is at its end.
static enum status receive(int fd, struct buffer *in, struct error *error)
{
	if (buffer_reserve(in, READ_BYTES))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a message");
	uint8_t *to = in->data + in->length;
	ssize_t got = recv(fd, to, READ_BYTES, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return STATUS_OK;
	if (got <= 0)
		return STATUS_UNAVAILABLE;
	in->length += (size_t)got;
	in->data[in->length] = 0;
	return STATUS_OK;
}

// ---- the queue ----

// Send what the server takes at once. Errors: STATUS_UNAVAILABLE: it is gone.
static enum status send_queue(struct reader *reader)
{
	struct instance *instance = reader->instance;
	for (;;) {
		if (reader->sent == reader->sending.length) {
			pthread_mutex_lock(&instance->lock);
			struct buffer empty = reader->sending;
			buffer_clear(&empty);
			reader->sending = instance->queue;
			instance->queue = empty;
			pthread_mutex_unlock(&instance->lock);
			reader->sent = 0;
		}
		if (!reader->sending.length)
			return STATUS_OK;
		ssize_t wrote = send(instance->stream_fd, reader->sending.data + reader->sent,
				     reader->sending.length - reader->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return STATUS_OK;
		if (wrote < 0 && errno != EINTR)
			return STATUS_UNAVAILABLE;
		if (wrote <= 0)
			continue;
		reader->sent += (size_t)wrote;
		pthread_mutex_lock(&instance->lock);
		instance->unsent -= (size_t)wrote;
		if (instance->full && instance->unsent <= LIMIT_INSTANCE_QUEUE_BYTES / 2) {
			instance->full = false;
			pthread_cond_signal(&instance->changed);
		}
		pthread_mutex_unlock(&instance->lock);
	}
}

// Send the remaining answers, as far as the server reads them, and end the process.
static _Noreturn void end_process(struct reader *reader, const struct error *failure)
{
	int64_t until_ms = clock_steady_ms() + LAST_WORDS_MS;
	struct pollfd fd = {.fd = reader->instance->stream_fd, .events = POLLOUT};
	while (!send_queue(reader) && reader->sending.length && clock_steady_ms() < until_ms)
		poll(&fd, 1, LAST_WORDS_MS / 10);
	log_error("worker", "%s", failure->message);
	_exit(failure->status == STATUS_TIMEOUT ? WORKER_TIMED_OUT : WORKER_DEVICE_LOST);
}

// Whether the driver has failed, or is in a step for too long.
static void watch(struct reader *reader)
{
	struct instance *instance = reader->instance;
	pthread_mutex_lock(&instance->lock);
	bool failed = instance->failed;
	struct error failure = instance->failure;
	int64_t step_ns = instance->step_ns ? clock_steady_ns() - instance->step_ns : 0;
	pthread_mutex_unlock(&instance->lock);
	if (!failed && step_ns > LIMIT_STEP_MS * 1000000ll) {
		failed = true;
		error_set(&failure, STATUS_TIMEOUT, "a step of the model was not done within %d s",
			  LIMIT_STEP_MS / 1000);
	}
	if (failed)
		end_process(reader, &failure);
}

// ---- the thread ----

static enum status serve_server(struct reader *reader, const struct pollfd *fd, struct error *error)
{
	enum status status = send_queue(reader);
	if (!status && fd->revents & (POLLERR | POLLHUP))
		status = STATUS_UNAVAILABLE;
	if (!status)
		status = serve_messages(reader, error);
	// Not while a whole message waits for room that there may be by now.
	if (!status && fd->revents & POLLIN && message_left(&reader->in))
		status = receive(reader->instance->stream_fd, &reader->in, error);
	if (!status)
		status = serve_messages(reader, error);
	return status ? status : send_queue(reader); // answers of this thread's own
}

enum status instance_read(struct instance *instance, struct error *error)
{
	struct reader reader = {.instance = instance};
	enum status status = STATUS_OK;
	node_end_init(&reader.node,
		      &(struct node_end_params){.contract = instance->contract,
						.fd = instance->node_fd,
						.methods = node_methods,
						.method_count = sizeof(node_methods) / sizeof(node_methods[0]),
						.owner = instance});
	buffer_init(&reader.in, LIMIT_WORKER_MESSAGE_BYTES + LENGTHS_BYTES + READ_BYTES);
	buffer_init(&reader.sending, instance->queue.maximum);
	while (!status) {
		short more = (short)(has_room(instance) ? POLLIN : POLLRDHUP);
		short out = (short)(reader.sending.length ? POLLOUT : 0);
		struct pollfd fds[3] = {{.fd = instance->node_fd, .events = POLLIN},
					{.fd = instance->stream_fd, .events = (short)(more | out)},
					{.fd = instance->wake_fd, .events = POLLIN}};
		uint64_t times;
		if (poll(fds, 3, TICK_MS) < 0 && errno != EINTR) {
			status = error_errno(error, STATUS_INTERNAL, errno, "waiting for the sockets");
			break;
		}
		while (fds[2].revents & POLLIN && read(instance->wake_fd, &times, sizeof(times)) < 0 && errno == EINTR)
			;
		watch(&reader);
		if (fds[0].revents)
			status = node_end_serve(&reader.node, false, error);
		if (!status && more == POLLRDHUP && fds[1].revents & POLLRDHUP)
			status = STATUS_UNAVAILABLE;
		if (!status)
			status = serve_server(&reader, &fds[1], error);
	}
	node_end_finish(&reader.node);
	buffer_finish(&reader.in);
	buffer_finish(&reader.sending);
	return status == STATUS_UNAVAILABLE ? STATUS_OK : status;
}
