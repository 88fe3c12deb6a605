/* The book of usage: what was used in each hour and each day (UTC), by token, model and device. Hours are kept for
 * eight days, days for a year. In memory only; usage.c stores its rows. Pure, on a clock that is given to it. Thread:
 * the loop's.
 *
 * Two kinds of rows count a request. The row without a device counts it once, with its tokens. A row with a device
 * counts it once for that device, with its tokens again and with the time and energy of that device. So sums over
 * tokens and models take requests and tokens from the first kind, time and energy from the second; sums over devices
 * take the second kind only. What a device draws while idle is a row without a token and a model.
 *
 * An hour or a day has LIMIT_USAGE_KEYS rows at most; what comes beyond is counted under "others". */
#pragma once
#include "server/store/store.h"

enum book_kind { BOOK_TOKEN, BOOK_MODEL, BOOK_DEVICE, BOOK_KINDS };
enum {
	BOOK_HOUR_S = 3600,
	BOOK_DAY_S = 86400,
	BOOK_HOURS_KEPT_S = 8 * BOOK_DAY_S,
	BOOK_DAYS_KEPT_S = 366 * BOOK_DAY_S
};

struct book;
// Errors: STATUS_OUT_OF_MEMORY.
enum status book_create(struct book **out);
void book_destroy(struct book **book);

// The number of an id, under which it is counted from now on, with this name. 0: it is "", or there is no memory.
uint32_t book_name(struct book *book, enum book_kind kind, const char *id, const char *name);

struct book_key {
	uint32_t of[BOOK_KINDS]; // numbers; 0: none
};
// Count this now. A clock that goes back counts in the newest step that there is.
void book_add(struct book *book, int64_t now_s, const struct book_key *key, const struct store_counts *counts);
// A row from disk, in their order there.
void book_load(struct book *book, const struct store_usage *row);

// The rows that have changed since they were last put, `most` at most, into the batch; those that are too old leave the
// book, too. *count: the rows in the batch. Until book_put_ended there is no other. Errors: the store's, and then the
// batch has ended and nothing is stored.
enum status book_put(struct book *book, struct store_batch *batch, size_t most, size_t *count);
// The batch has ended. What is not stored is put again, with what was counted meanwhile.
void book_put_ended(struct book *book, bool stored);

struct book_query {
	enum book_kind by;
	int64_t from_s, to_s; // [from_s, to_s), widened to whole hours, or days
	int64_t step_s;       // 0: all is one step
	const char *token_id; // count only this one's requests; NULL: all
};
struct book_sum {
	const char *id, *name;
	int64_t at_s; // of its step; with one step from_s
	struct store_counts counts;
};
// Sums in the order of time, within a step those with most time of devices first. `each` gets LIMIT_USAGE_ROWS at most:
// a step is widened until they fit, and further keys of a single step are summed as "others". `step_s`: that was used.
// Errors: STATUS_OUT_OF_MEMORY.
enum status book_sum(const struct book *book, const struct book_query *query,
		     void (*each)(void *context, const struct book_sum *sum), void *context, int64_t *step_s);
// What was counted since the start, for each model, or each device (its requests, time and energy).
void book_totals(const struct book *book, enum book_kind kind,
		 void (*each)(void *context, const struct book_sum *total), void *context);
