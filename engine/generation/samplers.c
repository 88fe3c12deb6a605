/* See samplers.h. Every thread takes the next task until none is left. The caller waits for the tasks in progress, not
 * for threads: a thread that wakes late finds nothing to do. */
#include "engine/generation/samplers.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS_MOST = 7 }; // beside the caller's

struct samplers {
	uint32_t vocabulary, wanted; // threads
	struct sampler_scratch *scratch;
	pthread_t threads[THREADS_MOST]; // (thread_count)
	uint32_t thread_count;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	// Under lock.
	const struct sampler_task *tasks; // (task_count)
	uint32_t task_count, next, drawn;
	bool stop;
};

// Called, and returns, with the lock held.
static void draw(struct samplers *samplers, struct sampler_scratch *scratch)
{
	while (samplers->next < samplers->task_count) {
		const struct sampler_task *task = &samplers->tasks[samplers->next++];
		pthread_mutex_unlock(&samplers->lock);
		sampler_choose(scratch, &task->input, task->choice);
		pthread_mutex_lock(&samplers->lock);
		if (++samplers->drawn == samplers->task_count)
			pthread_cond_signal(&samplers->done);
	}
}

static void *thread_main(void *arg)
{
	struct samplers *samplers = arg;
	struct sampler_scratch *scratch;
	if (sampler_scratch_create(&scratch, samplers->vocabulary))
		return NULL; // others do its part
	pthread_mutex_lock(&samplers->lock);
	while (!samplers->stop) {
		draw(samplers, scratch);
		if (!samplers->stop)
			pthread_cond_wait(&samplers->work, &samplers->lock);
	}
	pthread_mutex_unlock(&samplers->lock);
	sampler_scratch_destroy(&scratch);
	return NULL;
}

static void start(struct samplers *samplers)
{
	samplers->started = true;
	while (samplers->thread_count < samplers->wanted &&
	       !pthread_create(&samplers->threads[samplers->thread_count], NULL, thread_main, samplers))
		samplers->thread_count++;
}

void samplers_choose(struct samplers *samplers, const struct sampler_task *tasks, uint32_t count)
{
	if (count > 1 && !samplers->started)
		start(samplers);
	if (count < 2 || !samplers->thread_count) {
		for (uint32_t i = 0; i < count; i++)
			sampler_choose(samplers->scratch, &tasks[i].input, tasks[i].choice);
		return;
	}
	pthread_mutex_lock(&samplers->lock);
	samplers->tasks = tasks;
	samplers->task_count = count;
	samplers->next = samplers->drawn = 0;
	pthread_cond_broadcast(&samplers->work);
	draw(samplers, samplers->scratch);
	while (samplers->drawn < count)
		pthread_cond_wait(&samplers->done, &samplers->lock);
	samplers->task_count = samplers->next = 0;
	pthread_mutex_unlock(&samplers->lock);
}

struct sampler_scratch *samplers_scratch(struct samplers *samplers)
{
	return samplers->scratch;
}

enum status samplers_create(struct samplers **out, uint32_t vocabulary, uint32_t most)
{
	struct samplers *samplers = *out = calloc(1, sizeof(*samplers));
	if (!samplers)
		return STATUS_OUT_OF_MEMORY;
	const long processors = sysconf(_SC_NPROCESSORS_ONLN);
	const uint32_t useful = processors > 1 ? (uint32_t)processors - 1 : 0, others = most ? most - 1 : 0;
	samplers->vocabulary = vocabulary;
	samplers->wanted = useful < others ? useful : others;
	if (samplers->wanted > THREADS_MOST)
		samplers->wanted = THREADS_MOST;
	pthread_mutex_init(&samplers->lock, NULL);
	pthread_cond_init(&samplers->work, NULL);
	pthread_cond_init(&samplers->done, NULL);
	enum status status = sampler_scratch_create(&samplers->scratch, vocabulary);
	if (status)
		samplers_destroy(out);
	return status;
}

void samplers_destroy(struct samplers **pointer)
{
	struct samplers *samplers = *pointer;
	if (!samplers)
		return;
	*pointer = NULL;
	pthread_mutex_lock(&samplers->lock);
	samplers->stop = true;
	pthread_cond_broadcast(&samplers->work);
	pthread_mutex_unlock(&samplers->lock);
	while (samplers->thread_count)
		pthread_join(samplers->threads[--samplers->thread_count], NULL);
	sampler_scratch_destroy(&samplers->scratch);
	pthread_cond_destroy(&samplers->done);
	pthread_cond_destroy(&samplers->work);
	pthread_mutex_destroy(&samplers->lock);
	free(samplers);
}
