/* A virtual clock for a server that runs in a test, all of it on one thread: the functions of the clock, of timers and
 * posts of the loop, of jobs for threads, of random numbers and of commits are replaced at link time (--wrap, in
 * tests/CMakeLists.txt), for the thread of the test alone. Time passes only in virtual_step, which runs what is due
 * next. What threads do is done in the turn in which its result is due; how long that takes is drawn. Commits are the
 * real store's: the loop's thread waits for its thread. Everything follows from the seed. */
#pragma once
#include "common/base/clock.h"
#include "common/net/loop.h"
#include "common/work/jobs.h"
#include "server/store/inside.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { START_MS = 1000000 };
static const int64_t wall_ahead_ms = 1790000000000; // of the steady clock

struct virtual_event {
	struct virtual_event *next;
	int64_t at_ms;
	void (*fn)(void *arg);
	void *arg;
};

// Memory of events' arguments, which lasts until virtual_end.
struct virtual_memory {
	struct virtual_memory *next;
	max_align_t bytes[];
};

struct virtual_commit {
	struct store *store;
	struct store_batch *batch;
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
	int64_t at_ms;
};

struct jobs {
	int64_t last_ms; // when the newest job is due
};

struct virtual_job {
	struct virtual_job *next;
	struct jobs *jobs;
	struct job *job;
	int64_t at_ms;
};

enum { VIRTUAL_COMMITS = 4096 }; // more than the store's own queue has room for

static struct {
	bool on;
	pthread_t thread;
	int64_t now_ms;
	uint64_t drawn; // the state of the generator
	struct net_timer *timers;
	struct virtual_event *events;
	struct virtual_memory *memory;
	struct virtual_job *jobs; // in the order in which they are due
	struct virtual_commit commits[VIRTUAL_COMMITS];
	size_t first_commit, commit_count;
	int64_t last_commit_ms;
	bool disk_gone;        // the server is dead: nothing of it reaches the disk
	int64_t full_until_ms; // the disk is full: nothing can be written
	int64_t busy_until_ms; // it is slow, and the store's queue full: nothing is taken
	int64_t unwritten_ms;  // when something could not be written last; 0: never
	uint64_t unwritten;
	struct net_loop *loop;
	uint64_t steps, commits_done;
} virtual = {.on = false};

static bool is_virtual(void)
{
	return virtual.on && pthread_equal(virtual.thread, pthread_self());
}

// A number below `below`: SplitMix64.
static uint64_t draw(uint64_t below)
{
	uint64_t z = virtual.drawn += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return (z ^ (z >> 31)) % below;
}

static int64_t draw_ms(int64_t from, int64_t to)
{
	return from + (int64_t)draw((uint64_t)(to - from + 1));
}

// ---- time and random numbers ----

int64_t __real_clock_steady_ms(void);
int64_t __real_clock_steady_ns(void);
int64_t __real_clock_wall_ms(void);
int64_t __real_clock_wall_ns(void);
int64_t __wrap_clock_steady_ms(void);
int64_t __wrap_clock_steady_ns(void);
int64_t __wrap_clock_wall_ms(void);
int64_t __wrap_clock_wall_ns(void);
int __real_RAND_bytes(unsigned char *bytes, int count);
int __wrap_RAND_bytes(unsigned char *bytes, int count);
ssize_t __real_getrandom(void *bytes, size_t count, unsigned flags);
ssize_t __wrap_getrandom(void *bytes, size_t count, unsigned flags);

int64_t __wrap_clock_steady_ms(void)
{
	return is_virtual() ? virtual.now_ms : __real_clock_steady_ms();
}

int64_t __wrap_clock_steady_ns(void)
{
	return is_virtual() ? virtual.now_ms * 1000000 : __real_clock_steady_ns();
}

int64_t __wrap_clock_wall_ms(void)
{
	return is_virtual() ? virtual.now_ms + wall_ahead_ms : __real_clock_wall_ms();
}

int64_t __wrap_clock_wall_ns(void)
{
	return is_virtual() ? (virtual.now_ms + wall_ahead_ms) * 1000000 : __real_clock_wall_ns();
}

static void draw_bytes(unsigned char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = (unsigned char)draw(256);
}

int __wrap_RAND_bytes(unsigned char *bytes, int count)
{
	if (!is_virtual())
		return __real_RAND_bytes(bytes, count);
	draw_bytes(bytes, (size_t)count);
	return 1;
}

ssize_t __wrap_getrandom(void *bytes, size_t count, unsigned flags)
{
	if (!is_virtual())
		return __real_getrandom(bytes, count, flags);
	draw_bytes(bytes, count);
	return (ssize_t)count;
}

// ---- timers, posts and events ----

void __real_net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
			    void *arg);
void __real_net_timer_stop(struct net_loop *loop, struct net_timer *timer);
enum status __real_net_loop_post(struct net_loop *loop, void (*fn)(void *arg), void *arg);
void __wrap_net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
			    void *arg);
void __wrap_net_timer_stop(struct net_loop *loop, struct net_timer *timer);
enum status __wrap_net_loop_post(struct net_loop *loop, void (*fn)(void *arg), void *arg);

static void unlink_virtual(struct net_timer *timer)
{
	struct net_timer **at = &virtual.timers;
	while (*at != timer)
		at = &(*at)->next;
	*at = timer->next;
	timer->running = false;
}

void __wrap_net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
			    void *arg)
{
	if (!is_virtual()) {
		__real_net_timer_start(loop, timer, delay_ms, fn, arg);
		return;
	}
	if (timer->running)
		unlink_virtual(timer);
	*timer = (struct net_timer){.due_ms = virtual.now_ms + delay_ms, .fn = fn, .arg = arg, .running = true};
	struct net_timer **at = &virtual.timers;
	while (*at && (*at)->due_ms <= timer->due_ms)
		at = &(*at)->next;
	timer->next = *at;
	*at = timer;
}

void __wrap_net_timer_stop(struct net_loop *loop, struct net_timer *timer)
{
	if (!is_virtual())
		__real_net_timer_stop(loop, timer);
	else if (timer->running)
		unlink_virtual(timer);
}

static void virtual_at(int64_t at_ms, void (*fn)(void *arg), void *arg)
{
	struct virtual_event *event = malloc(sizeof *event), **at = &virtual.events;
	if (!event)
		abort();
	*event = (struct virtual_event){.at_ms = at_ms, .fn = fn, .arg = arg};
	while (*at && (*at)->at_ms <= at_ms)
		at = &(*at)->next;
	event->next = *at;
	*at = event;
}

static void virtual_after(int64_t ms, void (*fn)(void *arg), void *arg)
{
	virtual_at(virtual.now_ms + ms, fn, arg);
}

enum status __wrap_net_loop_post(struct net_loop *loop, void (*fn)(void *arg), void *arg)
{
	if (!is_virtual())
		return __real_net_loop_post(loop, fn, arg);
	virtual_after(0, fn, arg);
	return STATUS_OK;
}

static void *virtual_memory(size_t size)
{
	struct virtual_memory *memory = calloc(1, sizeof *memory + size);
	if (!memory)
		abort();
	memory->next = virtual.memory;
	virtual.memory = memory;
	return memory->bytes;
}

// ---- jobs ----

enum status __wrap_jobs_create(struct jobs **out, struct net_loop *loop, unsigned threads, struct error *error);
void __wrap_jobs_put(struct jobs *jobs, struct job *job);
void __wrap_jobs_destroy(struct jobs **jobs);

enum status __wrap_jobs_create(struct jobs **out, struct net_loop *loop, unsigned threads, struct error *error)
{
	(void)loop, (void)threads, (void)error;
	*out = calloc(1, sizeof **out);
	return *out ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

void __wrap_jobs_put(struct jobs *jobs, struct job *job)
{
	struct virtual_job *put = malloc(sizeof *put), **at = &virtual.jobs;
	const int64_t at_ms = virtual.now_ms + draw_ms(1, draw(8) ? 60 : 3000);
	if (!put)
		abort();
	jobs->last_ms = at_ms > jobs->last_ms ? at_ms : jobs->last_ms;
	*put = (struct virtual_job){.jobs = jobs, .job = job, .at_ms = jobs->last_ms};
	while (*at && (*at)->at_ms <= put->at_ms)
		at = &(*at)->next;
	put->next = *at;
	*at = put;
}

static void run_job(void)
{
	struct virtual_job *put = virtual.jobs;
	struct job *job = put->job;
	virtual.jobs = put->next;
	free(put);
	if (job->run)
		job->run(job);
	job->item.deliver(&job->item, true);
}

void __wrap_jobs_destroy(struct jobs **pointer)
{
	struct jobs *jobs = *pointer;
	struct virtual_job **at = &virtual.jobs;
	if (!jobs)
		return;
	*pointer = NULL;
	while (*at) {
		struct virtual_job *put = *at;
		if (put->jobs != jobs) {
			at = &put->next;
			continue;
		}
		*at = put->next;
		put->job->item.deliver(&put->job->item, false);
		free(put);
	}
	free(jobs);
}

// ---- commits ----

enum status __real_store_commit(struct store *store, struct store_batch **batch,
				void (*done)(void *context, enum status status, const struct error *error),
				void *context);
enum status __wrap_store_commit(struct store *store, struct store_batch **batch,
				void (*done)(void *context, enum status status, const struct error *error),
				void *context);

enum status __wrap_store_commit(struct store *store, struct store_batch **pointer,
				void (*done)(void *context, enum status status, const struct error *error),
				void *context)
{
	struct store_batch *batch = *pointer;
	*pointer = NULL;
	const bool busy = virtual.now_ms < virtual.busy_until_ms,
		   refused = batch->failed || virtual.disk_gone || virtual.commit_count == VIRTUAL_COMMITS || busy;
	if (busy) {
		virtual.unwritten_ms = virtual.now_ms;
		virtual.unwritten++;
	}
	if (refused) {
		store_batch_destroy(&batch);
		return STATUS_LIMIT_EXCEEDED;
	}
	const int64_t at_ms = virtual.now_ms + draw_ms(1, draw(16) ? 20 : 2000);
	virtual.last_commit_ms = at_ms > virtual.last_commit_ms ? at_ms : virtual.last_commit_ms;
	virtual.commits[(virtual.first_commit + virtual.commit_count++) % VIRTUAL_COMMITS] = (struct virtual_commit){
		.store = store, .batch = batch, .done = done, .context = context, .at_ms = virtual.last_commit_ms};
	return STATUS_OK;
}

static struct virtual_commit *first_commit(void)
{
	return virtual.commit_count ? &virtual.commits[virtual.first_commit] : NULL;
}

static struct virtual_commit take_commit(void)
{
	const struct virtual_commit commit = *first_commit();
	virtual.first_commit = (virtual.first_commit + 1) % VIRTUAL_COMMITS;
	virtual.commit_count--;
	return commit;
}

struct virtual_outcome {
	enum status status;
	struct error error;
};

static void stored_now(void *context, enum status status, const struct error *error)
{
	struct virtual_outcome *outcome = context;
	outcome->status = status;
	if (error)
		outcome->error = *error;
	net_loop_stop(virtual.loop);
}

// On disk, as the store's thread does it; the virtual clock stands still meanwhile.
static void run_commit(bool tell)
{
	struct virtual_commit commit = take_commit();
	struct virtual_outcome outcome = {.status = STATUS_OK};
	if (virtual.now_ms < virtual.full_until_ms) {
		outcome.status = error_set(&outcome.error, STATUS_UNAVAILABLE, "the disk is full");
		virtual.unwritten_ms = virtual.now_ms;
		virtual.unwritten++;
		store_batch_destroy(&commit.batch);
	} else {
		outcome.status = __real_store_commit(commit.store, &commit.batch, stored_now, &outcome);
		if (!outcome.status)
			net_loop_run(virtual.loop);
		virtual.commits_done++;
	}
	if (tell && commit.done)
		commit.done(commit.context, outcome.status, outcome.status ? &outcome.error : NULL);
}

// The server is killed: of the commits that wait so many reach the disk, and nobody hears of any.
static void kill_commits(uint64_t written)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the server is dead");
	virtual.disk_gone = true;
	for (; virtual.commit_count && written; written--) {
		struct virtual_commit *commit = first_commit();
		void (*done)(void *, enum status, const struct error *) = commit->done;
		void *context = commit->context;
		run_commit(false);
		if (done) // what waits for it is freed
			done(context, STATUS_UNAVAILABLE, &error);
	}
	while (virtual.commit_count) {
		struct virtual_commit commit = take_commit();
		store_batch_destroy(&commit.batch);
		if (commit.done)
			commit.done(commit.context, STATUS_UNAVAILABLE, &error);
	}
}

// ---- going on ----

static int64_t virtual_next_ms(void)
{
	int64_t next = virtual.timers ? virtual.timers->due_ms : INT64_MAX;
	if (virtual.events && virtual.events->at_ms < next)
		next = virtual.events->at_ms;
	if (virtual.jobs && virtual.jobs->at_ms < next)
		next = virtual.jobs->at_ms;
	if (first_commit() && first_commit()->at_ms < next)
		next = first_commit()->at_ms;
	return next;
}

// Run what is due next, one thing. False: nothing is before `until_ms`, which it is now.
static bool virtual_step(int64_t until_ms)
{
	const int64_t next = virtual_next_ms();
	if (next > until_ms) {
		virtual.now_ms = until_ms;
		return false;
	}
	virtual.now_ms = next > virtual.now_ms ? next : virtual.now_ms;
	virtual.steps++;
	if (virtual.events && virtual.events->at_ms <= virtual.now_ms) {
		struct virtual_event event = *virtual.events;
		free(virtual.events);
		virtual.events = event.next;
		event.fn(event.arg);
	} else if (virtual.timers && virtual.timers->due_ms <= virtual.now_ms) {
		struct net_timer *timer = virtual.timers;
		virtual.timers = timer->next;
		timer->running = false;
		timer->fn(timer->arg);
	} else if (virtual.jobs && virtual.jobs->at_ms <= virtual.now_ms) {
		run_job();
	} else {
		run_commit(true);
	}
	return true;
}

static void virtual_begin(struct net_loop *loop, uint64_t seed)
{
	virtual.on = true;
	virtual.thread = pthread_self();
	virtual.now_ms = START_MS;
	virtual.drawn = seed * 0x2545F4914F6CDD1Du;
	virtual.loop = loop;
	virtual.disk_gone = false;
	virtual.last_commit_ms = 0;
	virtual.full_until_ms = virtual.busy_until_ms = virtual.unwritten_ms = 0;
	virtual.steps = 0;
}

static void virtual_end(void)
{
	while (virtual.events) {
		struct virtual_event *event = virtual.events;
		virtual.events = event->next;
		free(event);
	}
	while (virtual.memory) {
		struct virtual_memory *memory = virtual.memory;
		virtual.memory = memory->next;
		free(memory);
	}
	if (virtual.timers || virtual.jobs || virtual.commit_count)
		abort(); // somebody has not stopped theirs
	virtual.on = false;
}
