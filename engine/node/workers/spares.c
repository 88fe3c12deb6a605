/* See spares.h. */
#include "engine/node/workers/spares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	REST_MS = 500, // after a session has come: it has work for the device now
	IDLE_MS = 5 * 60 * 1000,
	SHORT_MS = 60 * 1000, // before a device that was short of memory is tried again
	FIRST_PAUSE_MS = 500,
	LONGEST_PAUSE_MS = 60 * 1000,
	LONGEST_THRESHOLD_MS = 60000,
};

static const uint64_t little_bytes = 512ull << 20;

struct spare_place *spares_find(struct spares *spares, enum backend_kind backend, const char *device_id)
{
	for (size_t i = 0; i < LIMIT_SPARES; i++) {
		struct spare_place *place = &spares->places[i];
		if (place->backend && place->backend == backend && !strcmp(place->device_id, device_id))
			return place;
	}
	return NULL;
}

static struct spare_place *take_place(struct spares *spares, const struct spare_use *use)
{
	for (size_t i = 0; i < LIMIT_SPARES; i++) {
		struct spare_place *place = &spares->places[i];
		if (place->backend)
			continue;
		*place = (struct spare_place){.backend = use->backend};
		snprintf(place->device_id, sizeof(place->device_id), "%s", use->device_id);
		return place;
	}
	return NULL;
}

// In ms; negative: never.
static int threshold(const struct spares *spares, bool processor)
{
	if (spares->setting != SPARES_AUTO)
		return spares->setting;
	return processor ? SPARES_OFF : SPARES_THRESHOLD_MS;
}

void spares_used(struct spares *spares, const struct spare_use *use)
{
	const int least_ms = threshold(spares, use->processor);
	struct spare_place *place = spares_find(spares, use->backend, use->device_id);
	if (least_ms < 0)
		return;
	if (!place && use->took_ms > least_ms)
		place = take_place(spares, use);
	if (!place)
		return;
	place->used_ms = use->now_ms;
	if (place->not_before_ms < use->now_ms + REST_MS)
		place->not_before_ms = use->now_ms + REST_MS;
	if (use->took_ms < 0)
		place->pause_ms = 0; // it has served its purpose
}

bool spares_is_idle(const struct spare_place *place, int64_t now_ms)
{
	return now_ms - place->used_ms >= IDLE_MS;
}

struct spare_place *spares_due(struct spares *spares, int64_t now_ms)
{
	struct spare_place *due = NULL;
	for (size_t i = 0; i < LIMIT_SPARES; i++) {
		struct spare_place *place = &spares->places[i];
		if (!place->backend || place->worker)
			continue;
		if (spares_is_idle(place, now_ms))
			*place = (struct spare_place){0};
		else if (!due && place->not_before_ms <= now_ms)
			due = place;
	}
	return due;
}

int64_t spares_failed(struct spare_place *place, int64_t now_ms)
{
	place->pause_ms = place->pause_ms ? 2 * place->pause_ms : FIRST_PAUSE_MS;
	if (place->pause_ms > LONGEST_PAUSE_MS)
		place->pause_ms = LONGEST_PAUSE_MS;
	place->not_before_ms = now_ms + place->pause_ms;
	return place->pause_ms;
}

bool spares_is_short(uint64_t free_bytes, uint64_t memory_bytes)
{
	return free_bytes < little_bytes || free_bytes < memory_bytes / 32;
}

void spares_postpone(struct spare_place *place, int64_t now_ms)
{
	place->not_before_ms = now_ms + SHORT_MS;
}

unsigned spares_places(const struct spares *spares)
{
	unsigned count = 0;
	for (size_t i = 0; i < LIMIT_SPARES; i++)
		count += spares->places[i].backend != BACKEND_UNKNOWN;
	return count;
}

unsigned spares_count(const struct spares *spares)
{
	unsigned count = 0;
	for (size_t i = 0; i < LIMIT_SPARES; i++)
		count += spares->places[i].worker != NULL;
	return count;
}

enum status spares_parse(const char *text, int *setting, struct error *error)
{
	char *end = NULL;
	long ms = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : 0;
	*setting = SPARES_OFF;
	if (!strcmp(text, "off"))
		return STATUS_OK;
	if (!end || *end || ms < 1 || ms > LONGEST_THRESHOLD_MS) {
		error_hint(error, "it is the time that a session may wait before a spare worker is kept");
		return error_set(error, STATUS_INVALID_PARAMS, "spares: \"%.32s\" is neither off nor 1 to %d ms", text,
				 LONGEST_THRESHOLD_MS);
	}
	*setting = (int)ms;
	return STATUS_OK;
}
