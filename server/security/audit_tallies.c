/* Events of the audit log that are counted; see audit_count in audit.h. They are in groups, one for each actor, session
 * and address, in a table by session (or by address without one). A group has at most GROUP_TALLIES different events
 * and then one for all others, so that nobody can fill the table or the log with variety. Every LIMIT_TALLY_MS all
 * groups are written, a few hundred entries in a transaction (a lot). What could not be written returns to the table
 * and is written later, with newer counts. An entry's time is that of the first event it counts. */
#include "common/base/limits.h"
#include "common/base/list.h"
#include "server/security/audit_actions.h"
#include "server/security/audit_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	GROUP_TALLIES = 64,
	LOT_TALLIES = 512, // in one transaction, or a group more
};
static const char others[] = "(others)"; // in place of a target, when a group has too many

// Eight bytes at a time: this stands in the way of every launch.
static uint32_t hash_text(uint64_t hash, const char *text)
{
	const uint64_t odd = 0x9E3779B97F4A7C15u;
	size_t length = strlen(text);
	for (uint64_t word; length >= sizeof word; text += sizeof word, length -= sizeof word) {
		memcpy(&word, text, sizeof word);
		hash = (hash ^ word) * odd;
		hash ^= hash >> 32;
	}
	uint64_t rest = length + 1;
	for (; length; length--)
		rest = rest << 8 | (uint8_t)*text++;
	hash = (hash ^ rest) * odd;
	return (uint32_t)(hash >> 32);
}

static struct group **bucket_of(struct audit *audit, const char *session_id, const char *peer)
{
	return &audit->buckets[hash_text(audit->seed, session_id[0] ? session_id : peer) % AUDIT_BUCKETS];
}

static struct group *group_of(struct audit *audit, const struct audit_actor *by)
{
	struct group **bucket = bucket_of(audit, by->session_id, by->peer);
	struct group *group = *bucket;
	while (group && (strcmp(group->by.session_id, by->session_id) != 0 || strcmp(group->by.peer, by->peer) != 0 ||
			 strcmp(group->by.actor, by->actor) != 0))
		group = group->next;
	if (group)
		return group;
	group = calloc(1, sizeof *group);
	if (!group)
		return NULL;
	group->by = *by;
	group->next = *bucket;
	*bucket = group;
	return group;
}

static const char *text_of(const char *text)
{
	return text ? text : "";
}

// Copies as much of a text as fits, ending at a whole character.
static void copy_text(char *out, size_t size, const char *text)
{
	size_t length = strnlen(text, size);
	if (length == size)
		for (length--; length && ((uint8_t)text[length] & 0xC0) == 0x80;)
			length--;
	memcpy(out, text, length);
	out[length] = 0;
}

static uint32_t hash_of(const struct audit_tally *what, const char *target)
{
	return hash_text(hash_text(hash_text((uint64_t)what->outcome, what->action), target), text_of(what->device_id));
}

static bool same(const struct tally *tally, const struct audit_tally *what, const char *target, uint32_t hash)
{
	return tally->hash == hash && !tally->detail && tally->outcome == what->outcome &&
	       !strcmp(tally->action, what->action) && !strcmp(tally->target, target) &&
	       !strcmp(tally->device_id, text_of(what->device_id)) && !strcmp(tally->node_id, text_of(what->node_id));
}

// The tally of this, moved to the front of its group. NULL: there is none yet.
static struct tally *find(struct group *group, const struct audit_tally *what, const char *target)
{
	const uint32_t hash = hash_of(what, target);
	struct tally **at = &group->tallies;
	while (*at && !same(*at, what, target, hash))
		at = &(*at)->next;
	struct tally *tally = *at;
	if (tally && at != &group->tallies) {
		*at = tally->next;
		tally->next = group->tallies;
		group->tallies = tally;
	}
	return tally;
}

static struct tally *begin(struct audit *audit, struct group *group, const struct audit_tally *what, const char *target)
{
	struct tally *tally = calloc(1, sizeof *tally);
	if (!tally || (what->detail && !(tally->detail = strdup(what->detail)))) {
		free(tally);
		return NULL;
	}
	tally->at_us = clock_wall_ms() * 1000;
	tally->outcome = what->outcome;
	tally->hash = hash_of(what, target);
	copy_text(tally->action, sizeof tally->action, what->action);
	copy_text(tally->target, sizeof tally->target, target);
	copy_text(tally->node_id, sizeof tally->node_id, text_of(what->node_id));
	copy_text(tally->device_id, sizeof tally->device_id, text_of(what->device_id));
	tally->next = group->tallies;
	group->tallies = tally;
	group->count++;
	audit->tallies++;
	return tally;
}

static void add(struct tally *tally, const struct audit_tally *what)
{
	tally->count++;
	tally->bytes += what->bytes;
	tally->duration_us += what->duration_us;
}

static struct tally *tally_of(struct audit *audit, const struct audit_tally *what)
{
	char cut[AUDIT_TARGET_BYTES];
	const char *target = text_of(what->target);
	struct group *group = group_of(audit, what->by);
	if (strnlen(target, AUDIT_TARGET_BYTES) == AUDIT_TARGET_BYTES) {
		copy_text(cut, sizeof cut, target);
		target = cut;
	}
	if (!group)
		return NULL;
	struct tally *tally = what->detail ? NULL : find(group, what, target);
	if (!tally && !what->detail && group->count >= GROUP_TALLIES && target[0]) {
		target = others;
		tally = find(group, what, target);
	}
	return tally ? tally : begin(audit, group, what, target);
}

static void write_late(void *context)
{
	audit_write_all(context);
}

// Into the table, from which it is written with others.
static void keep(struct audit *audit, const struct audit_tally *what)
{
	if (audit->tallies >= LIMIT_TALLIES)
		audit_write_all(audit);
	struct tally *tally = audit->tallies < LIMIT_TALLIES ? tally_of(audit, what) : NULL;
	if (!tally) {
		audit->untold++;
		return;
	}
	add(tally, what);
	if (!audit->write_soon.running)
		net_timer_start(audit->params.loop, &audit->write_soon, LIMIT_TALLY_MS, write_late, audit);
}

void audit_count(struct audit *audit, const struct audit_tally *what)
{
	audit_action_check(AUDIT_USE_COUNT, what->action, what->outcome);
	keep(audit, what);
}

static void groups_destroy(struct group **groups)
{
	while (*groups) {
		struct group *group = *groups;
		*groups = group->next;
		while (group->tallies) {
			struct tally *tally = group->tallies;
			group->tallies = tally->next;
			free(tally->detail);
			free(tally);
		}
		free(group);
	}
}

static void lot_destroy(struct lot **pointer)
{
	struct lot *lot = *pointer;
	*pointer = NULL;
	LIST_REMOVE(lot, link);
	groups_destroy(&lot->groups);
	free(lot);
}

// Back into the table, to what came meanwhile.
static void put_back(struct audit *audit, const struct lot *lot)
{
	for (const struct group *group = lot->groups; group; group = group->next)
		for (const struct tally *old = group->tallies; old; old = old->next) {
			const struct audit_tally what = {.by = &group->by,
							 .action = old->action,
							 .target = old->target,
							 .node_id = old->node_id,
							 .device_id = old->device_id,
							 .outcome = old->outcome,
							 .detail = old->detail};
			struct tally *tally = audit->tallies < LIMIT_TALLIES ? tally_of(audit, &what) : NULL;
			if (!tally) {
				audit->untold += old->count;
				continue;
			}
			tally->count += old->count;
			tally->bytes += old->bytes;
			tally->duration_us += old->duration_us;
			tally->at_us = old->at_us < tally->at_us ? old->at_us : tally->at_us;
		}
}

static void lot_over(struct lot *lot, enum status status)
{
	const struct lot over = *lot;
	lot_destroy(&lot);
	if (over.done)
		over.done(over.context, status);
}

static void lot_written(void *context, enum status status, const struct error *error)
{
	struct lot *lot = context;
	if (status) {
		put_back(lot->audit, lot);
		audit_failed(lot->audit, error);
	} else {
		audit_recovered(lot->audit);
	}
	lot_over(lot, status);
}

static void put_tally(struct store_batch *batch, const struct group *group, const struct tally *tally)
{
	char detail[64];
	struct journal_entry entry = audit_entry_of(&group->by);
	snprintf(detail, sizeof detail, "{\"bytes\":%" PRIu64 "}", tally->bytes);
	entry.at_us = tally->at_us;
	entry.duration_us = tally->duration_us;
	entry.count = tally->count;
	entry.action = tally->action;
	entry.target = tally->target;
	entry.node_id = tally->node_id;
	entry.device_id = tally->device_id;
	entry.outcome = status_word(tally->outcome);
	entry.detail = tally->detail ? tally->detail : tally->bytes ? detail : NULL;
	store_put_audit(batch, &entry); // what fails here fails the batch
}

// Write the groups of one lot, in this batch. Both are taken. A failure puts the groups back.
static enum status lot_commit(struct lot *lot, struct store_batch *batch)
{
	struct audit *audit = lot->audit;
	enum status status = batch ? STATUS_OK : STATUS_OUT_OF_MEMORY;
	for (const struct group *group = lot->groups; group && !status; group = group->next)
		for (const struct tally *tally = group->tallies; tally; tally = tally->next)
			put_tally(batch, group, tally);
	if (!status)
		status = audit_commit_entries(audit, &batch, lot_written, lot, NULL);
	if (status) {
		put_back(audit, lot);
		lot_over(lot, status);
	}
	return status;
}

static enum status lot_write(struct lot *lot)
{
	struct store_batch *batch = NULL;
	store_batch_create(&batch);
	return lot_commit(lot, batch);
}

static struct lot *lot_create(struct audit *audit)
{
	struct lot *lot = calloc(1, sizeof *lot);
	if (!lot)
		return NULL;
	*lot = (struct lot){.audit = audit};
	LIST_PUSH(&audit->lots, lot, link);
	return lot;
}

// Move the group at *at into the lot.
static void lot_take(struct lot *lot, struct group **at)
{
	struct group *group = *at;
	*at = group->next;
	lot->audit->tallies -= group->count;
	group->next = lot->groups;
	lot->groups = group;
}

void audit_write_everything(struct audit *audit)
{
	size_t bucket = 0;
	enum status status = STATUS_OK;
	while (audit->tallies && !status) {
		size_t before = audit->tallies;
		struct lot *lot = lot_create(audit);
		if (!lot)
			return; // they stay, and the next turn of the timer tries again
		for (; bucket < AUDIT_BUCKETS; bucket++) {
			while (audit->buckets[bucket] && before - audit->tallies < LOT_TALLIES)
				lot_take(lot, &audit->buckets[bucket]);
			if (audit->buckets[bucket])
				break;
		}
		status = lot_write(lot);
	}
}

void audit_write_all(struct audit *audit)
{
	net_timer_stop(audit->params.loop, &audit->write_soon);
	if (!audit->failing) // else when it can be written again
		audit_write_everything(audit);
	if (audit->tallies)
		net_timer_start(audit->params.loop, &audit->write_soon, LIMIT_TALLY_MS, write_late, audit);
}

void audit_flush(struct audit *audit, const char *session_id)
{
	struct group **at = bucket_of(audit, session_id, "");
	struct lot *lot = audit->failing ? NULL : lot_create(audit);
	if (!lot)
		return;
	while (*at)
		if (!strcmp((*at)->by.session_id, session_id))
			lot_take(lot, at);
		else
			at = &(*at)->next;
	if (lot->groups)
		lot_write(lot);
	else
		lot_destroy(&lot);
}

// ---- one by one ----

// A lot of this alone. NULL: no memory.
static struct lot *lot_of(struct audit *audit, const struct audit_tally *what)
{
	struct lot *lot = lot_create(audit);
	struct group *group = lot ? calloc(1, sizeof *group) : NULL;
	struct tally *tally = group ? begin(audit, group, what, text_of(what->target)) : NULL;
	if (!tally) {
		free(group);
		if (lot)
			lot_destroy(&lot);
		return NULL;
	}
	group->by = *what->by;
	add(tally, what);
	lot_take(lot, &group);
	return lot;
}

void audit_tell(struct audit *audit, const struct audit_tally *what)
{
	audit_action_check(AUDIT_USE_TELL, what->action, what->outcome);
	struct lot *lot = audit->failing ? NULL : lot_of(audit, what);
	if (lot)
		lot_write(lot);
	else
		keep(audit, what);
}

void audit_commit(struct audit *audit, struct store_batch **pointer, const struct audit_tally *what,
		  void (*done)(void *context, enum status status), void *context)
{
	struct store_batch *batch = *pointer;
	struct lot *lot = lot_of(audit, what);
	*pointer = NULL;
	audit_action_check(AUDIT_USE_PUT, what->action, what->outcome);
	if (lot) {
		lot->done = done;
		lot->context = context;
		lot_commit(lot, batch);
		return;
	}
	store_batch_destroy(&batch);
	keep(audit, what);
	if (done)
		done(context, STATUS_OUT_OF_MEMORY);
}

void audit_tallies_finish(struct audit *audit)
{
	while (audit->lots)
		lot_over(audit->lots, STATUS_PENDING);
	for (size_t i = 0; i < AUDIT_BUCKETS; i++)
		groups_destroy(&audit->buckets[i]);
}
