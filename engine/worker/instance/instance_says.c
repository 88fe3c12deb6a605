/* A test puts words into the model's mouth: for each request it says the text, and the worker proposes its tokens to
 * the sampler, one at each step. All else is as ever: the step is computed, the form's mask, detokeniser and parser
 * work on what comes. A token that the form forbids ends the request with an error.
 *
 * EXOGPU_TEST_SAYS names a socket (AF_UNIX, stream) at which the test listens. The worker writes the parameters of
 * generate.start as a line of JSON, and waits for a line {"text": "...", "ends": true}: control tokens are named in the
 * text as they are written in templates; with `ends` a token that ends the answer follows. With {} the model says what
 * its weights say.
 *
 * A release build (NDEBUG) has none of this: no request is asked for, and the variable's name is not in the program.
 * See instance.h. */
#include "engine/worker/instance/instance.h"

uint32_t request_said(void *context, size_t generated)
{
	const struct request *request = context;
	return generated < request->said.count ? request->said.tokens[generated] : SAMPLER_NO_TOKEN;
}

#ifdef NDEBUG

void instance_says_connect(void)
{
}

enum status request_ask_test(struct request *request, const struct order *order, struct error *error)
{
	(void)request, (void)order, (void)error;
	return STATUS_OK;
}

#else

#include "common/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SAYS_MOST_BYTES = 16 * 1024 * 1024, SAYS_WAIT_MS = 60000 };

static int says_fd = -1; // -1: no test

void instance_says_connect(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("EXOGPU_TEST_SAYS");
	if (!path || !*path)
		return;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
		log_error("worker", "EXOGPU_TEST_SAYS: %s: %s", path, strerror(errno));
		_exit(1);
	}
	says_fd = fd;
}

static enum status write_all(const struct buffer *line)
{
	for (size_t sent = 0; sent < line->length;) {
		const ssize_t count = write(says_fd, line->data + sent, line->length - sent);
		if (count <= 0 && errno != EINTR)
			return STATUS_UNAVAILABLE;
		sent += count > 0 ? (size_t)count : 0;
	}
	return STATUS_OK;
}

static enum status read_line(struct buffer *line)
{
	char bytes[65536];
	while (!line->length || line->data[line->length - 1] != '\n') {
		struct pollfd wait = {.fd = says_fd, .events = POLLIN};
		const ssize_t count = poll(&wait, 1, SAYS_WAIT_MS) == 1 ? read(says_fd, bytes, sizeof(bytes)) : 0;
		if (count <= 0)
			return STATUS_UNAVAILABLE;
		buffer_append(line, bytes, (size_t)count);
		if (line->failed)
			return STATUS_UNAVAILABLE;
	}
	return STATUS_OK;
}

static enum status exchange(const struct json *params, struct json **said, struct error *error)
{
	struct buffer line;
	buffer_init(&line, SAYS_MOST_BYTES);
	enum status status = json_print(params, &line);
	buffer_append_text(&line, "\n");
	if (!status)
		status = write_all(&line);
	buffer_clear(&line);
	if (!status)
		status = read_line(&line);
	if (!status)
		status = json_parse(said, buffer_text(&line), line.length, error);
	buffer_finish(&line);
	return status ? error_set(error, status, "the test that says what the model says gave no answer") : STATUS_OK;
}

// The first mark in the text, at *at; NULL: there is none, and *at is its end.
static const struct mark_token *find_mark(const struct instance *instance, const char *text, const char **at)
{
	const struct mark_token *found = NULL;
	*at = text + strlen(text);
	for (size_t i = 0; i < instance->mark_count; i++) {
		const char *place = strstr(text, instance->marks[i].bytes + 1);
		if (place && place < *at) {
			*at = place;
			found = &instance->marks[i];
		}
	}
	return found;
}

// Each text between marks goes on from what is before it: no space of SentencePiece's comes first.
static enum status add_text(struct request *request, const char *text, struct error *error)
{
	enum status status = STATUS_OK;
	while (!status && *text) {
		const char *end;
		const struct mark_token *mark = find_mark(request->instance, text, &end);
		const struct tokenize_params params = {
			.text = text, .length = (size_t)(end - text), .special = true, .continues = true};
		status = tokenize(request->instance->tokenizer, &params, &request->said, error);
		if (!status && mark)
			status = token_list_add(&request->said, mark->token);
		text = mark ? end + strlen(mark->bytes + 1) : end;
	}
	return status;
}

static enum status add_end(struct request *request)
{
	const uint32_t vocabulary = model_shape(request->instance->model)->vocabulary;
	for (uint32_t token = 0; token < vocabulary; token++)
		if (tokenizer_ends(request->instance->tokenizer, token))
			return token_list_add(&request->said, token);
	return STATUS_OK;
}

enum status request_ask_test(struct request *request, const struct order *order, struct error *error)
{
	struct json *said = NULL;
	if (says_fd < 0)
		return STATUS_OK;
	request->came = order->prompt.count - order->prompt_count;
	enum status status = exchange(order->message.params, &said, error);
	const char *text = json_get_string(said, "text", NULL);
	if (!status && text)
		status = add_text(request, text, error);
	if (!status && text && json_get_bool(said, "ends", false))
		status = add_end(request);
	json_destroy(&said);
	return status;
}

#endif
