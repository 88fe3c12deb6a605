/* See fetch_inside.h: one download, from its URL to its last byte. The first answer describes the
 * file: its length, its ETag or SHA-256, and whether the server supports ranges. Then every idle
 * connection takes the first range that is neither there nor in flight. Failed ranges are requested
 * again after a delay that doubles. If the server shows that the file has changed, the download starts
 * again. The file is inspected as soon as its header is there: an unsupported model is not fetched to
 * its end. */
#include "common/base/clock.h"
#include "server/hub/fetch_inside.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
	MEBIBYTE = 1024 * 1024,
	PIECE_LEAST = MEBIBYTE,
	PIECE_MOST = 32 * MEBIBYTE,
	PIECES = 16, // of a file, where that is between the two
	DELAY_MS = 500,
	DELAY_MOST_MS = 60000,
};

static void cancel_connections(struct fetch_job *job)
{
	for (size_t i = 0; i < LIMIT_FETCH_CONNECTIONS; i++)
		web_cancel(&job->connections[i].question);
}

static bool busy(const struct fetch_job *job)
{
	bool any = job->finding != NULL;
	for (size_t i = 0; i < LIMIT_FETCH_CONNECTIONS; i++)
		any |= job->connections[i].question != NULL;
	return any;
}

void fetch_job_destroy(struct fetch_job **pointer, bool forget)
{
	struct fetch_job *job = *pointer;
	*pointer = NULL;
	if (!job)
		return;
	cancel_connections(job);
	web_cancel(&job->finding);
	fetch_part_finish(&job->part);
	if (forget) {
		unlink(job->part.path);
		unlink(job->part.journal);
	}
	if (job->token)
		OPENSSL_cleanse(job->token, strlen(job->token));
	free(job->token);
	free(job->part_sha256s);
	fetch_weights_destroy(&job->weights);
	buffer_finish(&job->answer);
	free(job);
}

// ---- models in several files ----

unsigned fetch_job_files(const struct fetch_job *job)
{
	return job->weights ? fetch_weights_count(job->weights) : job->source.parts;
}

enum status fetch_job_take_part(struct fetch_job *job, unsigned number, struct error *error)
{
	char file[FETCH_PATH_BYTES];
	if (!job->weights && !job->part_sha256s)
		job->part_sha256s = calloc(job->source.parts, sizeof *job->part_sha256s);
	if (job->weights ? !fetch_weights_file(job->weights, number, file, sizeof file)
			 : !job->part_sha256s || !fetch_part_file(job->file, number, file, sizeof file))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a download");
	fetch_part_init(&job->part, file);
	job->number = number;
	job->promised = (struct fetch_identity){.bytes = -1};
	job->led_to[0] = job->url[0] = 0;
	job->identified = job->single = false;
	job->restarts = 0;
	if (job->weights)
		fetch_weights_promise(job);
	job->whole = fetch_part_complete(&job->part);
	return STATUS_OK;
}

// All of the file is there: the next one, if there is one.
static void complete(struct fetch_job *job)
{
	struct error error = {0};
	const enum status status = job->weights ? fetch_weights_took(job, &error) : STATUS_OK;
	if (status) {
		error_set(&error, status, "%s", status_text(status)); // where nothing was said
		fetch_job_end(job, &error);
		return;
	}
	if (job->part_sha256s)
		snprintf(job->part_sha256s[job->number - 1], sizeof *job->part_sha256s, "%s",
			 job->part.identity.sha256);
	if (job->number == fetch_job_files(job)) {
		fetch_job_end(job, NULL);
		return;
	}
	job->before_bytes += job->part.done_bytes;
	fetch_part_finish(&job->part); // what it says of the file holds from now on
	if (fetch_job_take_part(job, job->number + 1, &error))
		fetch_job_failed(job, &error, true, 0);
	web_wake(job->fetcher->web); // it is asked for at once
}

// ---- what goes wrong ----

void fetch_explain(const struct fetch_headers *headers, const char *url, bool token, bool *final, struct error *error)
{
	char host[FETCH_ORIGIN_BYTES];
	const long status = headers->status;
	fetch_host(url, host);
	*final = status >= 400 && status < 500 && status != 429 && status != 408 && status != 425;
	if (status == 401 || status == 403) {
		error_set(error, STATUS_FORBIDDEN, "%.100s refuses access (HTTP %ld)", host, status);
		error_hint(error,
			   token ? "the access token does not open it: accept the model's terms there, or take "
				   "another token"
				 : "it may need an access token, as gated and private repositories do: accept the "
				   "model's terms on its page there, make a token that may read, and add the model "
				   "again with it (exogpu model add --token-file FILE)");
	} else if (status == 404 || status == 410) {
		error_set(error, STATUS_NOT_FOUND, "%.100s does not have it (HTTP %ld)", host, status);
	} else if (status == 429) {
		error_set(error, STATUS_RATE_LIMITED, "%.100s asks us to wait (HTTP 429)", host);
	} else {
		error_set(error, STATUS_UNAVAILABLE, "%.100s answers with HTTP %ld", host, status);
	}
}

static int64_t delay_ms(unsigned failures)
{
	uint32_t random = 0;
	int64_t delay = DELAY_MS;
	for (unsigned i = 1; i < failures && delay < DELAY_MOST_MS; i++)
		delay *= 2;
	if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
		random = 0x80000000;
	return delay / 2 + (int64_t)((double)delay * random / 4294967296.0); // half to one and a half
}

// Put the name of the file before the error, where a model has several.
static void say_file(const struct fetch_job *job, struct error *error)
{
	const struct error whole = *error;
	if (!fetch_job_files(job))
		return;
	*error = (struct error){0};
	if (job->weights)
		error_set(error, whole.status, "%.100s: %s", fetch_weights_name(job), whole.message);
	else
		error_set(error, whole.status, "part %u of %u: %s", job->number, job->source.parts, whole.message);
	if (whole.hint[0])
		error_hint(error, "%s", whole.hint);
}

void fetch_job_failed(struct fetch_job *job, const struct error *why, bool final, int64_t wait_s)
{
	const int64_t now_ms = clock_steady_ms();
	struct error error = *why;
	if (job->ended)
		return;
	if (!final && job->due_ms > now_ms && !wait_s)
		return; // one of several connections that broke together
	job->retries++;
	job->failures = job->part.done_bytes - job->failed_at_bytes >= MEBIBYTE ? 1 : job->failures + 1;
	job->failed_at_bytes = job->part.done_bytes;
	if (job->failures > LIMIT_FETCH_FAILURES) {
		error_hint(&error, "it was tried several times; add the model again later: the download continues");
		final = true;
	}
	if (final) {
		cancel_connections(job);
		web_cancel(&job->finding);
		say_file(job, &error);
		fetch_job_end(job, job->whole && !fetch_job_files(job) ? NULL : &error);
		return;
	}
	const int64_t delay = wait_s ? wait_s * 1000 : delay_ms(job->failures);
	if (now_ms + delay > job->due_ms)
		job->due_ms = now_ms + delay;
	snprintf(job->reason, sizeof job->reason, "%.190s", error.message);
	if (job->single) { // it cannot be gone on with
		fetch_part_reset(&job->part);
		job->identified = job->single = false;
	}
}

// The file is not what it was.
static void start_anew(struct fetch_job *job)
{
	struct error error = {0};
	cancel_connections(job);
	fetch_part_reset(&job->part);
	job->identified = job->single = false;
	job->promised = (struct fetch_identity){.bytes = -1};
	job->led_to[0] = job->url[0] = 0;
	if (++job->restarts > LIMIT_FETCH_RESTARTS) {
		error_set(&error, STATUS_UNAVAILABLE, "the file changed during the download");
		fetch_job_failed(job, &error, true, 0);
	}
}

// ---- what a connection hears ----

static bool fault(struct fetch_job *job, enum status status, const char *what)
{
	error_set(&job->fault, status, "%s", what);
	return false;
}

static void on_redirect(void *context, const struct fetch_headers *headers)
{
	struct fetch_job *job = ((struct fetch_connection *)context)->job;
	if (!job->promised.sha256[0])
		snprintf(job->promised.sha256, sizeof job->promised.sha256, "%s", headers->linked_sha256);
	if (job->promised.bytes < 0)
		job->promised.bytes = headers->linked_bytes;
}

static bool changed(const struct fetch_job *job, const struct fetch_identity *is)
{
	const struct fetch_identity *was = &job->part.identity;
	if (was->bytes != is->bytes)
		return true;
	if (was->sha256[0] && is->sha256[0])
		return strcmp(was->sha256, is->sha256) != 0;
	return was->etag[0] && is->etag[0] && strcmp(was->etag, is->etag) != 0;
}

// The first answer: what the file is, and how much of it is there already.
static bool identify(struct fetch_connection *connection, const struct fetch_identity *identity)
{
	bool anew;
	struct fetch_job *job = connection->job;
	if (job->promised.bytes > 0 && identity->bytes >= 0 && identity->bytes != job->promised.bytes)
		return fault(job, STATUS_UNAVAILABLE, "the file has another length than the hub says");
	if (fetch_part_open(&job->part, identity, &anew, &job->fault))
		return false;
	job->identified = true;
	job->told_bytes = job->failed_at_bytes = job->part.done_bytes;
	job->bytes_per_s = -1;
	connection->from_start = anew && connection->span.first;
	return !connection->from_start;
}

static bool accept_whole(struct fetch_connection *connection, const struct fetch_headers *headers,
			 struct fetch_identity *identity)
{
	struct fetch_job *job = connection->job;
	if (job->identified)
		return false; // If-Range: it has changed; on_answer sees to it
	identity->bytes = headers->length;
	if (identity->bytes == 0)
		return fault(job, STATUS_UNAVAILABLE, "the file is empty");
	fetch_part_reset(&job->part);
	job->single = true;
	connection->span = (struct fetch_span){.first = 0, .end = identity->bytes > 0 ? identity->bytes : INT64_MAX};
	connection->at = 0;
	return identify(connection, identity);
}

static bool accept_range(struct fetch_connection *connection, const struct fetch_headers *headers,
			 struct fetch_identity *identity)
{
	struct fetch_job *job = connection->job;
	identity->bytes = headers->total;
	if (headers->first != connection->span.first || headers->total <= 0)
		return fault(job, STATUS_UNAVAILABLE, "the server sends other bytes than requested");
	if (job->identified && changed(job, identity))
		return false;
	if (headers->last + 1 < connection->span.end)
		connection->span.end = headers->last + 1;
	return job->identified || identify(connection, identity);
}

static bool on_begin(void *context, const struct fetch_headers *headers, const char *url)
{
	struct fetch_connection *connection = context;
	struct fetch_job *job = connection->job;
	struct fetch_identity identity = {.bytes = -1};
	if (headers->status != 200 && headers->status != 206)
		return false;
	if (headers->encoded)
		return fault(job, STATUS_UNAVAILABLE, "the server compresses what it sends");
	snprintf(identity.etag, sizeof identity.etag, "%s", headers->etag);
	snprintf(identity.sha256, sizeof identity.sha256, "%s",
		 job->promised.sha256[0] ? job->promised.sha256 : headers->linked_sha256);
	connection->accepted = headers->status == 200 ? accept_whole(connection, headers, &identity)
						      : accept_range(connection, headers, &identity);
	if (connection->accepted && strcmp(url, job->url) != 0)
		snprintf(job->led_to, sizeof job->led_to, "%s", url);
	return connection->accepted;
}

// Of a file whose length nobody says, and of one that is there already, it is left to the end.
static bool judge(struct fetch_job *job)
{
	if (fetch_job_files(job))
		return true;
	const enum status status = fetch_part_judge(&job->part, &job->fault);
	if (status && status != STATUS_OUT_OF_MEMORY)
		job->unusable = true; // also of what another connection still brings
	return !status;
}

static bool on_body(void *context, const uint8_t *bytes, size_t length)
{
	struct fetch_connection *connection = context;
	struct fetch_job *job = connection->job;
	const int64_t most = connection->span.end != INT64_MAX ? connection->span.end
			     : job->promised.bytes > 0         ? job->promised.bytes
							       : LIMIT_MODEL_FILE_GIB * (1024LL * MEBIBYTE);
	if ((int64_t)length > most - connection->at)
		return fault(job, STATUS_UNAVAILABLE, "the server sends more than it announced");
	if (!job->weights && fetch_part_begins(connection->at, bytes, length, &job->fault)) {
		job->unusable = true;
		return false;
	}
	if (fetch_part_write(&job->part, connection->at, bytes, length, &job->fault))
		return false;
	connection->at += (int64_t)length;
	return judge(job);
}

// An HTTP status that brings no bytes.
static void refused(struct fetch_connection *connection, const struct web_answer *answer)
{
	bool final;
	struct error error = {0};
	struct fetch_job *job = connection->job;
	const long status = answer->headers->status;
	if (status == 416 && (job->identified || connection->span.first)) {
		start_anew(job);
		return;
	}
	fetch_explain(answer->headers, answer->url, job->token != NULL, &final, &error);
	if (connection->led) { // that may have run out, so the way is gone again
		job->led_to[0] = 0;
		final = false;
	}
	fetch_job_failed(job, &error, final, fetch_headers_wait_s(answer->headers));
}

static void on_answer(void *context, const struct web_answer *answer)
{
	struct fetch_connection *connection = context;
	struct fetch_job *job = connection->job;
	struct error error = {0};
	const long status = answer->headers->status;
	connection->question = NULL;
	if (job->ended)
		return;
	if (job->fault.status) {
		fetch_job_failed(job, &job->fault, true, 0);
	} else if (answer->status) {
		fetch_job_failed(job, &answer->error, answer->final, 0);
	} else if (status != 200 && status != 206) {
		refused(connection, answer);
	} else if (!connection->accepted) {
		if (!connection->from_start)
			start_anew(job);
	} else if (connection->span.end == INT64_MAX) {
		job->part.identity.bytes = connection->at;
	} else if (connection->at < connection->span.end) {
		error_set(&error, STATUS_UNAVAILABLE, "the connection broke");
		fetch_job_failed(job, &error, false, 0);
	}
}

// ---- asking ----

static size_t list_taken(const struct fetch_job *job, struct fetch_span taken[LIMIT_FETCH_CONNECTIONS])
{
	size_t count = 0;
	for (size_t i = 0; i < LIMIT_FETCH_CONNECTIONS; i++)
		if (job->connections[i].question)
			taken[count++] = job->connections[i].span;
	return count;
}

static int64_t piece_bytes(const struct fetch_job *job)
{
	const int64_t share = job->part.identity.bytes / PIECES;
	if (!job->identified || share < PIECE_LEAST)
		return PIECE_LEAST;
	return share > PIECE_MOST ? PIECE_MOST : share;
}

// False: there is nothing more to ask for.
static bool ask(struct fetch_job *job, struct fetch_connection *connection)
{
	struct error error = {0};
	struct fetch_span taken[LIMIT_FETCH_CONNECTIONS];
	const size_t count = list_taken(job, taken);
	if (!fetch_part_next(&job->part, taken, count, piece_bytes(job), &connection->span))
		return false;
	const struct fetch_identity *identity = &job->part.identity;
	const bool guard = job->identified && identity->etag[0] && !identity->sha256[0];
	const struct web_params params = {.url = job->led_to[0] ? job->led_to : job->url,
					  .from = job->led_to[0] ? job->url : NULL,
					  .token = job->token,
					  .if_range = guard ? identity->etag : NULL,
					  .first = connection->span.first,
					  .last = connection->span.end - 1,
					  .redirect = on_redirect,
					  .begin = on_begin,
					  .body = on_body,
					  .done = on_answer,
					  .context = connection};
	connection->at = connection->span.first;
	connection->accepted = connection->from_start = false;
	connection->led = job->led_to[0] != 0;
	if (web_ask(job->fetcher->web, &params, &connection->question, &error)) {
		fetch_job_failed(job, &error, error.status == STATUS_INVALID_PARAMS, 0);
		return false;
	}
	return true;
}

void fetch_job_begin(struct fetch_job *job)
{
	job->whole = fetch_part_complete(&job->part); // a stop came between the last byte and its end
}

void fetch_job_found(struct fetch_job *job)
{
	fetch_job_tick(job);
}

void fetch_job_tick(struct fetch_job *job)
{
	struct error error = {0};
	if (job->ended || clock_steady_ms() < job->due_ms)
		return;
	job->due_ms = 0;
	if (!job->url[0]) {
		if (!busy(job))
			fetch_job_find(job);
		return;
	}
	fetch_job_ask_advice(job);
	if ((job->whole || (job->identified && fetch_part_complete(&job->part))) && !busy(job)) {
		if (!job->advised)
			return;
		complete(job);
		return;
	}
	if (job->whole)
		return;
	if (fetch_part_save(&job->part, false, &error)) {
		fetch_job_failed(job, &error, true, 0);
		return;
	}
	const size_t wanted = job->identified && !job->single ? LIMIT_FETCH_CONNECTIONS : 1;
	for (size_t i = 0; i < wanted; i++)
		if (!job->connections[i].question && !ask(job, &job->connections[i]))
			break;
}
