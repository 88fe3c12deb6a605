/* Large bodies are read on a thread of their own: a million numbers take longer than the loop may stand still.
 *
 *     openai_posted -> given (queue) -> parsed and read, on the thread -> openai_read_through, on the loop
 *
 * The answer is the thread's meanwhile, but for its place in the list; one whose client goes is ended once it is back.
 * Owns the thread, and copies of bodies that wait. */
#include "common/base/limits.h"
#include "server/http/openai_inside.h"
#include "server/models/outbox.h"

#include <stdlib.h>
#include <string.h>

struct openai_job {
	struct outbox_item item; // first member
	struct openai_job *next;
	struct openai_parser *parser;
	struct answer *answer;
	struct openai_reading reading;
	size_t length;
	char body[]; // (length)
};

struct openai_parser {
	struct outbox *outbox;
	pthread_t thread;
	bool started;
	size_t waiting_bytes; // of the loop: of bodies, until they are back
	pthread_mutex_t lock;
	pthread_cond_t work;
	// Under lock:
	struct openai_job *first, **last;
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
	if (tell)
		openai_read_through(job->answer, &job->reading);
	job_destroy(job);
}

static void *parser_main(void *argument)
{
	struct openai_parser *parser = argument;
	for (;;) {
		pthread_mutex_lock(&parser->lock);
		while (!parser->first && !parser->stop)
			pthread_cond_wait(&parser->work, &parser->lock);
		struct openai_job *job = parser->stop ? NULL : parser->first;
		if (job && !(parser->first = job->next))
			parser->last = &parser->first;
		pthread_mutex_unlock(&parser->lock);
		if (!job)
			return NULL;
		openai_read_body(job->answer, job->body, job->length, &job->reading);
		outbox_post(parser->outbox, &job->item);
	}
}

enum status openai_parser_take(struct openai_parser *parser, struct answer *answer, const uint8_t *body, size_t length,
			       struct error *error)
{
	struct openai_job *job = NULL;
	if (parser->waiting_bytes + length > LIMIT_BODIES_BYTES) {
		error_set(error, STATUS_RATE_LIMITED, "%zu bytes of requests wait to be read already",
			  parser->waiting_bytes);
		error_hint(error, "try again in a few seconds");
		return STATUS_RATE_LIMITED;
	}
	job = malloc(sizeof *job + length);
	if (!job)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*job = (struct openai_job){.item = {.deliver = deliver}, .parser = parser, .answer = answer, .length = length};
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
