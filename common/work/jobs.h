/* Jobs for threads of their own, and their results on the loop.
 *
 *     jobs_put --> queue --> run, on a thread --> deliver, on the loop
 *
 * Jobs are begun in the order in which they came. Those of several owners take turns: the oldest of another owner than
 * the last job's is begun first. Whatever is put is delivered once; each job is embedded in its owner, whose `deliver`
 * frees it. Thread: the loop's, for every function here. */
#pragma once
#include "common/work/outbox.h"

struct jobs;

struct job {
	struct outbox_item item;      // first member: `deliver` is called with it; its `next` is the queue's meanwhile
	void (*run)(struct job *job); // on a thread; NULL: there is nothing to run
	const void *owner;            // compared, nothing else; NULL: nobody in particular
};

// Errors: STATUS_OUT_OF_MEMORY, STATUS_UNAVAILABLE.
enum status jobs_create(struct jobs **out, struct net_loop *loop, unsigned threads, struct error *error);
void jobs_put(struct jobs *jobs, struct job *job);
// Wait for the jobs that threads are at. What has not been delivered by then is, with `tell` false, also jobs that were
// not begun. Accepts NULL, leaves NULL behind.
void jobs_destroy(struct jobs **jobs);
