/* Parts of a placement that stay as they are in the next one. See parts.h.
 *
 * When an instance is placed again, its remaining parts are spared until the new placement is known. A part is kept if
 * its worker lives, and the new placement gives it the same instance.load on the same devices; only the epoch, its
 * number, and the number of parts may differ. It drops its requests and takes the new epoch and number (parts_adopt.c).
 * The first part stays the first and the last part the last, because only they have the embedding and the output. Its
 * state is not trusted: it reports its loaded layers, and the parts are connected and checked as after any start. */
#include "server/instances/parts/parts_inside.h"

#include <stdlib.h>
#include <string.h>

// The layers of a part, as a text without its number. NULL: out of memory.
static char *describe(const struct parts *parts, const struct part *part)
{
	struct buffer text;
	struct json *params = parts_load_params(parts, part), *devices = json_new_array();
	if (json_get(params, "part")) {
		struct json *told = json_copy(json_get(params, "part"));
		static const char *const changing[] = {"epoch", "index", "count", "lanes"};
		for (size_t i = 0; i < sizeof changing / sizeof changing[0]; i++)
			json_remove(told, changing[i]);
		json_set_bool(told, "embeds", !part->index);
		json_set_bool(told, "predicts", part->index + 1 == parts->count);
		json_set(params, "part", told);
	}
	for (unsigned i = 0; i < part->stage_count; i++)
		json_push(devices,
			  json_new_string(cluster_device_id(parts->instance->stages[part->first_stage + i].device)));
	json_set(params, "devices", devices);
	buffer_init(&text, LIMIT_BODY_BYTES);
	json_print(params, &text);
	char *copy = text.failed ? NULL : strdup(buffer_text(&text));
	buffer_finish(&text);
	json_destroy(&params);
	return copy;
}

bool parts_spare(struct parts *parts, const char *why)
{
	bool any = false;
	if (!parts || !parts->proven || parts->adopting)
		return false;
	for (unsigned i = 0; i < parts->count; i++)
		any |= parts->part[i].worker && !instance_worker_is_away(parts->part[i].worker);
	if (!any || parts->count == 1)
		return false;
	parts->failed = parts->spared = true; // nothing more is reported
	net_timer_stop(parts->loop, &parts->limit);
	net_timer_stop(parts->loop, &parts->tell);
	parts_disconnect(parts);
	for (unsigned i = 0; i < parts->count; i++) {
		struct part *part = &parts->part[i];
		if (part->worker && instance_worker_is_away(part->worker))
			instance_worker_destroy(&part->worker, why);
		if (!part->worker || part->loaded)
			continue;
		part->loaded = describe(parts, part);
		instance_worker_recall(part->worker, why);
	}
	return true;
}

bool parts_at_work(const struct parts *parts)
{
	return parts && !parts->spared;
}

// The previous part whose worker has this loaded; NULL: none.
static struct part *find_kept(struct parts *before, const char *wanted)
{
	for (unsigned i = 0; i < before->count; i++) {
		struct part *old = &before->part[i];
		if (old->worker && old->loaded && !instance_worker_is_away(old->worker) && !strcmp(wanted, old->loaded))
			return old;
	}
	return NULL;
}

void parts_take_kept(struct parts *parts, struct parts *before)
{
	for (unsigned i = 0; i < parts->count && before->spared; i++) {
		struct part *part = &parts->part[i];
		char *wanted = describe(parts, part);
		struct part *old = wanted ? find_kept(before, wanted) : NULL;
		free(wanted);
		if (!old)
			continue;
		part->worker = old->worker;
		old->worker = NULL; // so that no other is the same
		part->step = PART_ADOPTING;
		part->was_stage = (int)old->first_stage;
		part->moved_up = old->index != part->index || before->count != parts->count;
		instance_worker_hand_over(part->worker, part);
		parts->kept++;
	}
}

unsigned parts_kept(const struct parts *parts)
{
	return parts ? parts->kept : 0;
}

int parts_was_stage(const struct parts *parts, unsigned stage)
{
	for (unsigned i = 0; i < parts->count; i++) {
		const struct part *part = &parts->part[i];
		if (stage >= part->first_stage && stage - part->first_stage < part->stage_count)
			return part->was_stage < 0 ? -1 : part->was_stage + (int)(stage - part->first_stage);
	}
	return -1;
}
