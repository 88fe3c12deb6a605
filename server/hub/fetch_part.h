/* A partial download: FILE.part with its full length, and FILE.journal, which lists the ranges
 * that are there. The journal is written to a temporary file and renamed, after the bytes that it
 * lists are on disk, so it is right after a kill and after a power cut. It identifies the file
 * (length, SHA-256 or ETag); a download of another file does not continue from it. Thread: the
 * fetcher's, or that of uploads. */
#pragma once
#include "common/base/limits.h"
#include "common/base/status.h"
#include "server/hub/fetch_header.h"

struct fetch_identity {
	int64_t bytes;   // -1: not known; then it cannot be gone on with
	char sha256[65]; // what the hub says; ""
	char etag[FETCH_ETAG_BYTES];
};

struct fetch_span {
	int64_t first, end; // bytes first to end - 1
};

enum { FETCH_PATH_BYTES = 4097 + 16 };

struct fetch_part {
	char path[FETCH_PATH_BYTES], journal[FETCH_PATH_BYTES];
	int fd; // -1: not open
	struct fetch_identity identity;
	struct fetch_span spans[LIMIT_FETCH_SPANS]; // in order, apart from each other
	size_t count;
	int64_t done_bytes;
	bool reserved; // the disk has its room already
	int64_t saved_ms, looked_ms;
	bool dirty;
	bool judged;      // its header says that it is a model that is computed here
	int64_t judge_at; // once so much of the beginning is there, the header is looked at (again)
};

// `file`: where it will be. Takes up what the journal says; nothing is made yet.
void fetch_part_init(struct fetch_part *part, const char *file);
// Closes; what is there stays.
void fetch_part_finish(struct fetch_part *part);
// The file is this one: go on with what is there of it, or start it anew (*anew). Makes room for it on disk.
// Errors: STATUS_LIMIT_EXCEEDED (too large, or the disk has no room; with a hint), STATUS_UNAVAILABLE.
enum status fetch_part_open(struct fetch_part *part, const struct fetch_identity *identity, bool *anew,
			    struct error *error);
// Errors: STATUS_LIMIT_EXCEEDED (the disk is full), STATUS_UNAVAILABLE.
enum status fetch_part_write(struct fetch_part *part, int64_t offset, const uint8_t *bytes, size_t length,
			     struct error *error);
// Whether these may be the first bytes of a model file, at `offset` of it. Errors: STATUS_INVALID_PARAMS.
enum status fetch_part_begins(int64_t offset, const uint8_t *bytes, size_t length, struct error *error);
// Look into the header of a file of known length as it comes. STATUS_OK also while nothing can be said. Errors:
// model_header_judge's; with all but STATUS_OUT_OF_MEMORY it is no model that is computed here.
enum status fetch_part_judge(struct fetch_part *part, struct error *error);
// Whether the disk has so much room that `wanted` bytes may be written at `path`. Errors: as fetch_part_open.
enum status fetch_part_check_room(const char *path, int64_t wanted, struct error *error);
// A range that is not there and that none of `taken` (count) has, at most `most` bytes. False: there is none.
bool fetch_part_next(const struct fetch_part *part, const struct fetch_span *taken, size_t count, int64_t most,
		     struct fetch_span *out);
// Now and then: write the journal, and see whether the disk fills up. `now`: at once. Errors: as fetch_part_write.
enum status fetch_part_save(struct fetch_part *part, bool now, struct error *error);
bool fetch_part_complete(const struct fetch_part *part);
// Forget what is there.
void fetch_part_reset(struct fetch_part *part);
