/* Large bodies are read on a thread of their own: a million numbers take longer than the loop may stand still.
 *
 *     infer_posted -> given (queue) -> parsed and read, on the thread -> infer_read_through, on the loop
 *
 * The answer is the thread's meanwhile, but for its place in the list; one whose client goes is ended once it is back.
 * Of what may wait there is something left for those who come later, however much one token sends; and tokens take
 * turns. Owns the thread, and copies of bodies that wait. */
#include "common/base/limits.h"
#include "common/work/jobs.h"
#include "server/http/infer/inside.h"

#include <stdlib.h>
#include <string.h>

enum { BODIES_SHARE = 3 }; // a token's bodies are at most so many times the bytes that are left

struct infer_job {
	struct job job;                 // first member
	struct infer_job *later, **all; // of those that are not back; of the loop
	struct infer_parser *parser;
	struct answer *answer;
	struct infer_reading reading;
	size_t length;
	char body[]; // (length)
};

struct infer_parser {
	struct jobs *jobs;
	struct infer_job *all; // bodies, until they are back
	size_t waiting_bytes;
};

static void deliver(struct outbox_item *item, bool tell)
{
	struct infer_job *job = (struct infer_job *)item;
	job->parser->waiting_bytes -= job->length;
	*job->all = job->later;
	if (job->later)
		job->later->all = job->all;
	if (tell)
		infer_read_through(job->answer, &job->reading);
	infer_reading_finish(&job->reading);
	free(job);
}

static void read_body(struct job *job)
{
	struct infer_job *body = (struct infer_job *)job;
	infer_read_body(body->answer, body->body, body->length, &body->reading);
}

static enum status check_room(const struct infer_parser *parser, const void *owner, size_t length, struct error *error)
{
	const size_t waiting = parser->waiting_bytes + length, left = LIMIT_BODIES_BYTES - parser->waiting_bytes;
	size_t own = length;
	for (const struct infer_job *one = parser->all; one; one = one->later)
		own += one->job.owner == owner ? one->length : 0;
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

enum status infer_parser_take(struct infer_parser *parser, struct answer *answer, const uint8_t *body, size_t length,
			      struct error *error)
{
	const void *owner = answer->caller.token;
	enum status status = check_room(parser, owner, length, error);
	if (status)
		return status;
	struct infer_job *job = malloc(sizeof *job + length);
	if (!job)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*job = (struct infer_job){.job = {.item = {.deliver = deliver}, .run = read_body, .owner = owner},
				  .later = parser->all,
				  .all = &parser->all,
				  .parser = parser,
				  .answer = answer,
				  .length = length};
	if (job->later)
		job->later->all = &job->later;
	parser->all = job;
	memcpy(job->body, body, length);
	answer->reading = true;
	parser->waiting_bytes += length;
	jobs_put(parser->jobs, &job->job);
	return STATUS_OK;
}

enum status infer_parser_create(struct infer_parser **out, struct net_loop *loop, struct error *error)
{
	struct infer_parser *parser = calloc(1, sizeof *parser);
	*out = parser;
	if (!parser)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	const enum status status = jobs_create(&parser->jobs, loop, 1, error);
	if (status)
		infer_parser_destroy(out);
	return status;
}

void infer_parser_destroy(struct infer_parser **pointer)
{
	struct infer_parser *parser = *pointer;
	if (!parser)
		return;
	*pointer = NULL;
	jobs_destroy(&parser->jobs);
	free(parser);
}
