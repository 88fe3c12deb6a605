/* The state of a verifier, shared by verify.c (reading) and verify_judge.c (judging). Only they include this file. */
#pragma once
#include "common/journal/verify.h"

struct known_segment {
	uint64_t number, first;
	struct note_key key;
	// bare: the number of entries that are here by their hashes alone, first_bare: the first of them. pruned: the
	// number that the log says were pruned, pruned_by: the entry that says so.
	uint64_t bare, first_bare, pruned, pruned_by;
};

struct memory { // of an outsider
	struct checkpoint checkpoint;
	char *note, who[JOURNAL_WHO_BYTES];
	bool compared, same;
	enum journal_memory_state state;
};

struct refusal { // a witness refused to sign a head, and has not signed one since
	char node_id[96];
	uint64_t seq;         // of the entry that tells it
	uint64_t held, shown; // entries of its log, and of this one at that time; 0: it does not say
};

struct unproven { // a note without a good signature of the key that it should have
	char *note;
	uint64_t seq;
	char what[128];
};

struct journal_verifier {
	struct journal_report report;
	bool part, bare_expected, ended;
	bool origin_given;
	uint64_t unread;  // the newest entry that was not, since its archive is missing; 0: none, or the first
	struct tree tree; // its size is also the next entry's seq
	bool lost;        // the tree is not that of the log
	uint64_t signed_size;
	unsigned heads; // of the segment that is read, good or not
	int64_t last_at_us;
	struct known_segment *segments;
	size_t segment_count, segment_capacity;
	struct memory *memories;
	size_t memory_count, memory_capacity;
	uint64_t next_memory; // the smallest size of those that were not reached
	struct refusal *refusals;
	size_t refusal_count, refusal_capacity;
	struct unproven unproven[JOURNAL_FINDINGS];
	size_t unproven_count;
};

#define find(verifier, verdict, seq, ...) journal_report_finding(verifier, JOURNAL_##verdict, seq, __VA_ARGS__)

// Adds one zeroed element to an array. NULL: there is no memory, or the array has its maximum.
void *journal_grow(void **array, size_t *count, size_t *capacity, size_t size, size_t maximum);
