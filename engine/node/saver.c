/* See saver.h. */
#include "engine/node/saver.h"

#include "common/base/log.h"
#include "engine/device/registry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct saver {
	char path[4096];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct buffer waiting; // under lock; empty: nothing to write
	bool stop;             // under lock
};

static void *saver_thread(void *arg)
{
	struct saver *saver = arg;
	pthread_mutex_lock(&saver->lock);
	while (!saver->stop || saver->waiting.length) {
		if (!saver->waiting.length) {
			pthread_cond_wait(&saver->wake, &saver->lock);
			continue;
		}
		struct buffer text = saver->waiting;
		struct error error = {0};
		buffer_init(&saver->waiting, text.maximum);
		pthread_mutex_unlock(&saver->lock);
		if (registry_write(saver->path, text.data, text.length, &error))
			log_error("node", "%s; %s", error.message, error.hint);
		buffer_finish(&text);
		pthread_mutex_lock(&saver->lock);
	}
	pthread_mutex_unlock(&saver->lock);
	return NULL;
}

enum status saver_create(struct saver **out, const char *path, struct error *error)
{
	struct saver *saver = calloc(1, sizeof(*saver));
	*out = NULL;
	if (!saver)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the registry's writer");
	snprintf(saver->path, sizeof(saver->path), "%s", path);
	pthread_mutex_init(&saver->lock, NULL);
	pthread_cond_init(&saver->wake, NULL);
	int failure = pthread_create(&saver->thread, NULL, saver_thread, saver);
	if (failure) {
		pthread_cond_destroy(&saver->wake);
		pthread_mutex_destroy(&saver->lock);
		free(saver);
		return error_errno(error, STATUS_UNAVAILABLE, failure, "starting the registry's writer");
	}
	*out = saver;
	return STATUS_OK;
}

void saver_destroy(struct saver **saver)
{
	if (!*saver)
		return;
	pthread_mutex_lock(&(*saver)->lock);
	(*saver)->stop = true;
	pthread_cond_signal(&(*saver)->wake);
	pthread_mutex_unlock(&(*saver)->lock);
	pthread_join((*saver)->thread, NULL);
	buffer_finish(&(*saver)->waiting);
	pthread_cond_destroy(&(*saver)->wake);
	pthread_mutex_destroy(&(*saver)->lock);
	free(*saver);
	*saver = NULL;
}

void saver_put(struct saver *saver, struct buffer *text)
{
	pthread_mutex_lock(&saver->lock);
	buffer_finish(&saver->waiting);
	saver->waiting = *text;
	buffer_init(text, text->maximum);
	pthread_cond_signal(&saver->wake);
	pthread_mutex_unlock(&saver->lock);
}
