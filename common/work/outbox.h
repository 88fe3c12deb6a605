/* The outbox carries results from threads to the loop: one list under one lock, and an eventfd that the loop
 * watches. Nothing is lost, however long the loop takes; results that were not
 * delivered when the outbox is destroyed are freed. Each item is embedded in its owner, whose `deliver` frees
 * it. */
#pragma once
#include "common/net/loop.h"

#include <pthread.h>

struct outbox;

struct outbox_item {
	struct outbox_item *next;
	// On the loop's thread; `tell`: false where the outbox goes away, and the item is only to be freed.
	void (*deliver)(struct outbox_item *item, bool tell);
};

enum status outbox_create(struct outbox **out, struct net_loop *loop, struct error *error);
void outbox_destroy(struct outbox **outbox); // after the threads that post have ended
// Any thread.
void outbox_post(struct outbox *outbox, struct outbox_item *item);
// A thread that takes no signals, those being the loop's. Errors: STATUS_UNAVAILABLE.
enum status outbox_start_thread(pthread_t *thread, void *(*main)(void *), void *argument, struct error *error);
