/* A model instance's worker: its making and its end, the line of orders and the queue of bytes. See instance.h. */
#include "engine/worker/instance/instance.h"

#include "common/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

// Room beyond LIMIT_INSTANCE_QUEUE_BYTES for what one order or step may add. The longest is a prompt that is sent back,
// with an escape of six bytes for each character.
enum { QUEUE_MORE_BYTES = 16 * 1024 * 1024 };

void order_destroy(struct order **order)
{
	if (!*order)
		return;
	message_finish(&(*order)->message);
	token_list_finish(&(*order)->prompt);
	matcher_destroy(&(*order)->form);
	free(*order);
	*order = NULL;
}

enum status instance_create(struct instance **out, const struct instance_params *params, struct error *error)
{
	pthread_condattr_t attributes;
	struct instance *instance = *out = calloc(1, sizeof(*instance));
	if (!instance)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a model instance");
	instance->contract = params->contract;
	instance->backend = params->backend;
	instance->cache_directory = params->cache_directory;
	instance->node_fd = params->node_fd;
	instance->stream_fd = params->stream_fd;
	instance->model_fd = params->model_fd;
	instance->ring_in_fd = params->ring ? params->ring_in_fd : -1;
	instance->ring_out_fd = params->ring ? params->ring_out_fd : -1;
	instance->draft_fd = params->draft_fd;
	buffer_init(&instance->queue, LIMIT_INSTANCE_QUEUE_BYTES + QUEUE_MORE_BYTES);
	pthread_mutex_init(&instance->lock, NULL);
	pthread_mutex_init(&instance->prefixes.lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&instance->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	instance->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (instance->wake_fd < 0)
		return error_errno(error, STATUS_INTERNAL, errno, "making an eventfd");
	return STATUS_OK;
}

void instance_destroy(struct instance **instance_pointer)
{
	struct instance *instance = *instance_pointer;
	if (!instance)
		return;
	while (instance->orders) {
		struct order *order = instance->orders;
		instance->orders = order->next;
		order_destroy(&order);
	}
	if (instance->wake_fd >= 0)
		close(instance->wake_fd);
	vocabulary_destroy(&instance->vocabulary);
	json_destroy(&instance->told_loaded);
	pthread_cond_destroy(&instance->changed);
	pthread_mutex_destroy(&instance->lock);
	pthread_mutex_destroy(&instance->prefixes.lock);
	buffer_finish(&instance->queue);
	free(instance);
	*instance_pointer = NULL;
}

enum status instance_start(struct instance *instance, struct error *error)
{
	int code = pthread_create(&instance->driver, NULL, instance_main, instance);
	return code ? error_errno(error, STATUS_INTERNAL, code, "starting the driver's thread") : STATUS_OK;
}

void instance_stop(struct instance *instance)
{
	pthread_mutex_lock(&instance->lock);
	instance->ending = true;
	pthread_cond_signal(&instance->changed);
	pthread_mutex_unlock(&instance->lock);
	pthread_join(instance->driver, NULL);
}

// ---- the line ----

void instance_put(struct instance *instance, struct order *order)
{
	order->arrived_ns = clock_steady_ns();
	pthread_mutex_lock(&instance->lock);
	*(instance->last_order ? &instance->last_order->next : &instance->orders) = order;
	instance->last_order = order;
	instance->order_count++;
	pthread_cond_signal(&instance->changed);
	pthread_mutex_unlock(&instance->lock);
}

static void wake_reader(struct instance *instance)
{
	uint64_t one = 1;
	while (write(instance->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

struct order *instance_take(struct instance *instance, bool wait, int64_t until_ns)
{
	struct order *order = NULL;
	const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
				       .tv_nsec = (long)(until_ns % 1000000000)};
	const bool forever = until_ns == 0 || until_ns == INT64_MAX;
	pthread_mutex_lock(&instance->lock);
	while (!instance->ending && (instance->full || (wait && !instance->orders && !instance->woken))) {
		if (forever || instance->full)
			pthread_cond_wait(&instance->changed, &instance->lock);
		else if (pthread_cond_timedwait(&instance->changed, &instance->lock, &until) == ETIMEDOUT)
			wait = false;
	}
	instance->woken = false;
	if (!instance->ending && instance->orders) {
		order = instance->orders;
		instance->orders = order->next;
		if (!instance->orders)
			instance->last_order = NULL;
		if (instance->order_count-- == LIMIT_INSTANCE_ORDERS)
			wake_reader(instance);
	}
	pthread_mutex_unlock(&instance->lock);
	return order;
}

void instance_wake(void *context)
{
	struct instance *instance = context;
	pthread_mutex_lock(&instance->lock);
	instance->woken = true;
	pthread_cond_signal(&instance->changed);
	pthread_mutex_unlock(&instance->lock);
}

bool instance_ending(struct instance *instance)
{
	pthread_mutex_lock(&instance->lock);
	bool ending = instance->ending;
	pthread_mutex_unlock(&instance->lock);
	return ending;
}

bool instance_loaded(struct instance *instance)
{
	pthread_mutex_lock(&instance->lock);
	bool loaded = instance->loaded;
	pthread_mutex_unlock(&instance->lock);
	return loaded;
}

// ---- the queue ----

static void enqueue(struct instance *instance, const struct buffer *head)
{
	const struct error error = {.status = STATUS_OUT_OF_MEMORY, .message = "no memory for the message"};
	pthread_mutex_lock(&instance->lock);
	size_t before = instance->queue.length;
	enum status status = message_encode_stream(&instance->queue, (const char *)head->data, head->length, NULL, 0);
	if (!instance->unsent)
		wake_reader(instance);
	if (!status)
		instance->unsent += instance->queue.length - before;
	instance->full |= instance->unsent > LIMIT_INSTANCE_QUEUE_BYTES;
	pthread_mutex_unlock(&instance->lock);
	if (status)
		instance_fail(instance, &error);
}

void instance_tell(struct instance *instance, const char *method, struct json *params)
{
	struct buffer head;
	buffer_init(&head, LIMIT_HEAD_BYTES);
	if (!message_print_call(&head, NULL, method, params))
		enqueue(instance, &head);
	buffer_finish(&head);
}

void instance_answer(struct instance *instance, const struct json *id, const struct error *error, struct json *result)
{
	struct buffer head;
	struct error too_long = {0};
	buffer_init(&head, LIMIT_HEAD_BYTES);
	enum status status = STATUS_OK;
	if (error && error->status) {
		json_destroy(&result);
		status = message_print_error(&head, id, error);
	} else {
		status = message_print_result(&head, id, result);
	}
	if (status) {
		error_set(&too_long, status, "the answer is too long for a message");
		buffer_finish(&head);
		buffer_init(&head, LIMIT_HEAD_BYTES);
		status = message_print_error(&head, id, &too_long);
	}
	if (!status)
		enqueue(instance, &head);
	buffer_finish(&head);
}

void instance_fail(struct instance *instance, const struct error *error)
{
	pthread_mutex_lock(&instance->lock);
	if (!instance->failed)
		instance->failure = *error;
	instance->failed = true;
	instance->ending = true;
	pthread_cond_signal(&instance->changed);
	wake_reader(instance);
	pthread_mutex_unlock(&instance->lock);
}
