/* See bound.h: the table, and the text of an entry. Open addressing by subject; a removed row leaves a mark until the
 * table grows. Values that a change replaced are kept in a list until the change is certain. */
#include "server/store/audit/bound.h"

#include "common/base/keyed_hash.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 256, HEX = 2 * TREE_HASH_BYTES };

struct item {
	char *subject; // NULL: nothing stands here
	struct tree_hash digest;
	uint64_t seq;
	bool live;
};

struct undo {
	char *subject; // of the item, which owns it
	struct tree_hash digest;
	uint64_t seq;
	bool live;
};

struct bound {
	pthread_mutex_t lock;
	struct item *items; // (slots)
	size_t slots, count;
	struct undo *undo; // (undo_room)
	size_t undo_count, undo_room;
};

enum status bound_create(struct bound **out)
{
	struct bound *bound = calloc(1, sizeof *bound);
	*out = bound;
	if (!bound)
		return STATUS_OUT_OF_MEMORY;
	pthread_mutex_init(&bound->lock, NULL);
	bound->slots = FIRST_SLOTS;
	bound->items = calloc(bound->slots, sizeof *bound->items);
	if (!bound->items)
		bound_destroy(out);
	return *out ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static void empty(struct bound *bound)
{
	for (size_t i = 0; bound->items && i < bound->slots; i++) {
		free(bound->items[i].subject);
		bound->items[i] = (struct item){.subject = NULL};
	}
	bound->count = bound->undo_count = 0;
}

void bound_destroy(struct bound **pointer)
{
	struct bound *bound = *pointer;
	*pointer = NULL;
	if (!bound)
		return;
	empty(bound);
	free(bound->items);
	free(bound->undo);
	pthread_mutex_destroy(&bound->lock);
	free(bound);
}

void bound_clear(struct bound *bound)
{
	pthread_mutex_lock(&bound->lock);
	empty(bound);
	pthread_mutex_unlock(&bound->lock);
}

// Subjects come from rows, too, which somebody may have filled with ids of his choice; so the hash has a key.
static struct item *place(struct item *items, size_t slots, const char *subject)
{
	size_t at = (size_t)(keyed_hash(subject, strlen(subject)) & (slots - 1));
	while (items[at].subject && strcmp(items[at].subject, subject) != 0)
		at = (at + 1) & (slots - 1);
	return &items[at];
}

// Twice as many places, or as many: marks of rows that are gone are left out, unless they may have to come back.
static bool grow(struct bound *bound)
{
	size_t live = 0;
	for (size_t i = 0; i < bound->slots; i++)
		live += bound->items[i].subject && (bound->items[i].live || bound->undo_count);
	const size_t slots = live * 4 > bound->slots ? bound->slots * 2 : bound->slots;
	struct item *items = calloc(slots, sizeof *items);
	if (!items)
		return false;
	for (size_t i = 0; i < bound->slots; i++) {
		struct item *item = &bound->items[i];
		if (item->subject && (item->live || bound->undo_count))
			*place(items, slots, item->subject) = *item;
		else
			free(item->subject);
	}
	free(bound->items);
	bound->items = items;
	bound->slots = slots;
	bound->count = live;
	return true;
}

static bool note(struct bound *bound, const struct item *item)
{
	if (bound->undo_count == bound->undo_room) {
		size_t room = bound->undo_room ? bound->undo_room * 2 : 64;
		struct undo *undo = realloc(bound->undo, room * sizeof *undo);
		if (!undo)
			return false;
		bound->undo = undo;
		bound->undo_room = room;
	}
	bound->undo[bound->undo_count++] = (struct undo){item->subject, item->digest, item->seq, item->live};
	return true;
}

static enum status set(struct bound *bound, const char *subject, const struct tree_hash *digest, uint64_t seq,
		       bool *changed)
{
	struct item *item = place(bound->items, bound->slots, subject);
	*changed = item->subject && item->live ? !digest || memcmp(&item->digest, digest, sizeof *digest) != 0
					       : digest != NULL;
	if (!item->subject) {
		if (bound->count * 2 >= bound->slots && !grow(bound))
			return STATUS_OUT_OF_MEMORY;
		item = place(bound->items, bound->slots, subject);
		item->subject = strdup(subject);
		if (!item->subject)
			return STATUS_OUT_OF_MEMORY;
		bound->count++;
	}
	if (!note(bound, item))
		return STATUS_OUT_OF_MEMORY;
	item->live = digest != NULL;
	item->seq = seq;
	if (digest)
		item->digest = *digest;
	return STATUS_OK;
}

enum status bound_set(struct bound *bound, const char *subject, const struct tree_hash *digest, uint64_t seq,
		      bool *changed)
{
	bool ignored;
	pthread_mutex_lock(&bound->lock);
	enum status status = set(bound, subject, digest, seq, changed ? changed : &ignored);
	pthread_mutex_unlock(&bound->lock);
	return status;
}

bool bound_find(struct bound *bound, const char *subject, struct tree_hash *digest, uint64_t *seq)
{
	pthread_mutex_lock(&bound->lock);
	const struct item *item = place(bound->items, bound->slots, subject);
	const bool found = item->subject && item->live;
	if (found && digest)
		*digest = item->digest;
	if (found && seq)
		*seq = item->seq;
	pthread_mutex_unlock(&bound->lock);
	return found;
}

bool bound_told(struct bound *bound, const char *subject)
{
	pthread_mutex_lock(&bound->lock);
	const bool told = place(bound->items, bound->slots, subject)->subject != NULL;
	pthread_mutex_unlock(&bound->lock);
	return told;
}

size_t bound_mark(struct bound *bound)
{
	pthread_mutex_lock(&bound->lock);
	size_t mark = bound->undo_count;
	pthread_mutex_unlock(&bound->lock);
	return mark;
}

void bound_undo(struct bound *bound, size_t mark)
{
	pthread_mutex_lock(&bound->lock);
	while (bound->undo_count > mark) {
		const struct undo *undo = &bound->undo[--bound->undo_count];
		struct item *item = place(bound->items, bound->slots, undo->subject);
		item->digest = undo->digest;
		item->seq = undo->seq;
		item->live = undo->live;
	}
	pthread_mutex_unlock(&bound->lock);
}

void bound_keep(struct bound *bound)
{
	pthread_mutex_lock(&bound->lock);
	bound->undo_count = 0;
	pthread_mutex_unlock(&bound->lock);
}

void bound_each(struct bound *bound,
		void (*each)(void *context, const char *subject, const struct tree_hash *digest, uint64_t seq),
		void *context)
{
	for (size_t i = 0; i < bound->slots; i++) {
		const struct item *item = &bound->items[i];
		if (item->subject && item->live)
			each(context, item->subject, &item->digest, item->seq);
	}
}

// ---- the text of an entry ----

enum status bound_print(struct buffer *text, const char *subject, const struct tree_hash *digest)
{
	char line[BOUND_SUBJECT_BYTES + HEX + 3];
	int length = snprintf(line, sizeof line, "%s %s", subject, digest ? "" : "-");
	for (size_t i = 0; digest && i < TREE_HASH_BYTES; i++)
		length += snprintf(line + length, sizeof line - (size_t)length, "%02x", digest->bytes[i]);
	line[length++] = '\n';
	return buffer_append(text, line, (size_t)length);
}

static int hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool read_digest(const char *text, size_t length, struct tree_hash *digest)
{
	if (length != HEX)
		return false;
	for (size_t i = 0; i < TREE_HASH_BYTES; i++) {
		const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		digest->bytes[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

enum status bound_read(const char *text,
		       enum status (*line)(void *context, const char *subject, const struct tree_hash *digest),
		       void *context)
{
	enum status status = STATUS_OK;
	char subject[BOUND_SUBJECT_BYTES];
	struct tree_hash digest;
	while (*text && !status) {
		const size_t length = strcspn(text, "\n"), kind = strcspn(text, " \n");
		const size_t id = kind < length ? strcspn(text + kind + 1, " \n") : 0, end = kind + 1 + id;
		if (text[length] != '\n' || !kind || !id || end >= length || end >= sizeof subject)
			return STATUS_INVALID_PARAMS;
		const bool gone = length - end == 2 && text[end + 1] == '-';
		if (!gone && !read_digest(text + end + 1, length - end - 1, &digest))
			return STATUS_INVALID_PARAMS;
		memcpy(subject, text, end);
		subject[end] = 0;
		status = line(context, subject, gone ? NULL : &digest);
		text += length + 1;
	}
	return status;
}

struct taking {
	struct bound *bound;
	uint64_t seq;
};

static enum status take_line(void *context, const char *subject, const struct tree_hash *digest)
{
	const struct taking *taking = context;
	return bound_set(taking->bound, subject, digest, taking->seq, NULL);
}

enum status bound_take(struct bound *bound, const char *text, uint64_t seq)
{
	struct taking taking = {.bound = bound, .seq = seq};
	return bound_read(text, take_line, &taking);
}
