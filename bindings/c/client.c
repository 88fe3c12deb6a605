/* See engine/include/exogpu/exogpu_client.h: connections, and any method. */
#include "bindings/c/inside.h"
#include "common/net/tls/pairing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { USUAL_TIMEOUT_MS = 60000, KEEP_S = 3, MOST_CALL_MS = 24 * 3600 * 1000 };

// ---- the beginning and the end of a call ----

static void block_pipe(struct quiet *quiet)
{
	sigset_t pipe, waiting;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&waiting);
	quiet->pending = sigismember(&waiting, SIGPIPE) == 1;
	pthread_sigmask(SIG_BLOCK, &pipe, &quiet->before);
}

static void unblock_pipe(const struct quiet *quiet)
{
	static const struct timespec at_once = {0};
	sigset_t pipe, waiting;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&waiting);
	if (!quiet->pending && sigismember(&waiting, SIGPIPE) == 1)
		sigtimedwait(&pipe, NULL, &at_once);
	pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
}

void inside_begin(struct exogpu_client *client, struct quiet *quiet)
{
	block_pipe(quiet);
	pthread_mutex_lock(&client->lock);
}

void inside_end(struct exogpu_client *client, const struct quiet *quiet)
{
	pthread_mutex_unlock(&client->lock);
	unblock_pipe(quiet);
}

enum status inside_usable(const struct exogpu_client *client, struct error *error)
{
	if (client->client)
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "a call to %s was not answered in time, so this client is over",
		  client->target.name);
	error_hint(error, "close it and connect again; a longer timeout_ms may help");
	return STATUS_UNAVAILABLE;
}

enum status inside_wait(struct exogpu_client *client, int64_t id, struct json **result, struct error *error)
{
	bool late = false;
	struct client_wait wait = {.id = id, .timeout_ms = client->timeout_ms, .result = result, .late = &late};
	enum status status = inside_usable(client, error);
	if (!status)
		status = client_wait(client->client, &wait, error);
	if (late)
		client_close(&client->client);
	return status;
}

enum status inside_ask(struct exogpu_client *client, const struct inside_call *call, struct json **result,
		       struct error *error)
{
	struct json *params = call->params;
	int64_t id = 0;
	if (result)
		*result = NULL;
	enum status status = inside_usable(client, error);
	if (status) {
		json_destroy(&params);
		return status;
	}
	status = client_send(client->client,
			     &(struct client_call){.method = call->method, .params = params, .body = call->body}, &id,
			     error);
	return status ? status : inside_wait(client, id, result, error);
}

enum status inside_read_id(const struct json *result, const char *name, char id[EXOGPU_CLIENT_ID_BYTES],
			   struct error *error)
{
	const char *text = json_get_string(result, name, "");
	if (!text[0] || strlen(text) >= EXOGPU_CLIENT_ID_BYTES)
		return error_set(error, STATUS_INTERNAL, "the server's answer has no %s", name);
	snprintf(id, EXOGPU_CLIENT_ID_BYTES, "%s", text);
	return STATUS_OK;
}

// ---- between calls ----

static void *keep(void *arg)
{
	struct exogpu_client *client = arg;
	struct timespec until;
	pthread_mutex_lock(&client->lock);
	while (!client->over) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += KEEP_S;
		while (!client->over && !pthread_cond_timedwait(&client->over_now, &client->lock, &until))
			;
		if (!client->over && client->client)
			client_keep(client->client);
	}
	pthread_mutex_unlock(&client->lock);
	return NULL;
}

static enum status start_keeper(struct exogpu_client *client, struct error *error)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before); // the program's signals are for its own threads
	int failed = pthread_create(&client->keeper, NULL, keep, client);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failed ? error_errno(error, STATUS_UNAVAILABLE, failed, "no thread could be started") : STATUS_OK;
}

// ---- connect ----

static const char *or_environment(const char *given, const char *name)
{
	const char *value = given ? given : getenv(name);
	return value && value[0] ? value : NULL;
}

// A port that is not said is that of the scheme, as for the other clients.
static void usual_port(struct target *target, const char *url)
{
	const char *host = strstr(url, "://");
	if (!host)
		return;
	host += 3;
	const char *end = host[0] == '[' ? strchr(host, ']') : host;
	if (!end || !memchr(end, ':', strcspn(end, "/")))
		target->port = target->tls ? 443 : 80;
}

static enum status take_pin(struct trust *trust, const char *sha256, struct error *error)
{
	char digits[PAIRING_HEX_BYTES];
	size_t length = 0;
	for (const char *from = sha256; *from && length < sizeof(digits); from++)
		if (*from != ':')
			digits[length++] = (char)(*from >= 'A' && *from <= 'F' ? *from - 'A' + 'a' : *from);
	if (length == sizeof(digits) - 1) {
		digits[length] = 0;
		trust->pinned = pairing_read(digits, trust->authority_sha256);
	}
	if (!trust->pinned) {
		error_set(error, STATUS_INVALID_PARAMS, "ca_sha256 is not 64 hexadecimal digits");
		error_hint(error, "the server's log has it in the line \"authority:\"");
		return STATUS_INVALID_PARAMS;
	}
	snprintf(trust->from, sizeof(trust->from), "the SHA-256 of its authority");
	snprintf(trust->server_uri, sizeof(trust->server_uri), "exogpu:server:"); // of whichever cluster it vouches for
	return STATUS_OK;
}

static enum status take_trust(struct target *target, const struct exogpu_client_connect *params, struct error *error)
{
	const char *ca = or_environment(params->ca, "EXOGPU_CA");
	if (!target->tls && (params->ca || params->ca_sha256))
		return error_set(error, STATUS_INVALID_PARAMS, "ca and ca_sha256 are for an address with https://");
	if (params->ca && params->ca_sha256)
		return error_set(error, STATUS_INVALID_PARAMS, "ca and ca_sha256 each name an authority: give one");
	if (!target->tls)
		return STATUS_OK;
	if (params->ca_sha256)
		return take_pin(&target->trust, params->ca_sha256, error);
	if (ca && strcmp(ca, "system") != 0)
		return trust_read(&target->trust, ca, params->ca ? "ca" : "EXOGPU_CA", error);
	snprintf(target->trust.from, sizeof(target->trust.from), "the system's authorities");
	return STATUS_OK;
}

static enum status take_target(struct target *target, const struct exogpu_client_connect *params, struct error *error)
{
	const char *url = or_environment(params->url, "EXOGPU_URL");
	const char *token = or_environment(params->token, "EXOGPU_TOKEN");
	if (!url)
		url = "http://127.0.0.1:52415";
	enum status status = target_parse_url(target, url, params->url ? "url" : "EXOGPU_URL", error);
	if (status)
		return status;
	usual_port(target, url);
	target->guest = true;
	if (!token) {
		error_set(error, STATUS_UNAUTHENTICATED, "the server at %s needs a token", target->name);
		error_hint(error, "give token, or set EXOGPU_TOKEN; exogpu token create makes one");
		return STATUS_UNAUTHENTICATED;
	}
	size_t length = strcspn(token, " \t\r\n");
	if (token[length] || length >= sizeof(target->token)) {
		error_set(error, STATUS_INVALID_PARAMS, "that is not a token");
		error_hint(error, "a token begins with exo_ and is one word; copy it again");
		return STATUS_INVALID_PARAMS;
	}
	memcpy(target->token, token, length + 1);
	return take_trust(target, params, error);
}

static enum status prepare(struct exogpu_client *client, struct error *error)
{
	pthread_condattr_t steady;
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	int failed = pthread_cond_init(&client->over_now, &steady);
	pthread_condattr_destroy(&steady);
	if (!failed)
		failed = pthread_mutex_init(&client->lock, NULL);
	return failed ? error_errno(error, STATUS_UNAVAILABLE, failed, "no client could be made") : STATUS_OK;
}

static enum status open_client(struct exogpu_client *client, const struct exogpu_client_connect *params,
			       struct error *error)
{
	struct quiet quiet;
	enum status status = take_target(&client->target, params, error);
	if (!status)
		status = prepare(client, error);
	if (status)
		return status;
	block_pipe(&quiet);
	status = client_open(&client->client, &client->target, error);
	if (!status)
		status = start_keeper(client, error);
	if (status)
		client_close(&client->client);
	unblock_pipe(&quiet);
	return status;
}

enum status exogpu_client_connect(struct exogpu_client **out, const struct exogpu_client_connect *params,
				  struct error *error)
{
	if (!out || !params || params->timeout_ms < 0 || params->timeout_ms > MOST_CALL_MS)
		return error_set(error, STATUS_INVALID_PARAMS,
				 "out and params must not be NULL, nor timeout_ms be below 0 or more than a day");
	struct exogpu_client *client = calloc(1, sizeof(*client));
	*out = NULL;
	if (!client)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	client->timeout_ms = params->timeout_ms ? params->timeout_ms : USUAL_TIMEOUT_MS;
	enum status status = open_client(client, params, error);
	explicit_bzero(client->target.token, sizeof(client->target.token)); // it has done its work
	if (status)
		free(client);
	else
		*out = client;
	return status;
}

void exogpu_client_close(struct exogpu_client **pointer)
{
	struct exogpu_client *client = pointer ? *pointer : NULL;
	struct quiet quiet;
	if (!client)
		return;
	*pointer = NULL;
	pthread_mutex_lock(&client->lock);
	client->over = true;
	pthread_cond_signal(&client->over_now);
	pthread_mutex_unlock(&client->lock);
	pthread_join(client->keeper, NULL);
	block_pipe(&quiet);
	client_close(&client->client); // from here on what is left is forgotten, and asks nothing of the server
	unblock_pipe(&quiet);
	while (client->buffers)
		exogpu_client_buffer_destroy(&(struct exogpu_client_buffer *){client->buffers});
	while (client->modules)
		exogpu_client_module_unload(&(struct exogpu_client_module *){client->modules});
	pthread_cond_destroy(&client->over_now);
	pthread_mutex_destroy(&client->lock);
	free(client);
}

// ---- any method ----

enum status exogpu_client_call(struct exogpu_client *client, const char *method, const char *params, char **result,
			       struct error *error)
{
	struct json *given = NULL, *answer = NULL;
	struct buffer text;
	struct quiet quiet;
	if (!client || !method || !result)
		return error_set(error, STATUS_INVALID_PARAMS, "client, method and result must not be NULL");
	*result = NULL;
	enum status status = params ? json_parse(&given, params, strlen(params), error) : STATUS_OK;
	if (status)
		return status;
	inside_begin(client, &quiet);
	status = inside_ask(client, &(struct inside_call){.method = method, .params = given}, &answer, error);
	inside_end(client, &quiet);
	buffer_init(&text, SIZE_MAX);
	if (!status && json_print(answer, &text))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the answer");
	json_destroy(&answer);
	if (status)
		buffer_finish(&text);
	else
		*result = (char *)text.data; // with a 0 behind it
	return status;
}
