/* See warnings.h. Lines wait in a ring under a lock; the thread that logs posts one look at it to the loop. */
#include "engine/node/warnings.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { WAITING = LIMIT_NODE_LINES_PER_MIN, TEXT_BYTES = 513, AREA_BYTES = 25, MINUTE_MS = 60 * 1000 };

struct warning {
	enum log_level level;
	int64_t said_ms; // wall clock
	int64_t dropped; // before it
	char area[AREA_BYTES], text[TEXT_BYTES];
};

struct warnings {
	struct warnings_params params;
	pthread_mutex_t lock;
	// Under the lock.
	struct warning ring[WAITING];
	size_t first, count;
	bool posted;
	int64_t minute_ms, dropped; // minute_ms: steady clock, when it began
	unsigned said;              // in it
};

static void flush(void *arg)
{
	warnings_flush(arg);
}

static bool says_too_much(struct warnings *warnings)
{
	const int64_t now_ms = clock_steady_ms();
	if (!warnings->minute_ms || now_ms - warnings->minute_ms >= MINUTE_MS) {
		warnings->minute_ms = now_ms;
		warnings->said = 0;
	}
	return ++warnings->said > LIMIT_NODE_LINES_PER_MIN;
}

static void on_line(void *context, enum log_level level, const char *area, const char *text)
{
	struct warnings *warnings = context;
	if (level > LOG_WARNING)
		return;
	pthread_mutex_lock(&warnings->lock);
	if (says_too_much(warnings)) {
		warnings->dropped++;
		pthread_mutex_unlock(&warnings->lock);
		return;
	}
	if (warnings->count == WAITING) { // its count is carried over
		warnings->dropped += warnings->ring[warnings->first].dropped + 1;
		warnings->first = (warnings->first + 1) % WAITING;
		warnings->count--;
	}
	struct warning *warning = &warnings->ring[(warnings->first + warnings->count++) % WAITING];
	*warning = (struct warning){.level = level, .said_ms = clock_wall_ms(), .dropped = warnings->dropped};
	snprintf(warning->area, sizeof warning->area, "%s", area);
	snprintf(warning->text, sizeof warning->text, "%s", text);
	warnings->dropped = 0;
	const bool post = !warnings->posted;
	warnings->posted |= post;
	if (post && net_loop_post(warnings->params.loop, flush, warnings))
		warnings->posted = false;
	pthread_mutex_unlock(&warnings->lock);
}

static bool take(struct warnings *warnings, struct warning *warning)
{
	pthread_mutex_lock(&warnings->lock);
	const bool any = warnings->count > 0;
	warnings->posted = false;
	if (any) {
		*warning = warnings->ring[warnings->first];
		warnings->first = (warnings->first + 1) % WAITING;
		warnings->count--;
	}
	pthread_mutex_unlock(&warnings->lock);
	return any;
}

// A warning that could not be sent is counted in the next one, with its own count.
static void lose(struct warnings *warnings, const struct warning *warning)
{
	pthread_mutex_lock(&warnings->lock);
	warnings->dropped += warning->dropped + 1;
	pthread_mutex_unlock(&warnings->lock);
}

void warnings_flush(struct warnings *warnings)
{
	struct warning warning;
	char at[CLOCK_TEXT_BYTES];
	while (warnings->params.ready(warnings->params.arg) && take(warnings, &warning)) {
		struct json *params = json_new_object();
		json_set_string(params, "level", log_level_name(warning.level));
		json_set_string(params, "area", warning.area);
		json_set_string(params, "text", warning.text);
		json_set_string(params, "at", clock_format(warning.said_ms, at));
		json_set_integer(params, "dropped", warning.dropped);
		if (!warnings->params.tell(warnings->params.arg, params)) {
			lose(warnings, &warning);
			return; // the rest waits: for the next line, or the next connection
		}
	}
}

void warnings_next_minute(struct warnings *warnings)
{
	pthread_mutex_lock(&warnings->lock);
	warnings->minute_ms = 0;
	pthread_mutex_unlock(&warnings->lock);
}

enum status warnings_create(struct warnings **out, const struct warnings_params *params)
{
	struct warnings *warnings = *out = calloc(1, sizeof(*warnings));
	if (!warnings)
		return STATUS_OUT_OF_MEMORY;
	warnings->params = *params;
	pthread_mutex_init(&warnings->lock, NULL);
	log_listen(on_line, warnings);
	return STATUS_OK;
}

void warnings_destroy(struct warnings **pointer)
{
	struct warnings *warnings = *pointer;
	*pointer = NULL;
	if (!warnings)
		return;
	log_listen(NULL, NULL);
	pthread_mutex_destroy(&warnings->lock);
	free(warnings);
}
