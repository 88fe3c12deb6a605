/* Remembers models that were requested and fit nowhere: the error, and how much memory there was. question.c decides
 * how long requests get this error; an instance that an admin creates is placed in any case. Thread: the loop's.
 *  */
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_BYTES = 1 << 20, PART_MISSING = 64 };

struct nowhere_device {
	char device_id[STORE_ID_BYTES];
	uint64_t bytes; // that may be had of its memory
};

struct nowhere {
	struct nowhere *next; // older
	char model_id[MODEL_ID_BYTES];
	struct error error;
	bool proven;
	int64_t found_ms;      // steady
	uint64_t notice_bytes; // from how many more on it is searched for again
	unsigned device_count;
	struct nowhere_device devices[]; // (device_count)
};

static uint64_t room_of(const struct placing *placing, unsigned device)
{
	uint64_t bytes = placing->devices[device].free_bytes;
	for (unsigned i = 0; i < placing->candidate_count; i++)
		bytes += placing->candidates[i].frees[device];
	return bytes > placing->lacking[device] ? bytes - placing->lacking[device] : 0;
}

void nowhere_forget(struct instances *all, const char *model_id)
{
	struct nowhere **at = &all->nowhere, *one;
	while (*at && strcmp((*at)->model_id, model_id) != 0)
		at = &(*at)->next;
	one = *at;
	if (one)
		*at = one->next;
	free(one);
}

void nowhere_keep(struct instances *all, const struct placing *placing, const struct error *error)
{
	const uint64_t part = placing->placement.missing_bytes / PART_MISSING;
	struct nowhere *one = malloc(sizeof *one + placing->wanted.device_count * sizeof *one->devices);
	unsigned count = 0;
	if (!one)
		return;
	nowhere_forget(all, placing->model_id);
	*one = (struct nowhere){.next = all->nowhere,
				.error = *error,
				.proven = placing->placement.proof == PROOF_INFEASIBLE,
				.found_ms = instances_now(all),
				.notice_bytes = part > LEAST_BYTES ? part : LEAST_BYTES};
	snprintf(one->model_id, sizeof one->model_id, "%s", placing->model_id);
	for (unsigned i = 0; i < placing->wanted.device_count; i++) {
		struct nowhere_device *device = &one->devices[one->device_count];
		if (placing->devices[i].unusable)
			continue;
		snprintf(device->device_id, sizeof device->device_id, "%s", placing->devices[i].device_id);
		device->bytes = room_of(placing, i);
		one->device_count++;
	}
	all->nowhere = one;
	for (struct nowhere *at = one; at; at = at->next)
		if (++count == LIMIT_INSTANCES && at->next)
			nowhere_forget(all, at->next->model_id);
}

// More of the device than when it was looked at.
static bool has_more(const struct nowhere *one, const struct placing *placing, unsigned device)
{
	for (unsigned i = 0; i < one->device_count; i++)
		if (!strcmp(one->devices[i].device_id, placing->devices[device].device_id))
			return room_of(placing, device) >= one->devices[i].bytes + one->notice_bytes;
	return true;
}

static const struct nowhere *find(const struct instances *all, const char *model_id)
{
	const struct nowhere *one = all->nowhere;
	while (one && strcmp(one->model_id, model_id) != 0)
		one = one->next;
	return one;
}

void nowhere_see(struct question_seen *seen, const struct instances *all, const char *model_id)
{
	const struct nowhere *one = find(all, model_id);
	if (!one)
		return;
	seen->nowhere = &one->error;
	seen->nowhere_proven = one->proven;
	seen->nowhere_ms = one->found_ms;
}

enum question_room nowhere_look(const struct instances *all, const struct model_record *model)
{
	const struct nowhere *one = find(all, model->model_id);
	struct placing *placing;
	enum question_room room = ROOM_SAME;
	if (!one || placing_gather_memory(&placing, all, model))
		return ROOM_MORE;
	for (unsigned i = 0; i < placing->wanted.device_count; i++)
		if (!placing->devices[i].unusable && has_more(one, placing, i))
			room = ROOM_MORE;
	free(placing);
	return room;
}

void nowhere_destroy(struct instances *all)
{
	while (all->nowhere)
		nowhere_forget(all, all->nowhere->model_id);
}
