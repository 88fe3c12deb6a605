/* Large bodies are read on a thread of their own: a million numbers take longer than the loop may stand still.
 *
 *     openai_posted -> given (queue) -> parsed and read, on the thread -> openai_read_through, on the loop
 *
 * The answer is the thread's meanwhile, but for its place in the list; one whose client goes is ended once it is back.
 * Of what may wait there is something left for those who come later, however much one token sends; and tokens take
 * turns. Owns the thread, and copies of bodies that wait. */
#include "common/base/limits.h"
#include "server/http/openai_inside.h"
#include "server/hub/outbox.h"

#include <stdlib.h>
#include <string.h>

enum { BODIES_SHARE = 3 }; // a token's bodies are at most so many times the bytes that are left

struct openai_job {
	struct outbox_item item;         // first member
	struct openai_job *next;         // of the queue
	struct openai_job *later, **all; // of those that are not back; of the loop
	struct openai_parser *parser;
	struct answer *answer;
	const void *owner; // its token: compared, nothing else
	struct openai_reading reading;
	size_t length;
	char body[]; // (length)
};

struct openai_parser {
	struct outbox *outbox;
	pthread_t thread;
	bool started;
	// Of the loop: bodies, until they are back.
	struct openai_job *all;
	size_t waiting_bytes;
	pthread_mutex_t lock;
	pthread_cond_t work;
	// Under lock:
	struct openai_job *first, **last;
	const void *last_owner;
	bool stop;
};

static void job_destroy(struct openai_job *job)
{
	openai_reading_finish(&job->reading);
	free(job);
}

static void deliver(struct outbox_item *item, bool tell)
{
	struct openai_job *job = (struct openai_job *)item;
	job->parser->waiting_bytes -= job->length;
	*job->all = job->later;
	if (job->later)
		job->later->all = job->all;
	if (tell)
		openai_read_through(job->answer, &job->reading);
	job_destroy(job);
}

// Under the lock: the oldest of another token than the last one's, if there is one.
static struct openai_job *take_next(struct openai_parser *parser)
{
	struct openai_job **at = &parser->first, *job;
	while (*at && (*at)->owner == parser->last_owner)
		at = &(*at)->next;
	if (!*at)
		at = &parser->first;
	job = *at;
	if (!job)
		return NULL;
	*at = job->next;
	if (!*at)
		parser->last = at;
	parser->last_owner = job->owner;
	return job;
}

static void *parser_main(void *argument)
{
	struct openai_parser *parser = argument;
	for (;;) {
		pthread_mutex_lock(&parser->lock);
		while (!parser->first && !parser->stop)
			pthread_cond_wait(&parser->work, &parser->lock);
		struct openai_job *job = parser->stop ? NULL : take_next(parser);
		pthread_mutex_unlock(&parser->lock);
		if (!job)
			return NULL;
		openai_read_body(job->answer, job->body, job->length, &job->reading);
		outbox_post(parser->outbox, &job->item);
	}
}

static enum status check_room(const struct openai_parser *parser, const void *owner, size_t length, struct error *error)
{
	const size_t waiting = parser->waiting_bytes + length, left = LIMIT_BODIES_BYTES - parser->waiting_bytes;
	size_t own = length;
	for (const struct openai_job *one = parser->all; one; one = one->later)
		own += one->owner == owner ? one->length : 0;
	if (length > left)
		error_set(error, STATUS_RATE_LIMITED, "%zu bytes of requests already wait to be read",
			  parser->waiting_bytes);
	else if (own > BODIES_SHARE * (LIMIT_BODIES_BYTES - waiting))
		error_set(error, STATUS_RATE_LIMITED,
			  "%zu bytes of requests of this token already wait to be read: the rest of %d is for other "
			  "tokens",
			  own - length, LIMIT_BODIES_BYTES);
	else
		return STATUS_OK;
	error_hint(error, "try again in a few seconds");
	return STATUS_RATE_LIMITED;
}

enum status openai_parser_take(struct openai_parser *parser, struct answer *answer, const uint8_t *body, size_t length,
			       struct error *error)
{
	const void *owner = answer->caller.token;
	enum status status = check_room(parser, owner, length, error);
	if (status)
		return status;
	struct openai_job *job = malloc(sizeof *job + length);
	if (!job)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*job = (struct openai_job){.item = {.deliver = deliver},
				   .later = parser->all,
				   .all = &parser->all,
				   .parser = parser,
				   .answer = answer,
				   .owner = owner,
				   .length = length};
	if (job->later)
		job->later->all = &job->later;
	parser->all = job;
	memcpy(job->body, body, length);
	answer->reading = true;
	parser->waiting_bytes += length;
	pthread_mutex_lock(&parser->lock);
	*parser->last = job;
	parser->last = &job->next;
	pthread_cond_signal(&parser->work);
	pthread_mutex_unlock(&parser->lock);
	return STATUS_OK;
}

enum status openai_parser_create(struct openai_parser **out, struct net_loop *loop, struct error *error)
{
	struct openai_parser *parser = calloc(1, sizeof *parser);
	*out = parser;
	if (!parser)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	parser->last = &parser->first;
	pthread_mutex_init(&parser->lock, NULL);
	pthread_cond_init(&parser->work, NULL);
	enum status status = outbox_create(&parser->outbox, loop, error);
	if (!status)
		status = outbox_start_thread(&parser->thread, parser_main, parser, error);
	parser->started = !status;
	if (status)
		openai_parser_destroy(out);
	return status;
}

void openai_parser_destroy(struct openai_parser **pointer)
{
	struct openai_parser *parser = *pointer;
	if (!parser)
		return;
	*pointer = NULL;
	pthread_mutex_lock(&parser->lock);
	parser->stop = true;
	pthread_cond_signal(&parser->work);
	pthread_mutex_unlock(&parser->lock);
	if (parser->started)
		pthread_join(parser->thread, NULL);
	outbox_destroy(&parser->outbox);
	for (struct openai_job *job = parser->first, *next; job; job = next) {
		next = job->next;
		job_destroy(job);
	}
	pthread_cond_destroy(&parser->work);
	pthread_mutex_destroy(&parser->lock);
	free(parser);
}
