/* See pool.h. A job is on the stack of its caller. Helpers find it in the list, join it under the lock, take pieces
 * without the lock, and leave it under the lock; pool_run returns when all pieces are taken and no helper is in the
 * job. */
#include "engine/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

struct job {
	void (*piece)(void *context, uint64_t index);
	void *context;
	uint64_t count;
	atomic_uint_least64_t next; // the first piece that no thread has taken
	struct job *following;      // in pool->jobs; guarded by the lock, like what follows
	unsigned joined;            // helpers
	pthread_cond_t left;        // joined fell to 0
};

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t work; // a job came, or the end
	struct job *jobs;    // guarded by the lock
	bool ending;         // guarded by the lock
	atomic_bool stopped;
	unsigned helper_count;
	pthread_t helpers[]; // (helper_count)
};

static void take_pieces(struct pool *pool, struct job *job)
{
	while (!atomic_load_explicit(&pool->stopped, memory_order_relaxed)) {
		uint64_t index = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
		if (index >= job->count)
			return;
		job->piece(job->context, index);
	}
}

static bool has_pieces(struct pool *pool, struct job *job)
{
	return !atomic_load_explicit(&pool->stopped, memory_order_relaxed) &&
	       atomic_load_explicit(&job->next, memory_order_relaxed) < job->count;
}

static void *helper_thread(void *arg)
{
	struct pool *pool = arg;
	pthread_mutex_lock(&pool->lock);
	while (!pool->ending) {
		struct job *job = pool->jobs;
		while (job && !has_pieces(pool, job))
			job = job->following;
		if (!job) {
			pthread_cond_wait(&pool->work, &pool->lock);
			continue;
		}
		job->joined++;
		pthread_mutex_unlock(&pool->lock);
		take_pieces(pool, job);
		pthread_mutex_lock(&pool->lock);
		if (!--job->joined)
			pthread_cond_signal(&job->left);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

unsigned pool_processors(unsigned most)
{
	cpu_set_t set;
	unsigned count = sched_getaffinity(0, sizeof(set), &set) ? 1 : (unsigned)CPU_COUNT(&set);
	return count < most ? count : most;
}

enum status pool_create(struct pool **out, unsigned threads, struct error *error)
{
	unsigned helpers = threads > 1 ? threads - 1 : 0;
	struct pool *pool = calloc(1, sizeof(*pool) + helpers * sizeof(pool->helpers[0]));
	sigset_t all, before;
	*out = pool;
	if (!pool)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %u threads", threads);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	sigfillset(&all); // signals are the program's, not its helpers'
	// Signals for the helper's own faults stay unblocked: it may read a file that was cut off (SIGBUS), and its
	// crashes must be seen.
	const int own[] = {SIGBUS, SIGSEGV, SIGILL, SIGFPE};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		sigdelset(&all, own[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (pool->helper_count < helpers &&
	       !pthread_create(&pool->helpers[pool->helper_count], NULL, helper_thread, pool))
		pool->helper_count++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return STATUS_OK;
}

void pool_destroy(struct pool **pool_pointer)
{
	struct pool *pool = *pool_pointer;
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->ending = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->helper_count; i++)
		pthread_join(pool->helpers[i], NULL);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
	*pool_pointer = NULL;
}

// Put the job where helpers find it, and wake as many as it has pieces for.
static void offer(struct pool *pool, struct job *job)
{
	pthread_mutex_lock(&pool->lock);
	job->following = pool->jobs;
	pool->jobs = job;
	if (job->count > pool->helper_count)
		pthread_cond_broadcast(&pool->work);
	else
		for (uint64_t i = 1; i < job->count; i++)
			pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

static void withdraw(struct pool *pool, struct job *job)
{
	pthread_mutex_lock(&pool->lock);
	struct job **link = &pool->jobs;
	while (*link != job)
		link = &(*link)->following;
	*link = job->following;
	while (job->joined)
		pthread_cond_wait(&job->left, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

void pool_run(struct pool *pool, void (*piece)(void *context, uint64_t index), void *context, uint64_t count)
{
	struct job job = {.piece = piece, .context = context, .count = count};
	bool shared = count > 1 && pool->helper_count;
	if (shared) {
		pthread_cond_init(&job.left, NULL);
		offer(pool, &job);
	}
	take_pieces(pool, &job);
	if (shared) {
		withdraw(pool, &job);
		pthread_cond_destroy(&job.left);
	}
}

void pool_stop(struct pool *pool)
{
	atomic_store(&pool->stopped, true);
}

bool pool_stopped(const struct pool *pool)
{
	return atomic_load(&pool->stopped);
}
