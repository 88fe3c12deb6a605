/* See book.h. Rows of a step lie together at the end of their series, since they are only added to the newest step. */
#include "server/usage/book.h"

#include "common/base/keyed_hash.h"
#include "common/base/limits.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096, SERIES = 2, OTHERS = 1 };

struct name {
	struct name *next; // of its bucket
	char *id, *name;
	uint32_t number;
	enum book_kind kind;
	struct store_counts total; // since the start, of a model or a device
};

struct row {
	int64_t at_s;
	struct book_key key;
	struct store_counts counts;
	bool changed, put; // since it was put last; put: in the batch that has not ended
};

struct series {
	int64_t step_s, kept_s;
	struct row *rows; // (count), oldest first
	size_t count, capacity;
	int64_t trim_s,
		trim_put_s; // rows on disk that are older are to go; put: by the batch that has not ended; 0: none
};

struct book {
	struct name *buckets[BUCKETS];
	struct name **names; // (name_count + 1) by number; none has 0
	uint32_t name_count, name_capacity;
	struct series series[SERIES];
};

// ---- names ----

static struct name **bucket_of(struct book *book, enum book_kind kind, const char *id)
{
	return &book->buckets[(keyed_hash(id, strlen(id)) + kind) % BUCKETS];
}

static bool make_room(struct book *book)
{
	if (book->name_count + 1 < book->name_capacity)
		return true;
	const uint32_t capacity = book->name_capacity ? 2 * book->name_capacity : 64;
	struct name **names = realloc(book->names, capacity * sizeof(struct name *));
	if (!names)
		return false;
	names[0] = NULL;
	book->names = names;
	book->name_capacity = capacity;
	return true;
}

static struct name *add_name(struct book *book, enum book_kind kind, const char *id)
{
	struct name *name = make_room(book) ? calloc(1, sizeof(*name)) : NULL;
	if (!name)
		return NULL;
	name->id = strdup(id);
	name->name = strdup("");
	if (!name->id || !name->name) {
		free(name->id);
		free(name->name);
		free(name);
		return NULL;
	}
	struct name **bucket = bucket_of(book, kind, id);
	name->kind = kind;
	name->next = *bucket;
	*bucket = name;
	book->names[++book->name_count] = name;
	name->number = book->name_count;
	return name;
}

uint32_t book_name(struct book *book, enum book_kind kind, const char *id, const char *text)
{
	if (!id[0])
		return 0;
	if (book->name_count && !strcmp(id, book->names[OTHERS]->id))
		return OTHERS;
	struct name *name = *bucket_of(book, kind, id);
	while (name && (name->kind != kind || strcmp(name->id, id) != 0))
		name = name->next;
	if (!name && book->name_count >= LIMIT_USAGE_NAMES)
		return OTHERS;
	if (!name)
		name = add_name(book, kind, id);
	if (!name)
		return 0;
	if (strcmp(name->name, text) != 0) {
		char *copy = strdup(text);
		if (copy) {
			free(name->name);
			name->name = copy;
		}
	}
	return name->number;
}

static const char *id_of(const struct book *book, uint32_t number)
{
	return number ? book->names[number]->id : "";
}

static const char *text_of(const struct book *book, uint32_t number)
{
	return number ? book->names[number]->name : "";
}

// ---- life ----

enum status book_create(struct book **out)
{
	struct book *book = *out = calloc(1, sizeof(*book));
	if (!book)
		return STATUS_OUT_OF_MEMORY;
	book->series[0] = (struct series){.step_s = BOOK_HOUR_S, .kept_s = BOOK_HOURS_KEPT_S};
	book->series[1] = (struct series){.step_s = BOOK_DAY_S, .kept_s = BOOK_DAYS_KEPT_S};
	if (book_name(book, BOOK_KINDS, "others", "others") == OTHERS)
		return STATUS_OK;
	book_destroy(out);
	return STATUS_OUT_OF_MEMORY;
}

void book_destroy(struct book **pointer)
{
	struct book *book = *pointer;
	if (!book)
		return;
	*pointer = NULL;
	for (uint32_t i = 1; i <= book->name_count; i++) {
		free(book->names[i]->id);
		free(book->names[i]->name);
		free(book->names[i]);
	}
	free(book->names);
	for (int i = 0; i < SERIES; i++)
		free(book->series[i].rows);
	free(book);
}

// ---- counting ----

static void add_counts(struct store_counts *sum, const struct store_counts *more)
{
	const bool measured = more->energy_source != STORE_ENERGY_NONE;
	sum->requests += more->requests;
	sum->prompt_tokens += more->prompt_tokens;
	sum->cached_tokens += more->cached_tokens;
	sum->completion_tokens += more->completion_tokens;
	sum->proposed_tokens += more->proposed_tokens;
	sum->accepted_tokens += more->accepted_tokens;
	sum->drafted_tokens += more->drafted_tokens;
	sum->draft_accepted_tokens += more->draft_accepted_tokens;
	sum->device_s += more->device_s;
	sum->energy_joules += more->energy_joules;
	sum->idle_joules += more->idle_joules;
	// A sum is a counter's only if all of it is.
	if (measured && (sum->energy_source == STORE_ENERGY_NONE || more->energy_source < sum->energy_source))
		sum->energy_source = more->energy_source;
}

// The row of this key in the step; NULL: there is none.
static struct row *find(const struct series *series, int64_t at_s, const struct book_key *key, size_t *in_step)
{
	*in_step = 0;
	for (size_t i = series->count; i > 0 && series->rows[i - 1].at_s == at_s; i--, ++*in_step)
		if (!memcmp(&series->rows[i - 1].key, key, sizeof(*key)))
			return &series->rows[i - 1];
	return NULL;
}

// The oldest rows go before there are more.
static void drop_old(struct series *series, int64_t at_s)
{
	size_t old = 0;
	const int64_t before_s = at_s - series->kept_s;
	while (old < series->count && series->rows[old].at_s < before_s)
		old++;
	if (!old)
		return;
	memmove(series->rows, series->rows + old, (series->count - old) * sizeof(*series->rows));
	series->count -= old;
	series->trim_s = before_s;
}

static struct row *append(struct series *series, int64_t at_s, const struct book_key *key)
{
	if (series->count == series->capacity) {
		const size_t capacity = series->capacity ? 2 * series->capacity : 64;
		struct row *rows = realloc(series->rows, capacity * sizeof(*rows));
		if (!rows)
			return NULL;
		series->rows = rows;
		series->capacity = capacity;
	}
	series->rows[series->count] = (struct row){.at_s = at_s, .key = *key};
	return &series->rows[series->count++];
}

static struct row *row_for(struct series *series, int64_t at_s, const struct book_key *wanted)
{
	size_t in_step;
	struct book_key key = *wanted;
	struct row *row = find(series, at_s, &key, &in_step);
	if (row)
		return row;
	if (in_step >= LIMIT_USAGE_KEYS) {
		for (int i = 0; i < BOOK_KINDS; i++)
			key.of[i] = key.of[i] ? OTHERS : 0;
		if ((row = find(series, at_s, &key, &in_step)))
			return row;
	}
	return append(series, at_s, &key);
}

static void add_total(struct book *book, const struct book_key *key, const struct store_counts *counts)
{
	const uint32_t device = key->of[BOOK_DEVICE], number = device ? device : key->of[BOOK_MODEL];
	if (number)
		add_counts(&book->names[number]->total, counts);
}

void book_add(struct book *book, int64_t now_s, const struct book_key *key, const struct store_counts *counts)
{
	add_total(book, key, counts);
	for (int i = 0; i < SERIES; i++) {
		struct series *series = &book->series[i];
		int64_t at_s = now_s - now_s % series->step_s;
		if (series->count && series->rows[series->count - 1].at_s > at_s)
			at_s = series->rows[series->count - 1].at_s;
		else if (series->count && series->rows[series->count - 1].at_s < at_s)
			drop_old(series, at_s);
		struct row *row = row_for(series, at_s, key);
		if (!row)
			continue; // no memory: what is counted is a little too small
		add_counts(&row->counts, counts);
		row->changed = true;
	}
}

void book_load(struct book *book, const struct store_usage *stored)
{
	const struct book_key key = {.of = {
					     book_name(book, BOOK_TOKEN, stored->token_id, stored->token_name),
					     book_name(book, BOOK_MODEL, stored->model_id, stored->model_name),
					     book_name(book, BOOK_DEVICE, stored->device_id, stored->device_name),
				     }};
	for (int i = 0; i < SERIES; i++) {
		struct series *series = &book->series[i];
		if (series->step_s != stored->step_s ||
		    (series->count && series->rows[series->count - 1].at_s > stored->at_s))
			continue;
		struct row *row = append(series, stored->at_s, &key);
		if (row)
			row->counts = stored->counts;
	}
}

void book_totals(const struct book *book, enum book_kind kind,
		 void (*each)(void *context, const struct book_sum *total), void *context)
{
	for (uint32_t i = 1; i <= book->name_count; i++) {
		const struct name *name = book->names[i];
		if (name->kind == kind)
			each(context, &(struct book_sum){.id = name->id, .name = name->name, .counts = name->total});
	}
}

// ---- storing ----

static enum status put_row(const struct book *book, const struct series *series, const struct row *row,
			   struct store_batch *batch)
{
	const uint32_t *of = row->key.of;
	return store_put_usage(batch, &(struct store_usage){.step_s = series->step_s,
							    .at_s = row->at_s,
							    .token_id = id_of(book, of[BOOK_TOKEN]),
							    .model_id = id_of(book, of[BOOK_MODEL]),
							    .device_id = id_of(book, of[BOOK_DEVICE]),
							    .token_name = text_of(book, of[BOOK_TOKEN]),
							    .model_name = text_of(book, of[BOOK_MODEL]),
							    .device_name = text_of(book, of[BOOK_DEVICE]),
							    .counts = row->counts});
}

enum status book_put(struct book *book, struct store_batch *batch, size_t most, size_t *count)
{
	enum status status = STATUS_OK;
	*count = 0;
	for (int i = 0; i < SERIES && !status; i++) {
		struct series *series = &book->series[i];
		if (series->trim_s && *count < most) {
			status = store_trim_usage(batch, series->step_s, series->trim_s);
			series->trim_put_s = series->trim_s;
			series->trim_s = 0;
			++*count;
		}
		for (size_t at = series->count; at > 0 && *count < most && !status; at--) {
			struct row *row = &series->rows[at - 1];
			if (!row->changed)
				continue;
			status = put_row(book, series, row, batch);
			row->changed = false;
			row->put = true;
			++*count;
		}
	}
	if (status)
		book_put_ended(book, false);
	return status;
}

void book_put_ended(struct book *book, bool stored)
{
	for (int i = 0; i < SERIES; i++) {
		struct series *series = &book->series[i];
		if (!stored && !series->trim_s)
			series->trim_s = series->trim_put_s;
		series->trim_put_s = 0;
		for (size_t at = 0; at < series->count; at++) {
			struct row *row = &series->rows[at];
			row->changed |= row->put && !stored;
			row->put = false;
		}
	}
}

// ---- sums ----

struct item {
	int64_t at_s;
	uint32_t number;
	struct store_counts counts;
};

static int by_key(const void *a, const void *b)
{
	const struct item *one = a, *other = b;
	if (one->at_s != other->at_s)
		return one->at_s < other->at_s ? -1 : 1;
	return (one->number > other->number) - (one->number < other->number);
}

static int by_time(const void *a, const void *b)
{
	const struct item *one = a, *other = b;
	if (one->at_s != other->at_s)
		return one->at_s < other->at_s ? -1 : 1;
	if (one->counts.device_s != other->counts.device_s)
		return one->counts.device_s > other->counts.device_s ? -1 : 1;
	return by_key(a, b);
}

// What a row adds to a sum by this kind. False: nothing.
static bool take_row(const struct row *row, const struct book_query *query, uint32_t token, struct item *item)
{
	const bool of_device = row->key.of[BOOK_DEVICE];
	*item = (struct item){.number = row->key.of[query->by], .counts = row->counts};
	if (!item->number || (query->token_id && (!token || row->key.of[BOOK_TOKEN] != token)))
		return false;
	if (query->by == BOOK_DEVICE)
		return true;
	if (of_device)
		item->counts.requests = item->counts.prompt_tokens = item->counts.cached_tokens =
			item->counts.completion_tokens = 0;
	return true;
}

// Items of equal steps and numbers become one. Returns how many are left.
static size_t merge(struct item *items, size_t count)
{
	size_t kept = 0;
	qsort(items, count, sizeof(*items), by_key);
	for (size_t i = 0; i < count; i++)
		if (kept && !by_key(&items[kept - 1], &items[i]))
			add_counts(&items[kept - 1].counts, &items[i].counts);
		else
			items[kept++] = items[i];
	return kept;
}

static const struct series *series_for(const struct book *book, const struct book_query *query)
{
	const struct series *hours = &book->series[0];
	const int64_t newest_s = hours->count ? hours->rows[hours->count - 1].at_s : 0;
	return query->from_s >= newest_s - hours->kept_s ? hours : &book->series[1];
}

static uint32_t find_number(const struct book *book, enum book_kind kind, const char *id)
{
	const struct name *name = book->buckets[(keyed_hash(id, strlen(id)) + kind) % BUCKETS];
	while (name && (name->kind != kind || strcmp(name->id, id) != 0))
		name = name->next;
	return name ? name->number : 0;
}

// The rows of the query as items, each in its step. Returns how many.
static size_t collect(const struct book *book, const struct book_query *query, int64_t step_s, struct item *items)
{
	size_t count = 0;
	const struct series *series = series_for(book, query);
	const uint32_t token = query->token_id ? find_number(book, BOOK_TOKEN, query->token_id) : 0;
	for (size_t i = 0; i < series->count; i++) {
		const struct row *row = &series->rows[i];
		if (row->at_s + series->step_s <= query->from_s || row->at_s >= query->to_s ||
		    !take_row(row, query, token, &items[count]))
			continue;
		items[count++].at_s = step_s ? row->at_s - row->at_s % step_s : query->from_s;
	}
	return merge(items, count);
}

enum status book_sum(const struct book *book, const struct book_query *query,
		     void (*each)(void *context, const struct book_sum *sum), void *context, int64_t *step_s)
{
	const struct series *series = series_for(book, query);
	struct item *items = malloc((series->count + 1) * sizeof(*items));
	if (!items)
		return STATUS_OUT_OF_MEMORY;
	int64_t step = query->step_s;
	if (step)
		step = (step + series->step_s - 1) / series->step_s * series->step_s;
	size_t count = collect(book, query, step, items);
	while (step && count > LIMIT_USAGE_ROWS) {
		step = step > BOOK_DAYS_KEPT_S ? 0 : 2 * step;
		count = collect(book, query, step, items);
	}
	qsort(items, count, sizeof(*items), by_time);
	for (; count > LIMIT_USAGE_ROWS; count--) {
		add_counts(&items[LIMIT_USAGE_ROWS - 1].counts, &items[count - 1].counts);
		items[LIMIT_USAGE_ROWS - 1].number = OTHERS;
	}
	for (size_t i = 0; i < count; i++)
		each(context, &(struct book_sum){.id = id_of(book, items[i].number),
						 .name = text_of(book, items[i].number),
						 .at_s = items[i].at_s,
						 .counts = items[i].counts});
	free(items);
	*step_s = step;
	return STATUS_OK;
}
