/* See outbox.h. */
#include "common/work/outbox.h"

#include "common/base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct outbox {
	struct net_watch *watch; // closes wake
	int wake;
	pthread_mutex_t lock;
	struct outbox_item *first, *last; // under lock
};

static void deliver(struct outbox *outbox, bool tell)
{
	pthread_mutex_lock(&outbox->lock);
	struct outbox_item *item = outbox->first;
	outbox->first = outbox->last = NULL;
	pthread_mutex_unlock(&outbox->lock);
	while (item) {
		struct outbox_item *next = item->next;
		item->deliver(item, tell);
		item = next;
	}
}

static void ready(void *context, int fd)
{
	uint64_t count;
	if (read(fd, &count, sizeof count) == sizeof count)
		deliver(context, true);
}

static const struct net_watch_events events = {.readable = ready};

enum status outbox_create(struct outbox **out, struct net_loop *loop, struct error *error)
{
	struct outbox *outbox = calloc(1, sizeof *outbox);
	*out = NULL;
	if (!outbox)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the results of threads");
	pthread_mutex_init(&outbox->lock, NULL);
	outbox->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	enum status status = outbox->wake < 0 ? error_errno(error, STATUS_UNAVAILABLE, errno, "no file descriptor")
					      : STATUS_OK;
	if (!status) {
		status = net_watch_create(&outbox->watch, loop, outbox->wake, &events, outbox, error);
		if (status)
			close(outbox->wake);
	}
	if (status)
		outbox_destroy(&outbox);
	*out = outbox;
	return status;
}

void outbox_destroy(struct outbox **pointer)
{
	struct outbox *outbox = *pointer;
	if (!outbox)
		return;
	*pointer = NULL;
	net_watch_destroy(&outbox->watch);
	deliver(outbox, false);
	pthread_mutex_destroy(&outbox->lock);
	free(outbox);
}

void outbox_post(struct outbox *outbox, struct outbox_item *item)
{
	const uint64_t one = 1;
	item->next = NULL;
	pthread_mutex_lock(&outbox->lock);
	bool first = !outbox->first;
	if (first)
		outbox->first = item;
	else
		outbox->last->next = item;
	outbox->last = item;
	pthread_mutex_unlock(&outbox->lock);
	if (first && write(outbox->wake, &one, sizeof one) < 0 && errno != EAGAIN)
		log_error("net", "cannot wake the loop: %s", strerror(errno));
}

enum status outbox_start_thread(pthread_t *thread, void *(*main)(void *), void *argument, struct error *error)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int number = pthread_create(thread, NULL, main, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return number ? error_errno(error, STATUS_UNAVAILABLE, number, "cannot start a thread") : STATUS_OK;
}
