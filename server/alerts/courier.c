/* See courier.h. */
#include "server/alerts/courier.h"

#include "common/work/outbox.h"
#include "server/hub/fetch_web.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MOST = 10, IDLE_MS = 60000, BUSY_MS = 1000 };

// An attempt. It belongs to the courier's thread from courier_send until it is posted to the outbox.
struct attempt {
	struct outbox_item item; // first member
	struct attempt *next;    // of those that wait, or that are under way
	struct courier *courier;
	struct web_question *question;
	struct courier_letter letter;
	char *url, *body, *fields[FIELDS_MOST];
	char answer[COURIER_ANSWER_BYTES];
	size_t answer_bytes;
	struct courier_result result;
};

struct courier {
	struct outbox *outbox;
	struct web *web;
	pthread_t thread;
	bool started;
	struct attempt *under_way; // the courier's thread
	pthread_mutex_t lock;
	// Under lock.
	struct attempt *first, **end;
	bool stop;
};

static void attempt_free(struct attempt *attempt)
{
	for (size_t i = 0; i < FIELDS_MOST; i++) {
		if (attempt->fields[i])
			OPENSSL_cleanse(attempt->fields[i], strlen(attempt->fields[i]));
		free(attempt->fields[i]);
	}
	if (attempt->url)
		OPENSSL_cleanse(attempt->url, strlen(attempt->url));
	free(attempt->url);
	free(attempt->body);
	free(attempt);
}

static void deliver(struct outbox_item *item, bool tell)
{
	struct attempt *attempt = (struct attempt *)item;
	if (tell)
		attempt->letter.done(attempt->letter.context, &attempt->result);
	else
		attempt->letter.drop(attempt->letter.context);
	attempt_free(attempt);
}

// ---- the thread ----

static bool take_answer(void *context, const struct fetch_headers *headers, const char *url)
{
	(void)context, (void)headers, (void)url;
	return true;
}

static bool take_body(void *context, const uint8_t *bytes, size_t length)
{
	struct attempt *attempt = context;
	const size_t room = sizeof attempt->answer - attempt->answer_bytes, taken = length < room ? length : room;
	memcpy(attempt->answer + attempt->answer_bytes, bytes, taken);
	attempt->answer_bytes += taken;
	return length < room;
}

static void finish(struct attempt *attempt)
{
	struct attempt **at = &attempt->courier->under_way;
	while (*at != attempt)
		at = &(*at)->next;
	*at = attempt->next;
	outbox_post(attempt->courier->outbox, &attempt->item);
}

static void answered(void *context, const struct web_answer *answer)
{
	struct attempt *attempt = context;
	struct courier_result *result = &attempt->result;
	const long status = answer->headers->status;
	if (answer->status) {
		snprintf(result->message, sizeof result->message, "%s", answer->error.message);
	} else {
		result->http_status = status;
		result->delivered = status >= 200 && status < 300;
		result->retry_after_s = fetch_headers_wait_s(answer->headers);
		result->answer = attempt->answer;
		result->answer_bytes = attempt->answer_bytes;
		if (status >= 300 && status < 400)
			snprintf(result->message, sizeof result->message,
				 "the receiver answered %ld, and redirects are not followed", status);
		else if (!result->delivered)
			snprintf(result->message, sizeof result->message, "the receiver answered %ld", status);
	}
	finish(attempt);
}

static void begin(struct courier *courier, struct attempt *attempt)
{
	struct error error = {0};
	const struct web_post post = {.body = attempt->body,
				      .length = strlen(attempt->body),
				      .fields = (const char *const *)attempt->fields,
				      .field_count = attempt->letter.field_count};
	const struct web_params params = {.url = attempt->url,
					  .first = -1,
					  .limit_ms = COURIER_MS,
					  .post = &post,
					  .begin = take_answer,
					  .body = take_body,
					  .done = answered,
					  .context = attempt};
	attempt->next = courier->under_way;
	courier->under_way = attempt;
	if (!web_ask(courier->web, &params, &attempt->question, &error))
		return;
	snprintf(attempt->result.message, sizeof attempt->result.message, "%s", error.message);
	finish(attempt);
}

// False: the thread is to end.
static bool take_waiting(struct courier *courier)
{
	pthread_mutex_lock(&courier->lock);
	struct attempt *attempt = courier->first;
	courier->first = NULL;
	courier->end = &courier->first;
	const bool stop = courier->stop;
	pthread_mutex_unlock(&courier->lock);
	for (struct attempt *next; attempt; attempt = next) {
		next = attempt->next;
		begin(courier, attempt);
	}
	return !stop;
}

static void *thread_main(void *argument)
{
	struct courier *courier = argument;
	while (take_waiting(courier))
		web_run(courier->web, courier->under_way ? BUSY_MS : IDLE_MS);
	while (courier->under_way) {
		struct attempt *attempt = courier->under_way;
		web_cancel(&attempt->question);
		finish(attempt);
	}
	return NULL;
}

// ---- life ----

enum status courier_create(struct courier **out, struct net_loop *loop, const char *const *hosts, size_t count,
			   struct error *error)
{
	struct courier *courier = calloc(1, sizeof(*courier));
	*out = courier;
	if (!courier)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to send messages");
	pthread_mutex_init(&courier->lock, NULL);
	courier->end = &courier->first;
	enum status status = outbox_create(&courier->outbox, loop, error);
	if (!status)
		status = web_create(&courier->web, hosts, count, error);
	if (!status) {
		status = outbox_start_thread(&courier->thread, thread_main, courier, error);
		courier->started = !status;
	}
	return status;
}

void courier_destroy(struct courier **pointer)
{
	struct courier *courier = *pointer;
	if (!courier)
		return;
	*pointer = NULL;
	if (courier->started) {
		pthread_mutex_lock(&courier->lock);
		courier->stop = true;
		pthread_mutex_unlock(&courier->lock);
		web_wake(courier->web);
		pthread_join(courier->thread, NULL);
	}
	outbox_destroy(&courier->outbox);
	web_destroy(&courier->web);
	pthread_mutex_destroy(&courier->lock);
	free(courier);
}

enum status courier_check(const struct courier *courier, char *url, size_t size, struct error *error)
{
	char plain[FETCH_URL_BYTES];
	if (!fetch_resolve(url, url, plain) || strlen(plain) >= size) {
		error_set(error, STATUS_INVALID_PARAMS, "this is no URL that alerts can be sent to");
		error_hint(error, "give one such as https://hooks.example.com/exogpu, without a user name in it");
		return STATUS_INVALID_PARAMS;
	}
	memcpy(url, plain, strlen(plain) + 1);
	const bool secure = !strncmp(url, "https:", 6);
	if (web_may_post(courier->web, url) && (secure || web_is_trusted(courier->web, url)))
		return STATUS_OK;
	error_set(error, STATUS_FORBIDDEN,
		  secure ? "alerts are not sent to private addresses by themselves"
			 : "alerts are not sent without TLS by themselves");
	error_hint(error, "use an https:// URL of a public address, or start the server with --alert-host HOST to "
			  "allow this one");
	return STATUS_FORBIDDEN;
}

enum status courier_send(struct courier *courier, const struct courier_letter *letter)
{
	struct attempt *attempt = calloc(1, sizeof(*attempt));
	if (!attempt)
		return STATUS_OUT_OF_MEMORY;
	attempt->item.deliver = deliver;
	attempt->courier = courier;
	attempt->letter = *letter;
	attempt->url = strdup(letter->url);
	attempt->body = strdup(letter->body);
	bool made = attempt->url && attempt->body && letter->field_count <= FIELDS_MOST;
	for (size_t i = 0; made && i < letter->field_count; i++)
		made = (attempt->fields[i] = strdup(letter->fields[i])) != NULL;
	if (!made) {
		attempt_free(attempt);
		return STATUS_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&courier->lock);
	*courier->end = attempt;
	courier->end = &attempt->next;
	pthread_mutex_unlock(&courier->lock);
	web_wake(courier->web);
	return STATUS_OK;
}
