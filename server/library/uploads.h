/* Model files that clients send in pieces. On disk an upload is what a download is: FILE.part and FILE.journal
 * (server/hub/fetch_part.h), so it goes on after a restart of the server. Pieces are written by a thread of their own,
 * in the order in which they came. Thread: the loop's, for every function and callback here. */
#pragma once
#include "common/net/ws/ws.h"
#include "common/work/outbox.h"

struct uploads;

enum { UPLOAD_MARK_BYTES = 32 };

// How far an upload is, or what went wrong.
struct upload_answer {
	enum status status; // and then only `error` and `unusable` are to be read
	struct error error;
	bool unusable;                   // this is no model that is computed here: nothing more is taken
	int64_t done_bytes, next_offset; // next_offset: the first byte that is not there; the file's length: none
	int64_t touched_ms;              // wall: when it was last written to, of one that is taken up
	char mark[UPLOAD_MARK_BYTES];
	char part[4097 + 16]; // of uploads_end: the file, to be read and moved to its place; and the digest that it
	char sha256[65];      // should have, "": it is not known
};
typedef void upload_answered(void *context, const struct upload_answer *answer);

enum status uploads_create(struct uploads **out, struct net_loop *loop, struct error *error);
void uploads_stop(struct uploads *uploads);     // who waits for an answer gets it now
void uploads_destroy(struct uploads **uploads); // what is there of them stays

struct upload_begin {
	const char *model_id;
	const char *file; // where the model will be
	int64_t bytes;
	// What tells this file from another one of the same length. NULL: go on with what is there, whatever it is.
	const char *mark;
	upload_answered *done;
	void *context;
};
// Make room on disk, or take up what is there. Errors of the answer: STATUS_LIMIT_EXCEEDED (the disk has no room),
// STATUS_NOT_FOUND (mark NULL: nothing is there), STATUS_UNAVAILABLE. The others' are the same, with those named there.
// Errors at once, and then `done` is not called: STATUS_OUT_OF_MEMORY.
enum status uploads_begin(struct uploads *uploads, const struct upload_begin *begin, struct error *error);

struct upload_ask {
	const char *model_id;
	upload_answered *done;
	void *context;
};
// How far it is, once what came before is done. Errors at once, here and below: STATUS_NOT_FOUND (it is no upload, or
// has ended), STATUS_OUT_OF_MEMORY.
enum status uploads_look(struct uploads *uploads, const struct upload_ask *ask, struct error *error);
struct upload_piece {
	int64_t offset;
	const uint8_t *bytes;     // (length)
	size_t length;            // to be within the file
	struct net_frame *holder; // that the bytes lie in; NULL: they are copied
	const char *sha256;       // that they should have; "": whatever they are
};
// Errors: STATUS_LIMIT_EXCEEDED (LIMIT_UPLOAD_WRITES are not written yet). Of the answer: STATUS_INVALID_PARAMS (the
// digest is another one, or this is no model).
enum status uploads_write(struct uploads *uploads, const struct upload_ask *ask, const struct upload_piece *piece,
			  struct error *error);
// All was sent. sha256 ("": not known) is kept for a restart. Errors of the answer: STATUS_CONFLICT (something is
// missing; it goes on).
enum status uploads_end(struct uploads *uploads, const struct upload_ask *ask, const char *sha256, struct error *error);
// No more callbacks for this model; `forget`: what is there at `file` is deleted. Also of one that has ended.
void uploads_drop(struct uploads *uploads, const char *model_id, const char *file, bool forget);
