/* See audit.h. Counted events are in groups, one for each actor, session and address,
 * in a table by session (or by address without one). A group has at most GROUP_TALLIES
 * different events and then one for all others, so that nobody can fill the table or
 * the log with variety. Every LIMIT_TALLY_MS all groups are written, a few hundred
 * entries in a transaction. What could not be written returns to the table and is
 * written later, with newer counts. An entry's time is that of the first event it
 * counts. */
#include "server/security/audit.h"

#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/security/audit_actions.h"

#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BUCKETS = 4096,
	GROUP_TALLIES = 64,
	LOT_TALLIES = 512, // in one transaction, or a group more
	RETRY_MS = 1000,
	ACTION_BYTES = 48,
	TARGET_BYTES = 160,
};
static const char others[] = "(others)"; // in place of a target, when a group has too many

struct tally {
	struct tally *next; // of its group; the one counted last comes first
	int64_t at_us, duration_us;
	uint64_t count, bytes;
	uint32_t hash; // of what is told apart
	enum status outcome;
	char *detail; // NULL without one of its own
	char action[ACTION_BYTES], target[TARGET_BYTES], node_id[STORE_ID_BYTES], device_id[STORE_ID_BYTES];
};

struct group {
	struct group *next; // in its bucket, or its lot
	struct audit_actor by;
	struct tally *tallies;
	size_t count;
};

// Groups that are being written, and who waits for them.
struct lot {
	struct lot *next, **link;
	struct audit *audit;
	struct group *groups;
	void (*done)(void *context, enum status status); // may be NULL
	void *context;
};

// An entry that is being written, and who waits for it.
struct writing {
	struct writing *next, **link;
	struct audit *audit;
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};

struct audit {
	struct audit_params params;
	struct group *buckets[BUCKETS];
	uint32_t seed; // of the hash: addresses are for others to choose
	size_t tallies;
	uint64_t untold; // counted, and lost since for want of memory
	struct net_timer write_soon, try_again;
	struct lot *lots;
	struct writing *writings;
	bool failing;
	int64_t failing_ns; // since when
	struct error fault; // why
};

const struct audit_actor audit_server = {.actor = "server", .name = "", .session_id = "", .peer = ""};

// ---- whether the log can be written ----

static void write_all(struct audit *audit);

static void trial_done(void *context, enum status status, const struct error *error);

// An entry that says for how long there was none. It is written again and again until it could be.
static void try_again(void *context)
{
	char detail[64];
	struct audit *audit = context;
	snprintf(detail, sizeof detail, "{\"untold\":%" PRIu64 "}", audit->untold);
	const struct audit_event event = {
		.action = "audit.resume", .detail = audit->untold ? detail : NULL, .began_ns = audit->failing_ns};
	if (audit_write(audit, &event, trial_done, audit, NULL))
		net_timer_start(audit->params.loop, &audit->try_again, RETRY_MS, try_again, audit);
}

static void trial_done(void *context, enum status status, const struct error *error)
{
	struct audit *audit = context;
	(void)error;
	if (!status)
		audit->untold = 0;
	else
		net_timer_start(audit->params.loop, &audit->try_again, RETRY_MS, try_again, audit);
}

static void failed(struct audit *audit, const struct error *why)
{
	if (audit->failing)
		return;
	audit->failing = true;
	audit->failing_ns = clock_steady_ns();
	audit->fault = (struct error){0};
	error_set(&audit->fault, STATUS_UNAVAILABLE,
		  "the audit log cannot be written, and nothing that it must tell of is done");
	error_hint(&audit->fault, "the server's operator must check the disk; then it continues by itself");
	log_error("audit", "the audit log cannot be written, and nothing that it must tell of is done: %s; %s",
		  why->message, why->hint);
	net_timer_start(audit->params.loop, &audit->try_again, RETRY_MS, try_again, audit);
}

// Something is on disk again, whoever wrote it.
static void recovered(struct audit *audit)
{
	if (!audit->failing)
		return;
	audit->failing = false;
	log_info("audit", "the audit log can be written again");
	write_all(audit);
}

enum status audit_check(const struct audit *audit, struct error *error)
{
	if (!audit->failing)
		return STATUS_OK;
	if (error && !error->message[0])
		*error = audit->fault;
	return STATUS_UNAVAILABLE;
}

// ---- entries ----

static struct journal_entry entry_of(const struct audit_actor *by)
{
	return (struct journal_entry){
		.count = 1, .actor = by->actor, .actor_name = by->name, .session_id = by->session_id, .peer = by->peer};
}

static enum status put_event(struct store_batch *batch, const struct audit_event *event)
{
	struct journal_entry entry = entry_of(event->by ? event->by : &audit_server);
	if (event->began_ns) {
		int64_t ns = clock_steady_ns() - event->began_ns;
		entry.duration_us = ns > 1000 ? ns / 1000 : 1;
	}
	entry.action = event->action;
	entry.target = event->target;
	entry.node_id = event->node_id;
	entry.device_id = event->device_id;
	entry.outcome = status_word(event->outcome);
	entry.detail = event->detail;
	return store_put_audit(batch, &entry);
}

enum status audit_put(struct audit *audit, struct store_batch *batch, const struct audit_event *event)
{
	(void)audit;
	audit_action_check(AUDIT_USE_PUT, event->action, event->outcome);
	return put_event(batch, event);
}

static void writing_destroy(struct writing **pointer)
{
	struct writing *writing = *pointer;
	*pointer = NULL;
	LIST_REMOVE(writing, link);
	free(writing);
}

static void written(void *context, enum status status, const struct error *error)
{
	struct writing *writing = context, said = *writing;
	writing_destroy(&writing);
	if (status)
		failed(said.audit, error);
	else
		recovered(said.audit);
	if (said.done)
		said.done(said.context, status, error);
}

// Commit a batch that holds nothing but entries.
static enum status commit(struct audit *audit, struct store_batch **batch,
			  void (*done)(void *context, enum status status, const struct error *error), void *context,
			  struct error *error)
{
	struct error fault = {0};
	enum status status = store_commit(audit->params.store, batch, done, context);
	if (!status)
		return STATUS_OK;
	error_set(&fault, status, "too many changes wait for the disk");
	error_hint(&fault, "try again in a moment");
	failed(audit, &fault);
	if (error && !error->message[0])
		*error = fault;
	return status;
}

enum status audit_write(struct audit *audit, const struct audit_event *event,
			void (*done)(void *context, enum status status, const struct error *error), void *context,
			struct error *error)
{
	struct store_batch *batch = NULL;
	audit_action_check(AUDIT_USE_WRITE, event->action, event->outcome);
	struct writing *writing = calloc(1, sizeof *writing);
	enum status status = writing ? store_batch_create(&batch) : STATUS_OUT_OF_MEMORY;
	if (status) {
		free(writing);
		return error_set(error, status, "no memory for an entry of the audit log");
	}
	*writing = (struct writing){.audit = audit, .done = done, .context = context};
	LIST_PUSH(&audit->writings, writing, link);
	put_event(batch, event); // what fails here fails the batch
	status = commit(audit, &batch, written, writing, error);
	if (status)
		writing_destroy(&writing);
	return status;
}

static void entry_stored(void *context, const struct journal_entry *entry)
{
	struct audit *audit = context;
	recovered(audit);
	if (audit->params.publish)
		audit->params.publish(audit->params.context, audit_entry_json(entry));
}

struct json *audit_entry_json(const struct journal_entry *entry)
{
	return store_audit_json(entry);
}

// ---- counting ----

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
	return &audit->buckets[hash_text(audit->seed, session_id[0] ? session_id : peer) % BUCKETS];
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
	char cut[TARGET_BYTES];
	const char *target = text_of(what->target);
	struct group *group = group_of(audit, what->by);
	if (strnlen(target, TARGET_BYTES) == TARGET_BYTES) {
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
	write_all(context);
}

// Into the table, from which it is written with others.
static void keep(struct audit *audit, const struct audit_tally *what)
{
	if (audit->tallies >= LIMIT_TALLIES)
		write_all(audit);
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
		failed(lot->audit, error);
	} else {
		recovered(lot->audit);
	}
	lot_over(lot, status);
}

static void put_tally(struct store_batch *batch, const struct group *group, const struct tally *tally)
{
	char detail[64];
	struct journal_entry entry = entry_of(&group->by);
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
		status = commit(audit, &batch, lot_written, lot, NULL);
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

static void write_everything(struct audit *audit)
{
	size_t bucket = 0;
	enum status status = STATUS_OK;
	while (audit->tallies && !status) {
		size_t before = audit->tallies;
		struct lot *lot = lot_create(audit);
		if (!lot)
			return; // they stay, and the next turn of the timer tries again
		for (; bucket < BUCKETS; bucket++) {
			while (audit->buckets[bucket] && before - audit->tallies < LOT_TALLIES)
				lot_take(lot, &audit->buckets[bucket]);
			if (audit->buckets[bucket])
				break;
		}
		status = lot_write(lot);
	}
}

static void write_all(struct audit *audit)
{
	net_timer_stop(audit->params.loop, &audit->write_soon);
	if (!audit->failing) // else when it can be written again
		write_everything(audit);
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

// ---- beginning and end ----

enum status audit_create(struct audit **out, const struct audit_params *params, struct error *error)
{
	struct audit *audit = calloc(1, sizeof *audit);
	*out = audit;
	if (!audit)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the audit log");
	audit->params = *params;
	if (RAND_bytes((unsigned char *)&audit->seed, sizeof audit->seed) != 1) {
		free(audit);
		*out = NULL;
		return error_set(error, STATUS_UNAVAILABLE, "the system gives no random bytes");
	}
	store_listen_audit(params->store, entry_stored, audit);
	return STATUS_OK;
}

void audit_destroy(struct audit **pointer)
{
	struct audit *audit = *pointer;
	if (!audit)
		return;
	*pointer = NULL;
	write_everything(audit); // the store commits what waits, and tells nobody
	if (audit->tallies || audit->untold)
		log_error("audit", "what was counted last is not in the audit log, which cannot be written");
	store_listen_audit(audit->params.store, NULL, NULL);
	net_timer_stop(audit->params.loop, &audit->write_soon);
	net_timer_stop(audit->params.loop, &audit->try_again);
	while (audit->lots)
		lot_over(audit->lots, STATUS_PENDING);
	while (audit->writings) {
		struct writing *writing = audit->writings;
		writing_destroy(&writing);
	}
	for (size_t i = 0; i < BUCKETS; i++)
		groups_destroy(&audit->buckets[i]);
	free(audit);
}
