/* See jobs.h. */
#include "common/work/jobs.h"

#include <stdlib.h>

struct jobs {
	struct outbox *outbox;
	pthread_mutex_t lock;
	pthread_cond_t some;
	struct outbox_item *first, **last; // under lock
	const void *last_owner;            // under lock
	bool stop;                         // under lock
	unsigned thread_count;
	pthread_t threads[]; // (thread_count)
};

// Under lock, with at least one job.
static struct job *take_next(struct jobs *jobs)
{
	struct outbox_item **at = &jobs->first;
	while (*at && jobs->last_owner && ((struct job *)*at)->owner == jobs->last_owner)
		at = &(*at)->next;
	if (!*at)
		at = &jobs->first;
	struct job *job = (struct job *)*at;
	*at = job->item.next;
	if (!*at)
		jobs->last = at;
	jobs->last_owner = job->owner;
	return job;
}

static void *work(void *argument)
{
	struct jobs *jobs = argument;
	pthread_mutex_lock(&jobs->lock);
	while (!jobs->stop) {
		if (!jobs->first) {
			pthread_cond_wait(&jobs->some, &jobs->lock);
			continue;
		}
		struct job *job = take_next(jobs);
		pthread_mutex_unlock(&jobs->lock);
		if (job->run)
			job->run(job);
		outbox_post(jobs->outbox, &job->item);
		pthread_mutex_lock(&jobs->lock);
	}
	pthread_mutex_unlock(&jobs->lock);
	return NULL;
}

enum status jobs_create(struct jobs **out, struct net_loop *loop, unsigned threads, struct error *error)
{
	struct jobs *jobs = *out = calloc(1, sizeof *jobs + threads * sizeof *jobs->threads);
	if (!jobs)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a queue of jobs");
	jobs->last = &jobs->first;
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_cond_init(&jobs->some, NULL);
	enum status status = outbox_create(&jobs->outbox, loop, error);
	while (!status && jobs->thread_count < threads) {
		status = outbox_start_thread(&jobs->threads[jobs->thread_count], work, jobs, error);
		jobs->thread_count += !status;
	}
	if (status)
		jobs_destroy(out);
	return status;
}

void jobs_put(struct jobs *jobs, struct job *job)
{
	job->item.next = NULL;
	pthread_mutex_lock(&jobs->lock);
	*jobs->last = &job->item;
	jobs->last = &job->item.next;
	pthread_cond_signal(&jobs->some);
	pthread_mutex_unlock(&jobs->lock);
}

void jobs_destroy(struct jobs **pointer)
{
	struct jobs *jobs = *pointer;
	if (!jobs)
		return;
	*pointer = NULL;
	pthread_mutex_lock(&jobs->lock);
	jobs->stop = true;
	pthread_cond_broadcast(&jobs->some);
	pthread_mutex_unlock(&jobs->lock);
	for (unsigned i = 0; i < jobs->thread_count; i++)
		pthread_join(jobs->threads[i], NULL);
	outbox_destroy(&jobs->outbox);
	while (jobs->first) { // what no thread has begun
		struct outbox_item *item = jobs->first;
		jobs->first = item->next;
		item->deliver(item, false);
	}
	pthread_cond_destroy(&jobs->some);
	pthread_mutex_destroy(&jobs->lock);
	free(jobs);
}
