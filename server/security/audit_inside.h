/* The audit log's writer as its own files see it: audit.c writes entries and knows whether that is possible,
 * audit_tallies.c counts what happens often. Not for others. Thread: the loop's. */
#pragma once
#include "server/security/audit.h"

enum { AUDIT_BUCKETS = 4096, AUDIT_ACTION_BYTES = 48, AUDIT_TARGET_BYTES = 160 };

struct tally {
	struct tally *next; // of its group; the one counted last comes first
	int64_t at_us, duration_us;
	uint64_t count, bytes;
	uint32_t hash; // of what is told apart
	enum status outcome;
	char *detail; // NULL without one of its own
	char action[AUDIT_ACTION_BYTES], target[AUDIT_TARGET_BYTES], node_id[STORE_ID_BYTES], device_id[STORE_ID_BYTES];
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
	struct group *buckets[AUDIT_BUCKETS];
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

// audit.c
struct journal_entry audit_entry_of(const struct audit_actor *by);
// Commit a batch that holds nothing but entries. It is taken; a failure is noted, as audit_failed does.
enum status audit_commit_entries(struct audit *audit, struct store_batch **batch,
				 void (*done)(void *context, enum status status, const struct error *error),
				 void *context, struct error *error);
void audit_failed(struct audit *audit, const struct error *why); // something could not be written
void audit_recovered(struct audit *audit);                       // something is on disk, whoever wrote it

// audit_tallies.c
void audit_write_all(struct audit *audit);        // what is counted, if the log can be written, and what remains later
void audit_write_everything(struct audit *audit); // what is counted, whether it can be written or not
void audit_tallies_finish(struct audit *audit);
