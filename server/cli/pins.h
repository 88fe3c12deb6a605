/* The head of an audit log that this user last saw, kept in $XDG_STATE_HOME/exogpu/audit (else ~/.local/state/…), a
 * file for each log, named by its origin, and for each place (a data directory, a server's address) the origin that was
 * there. A log that was cut, rewritten or replaced since does not fit what is kept here, and whoever did that on the
 * server cannot write it. Thread: the process's only one; waits for the disk. */
#pragma once
#include "common/journal/verify.h"
#include "common/json/json.h"

enum { PIN_PATH_BYTES = 4400 };

struct pin {
	bool there; // this log was seen before
	struct checkpoint checkpoint;
	struct note_key key, first_key; // of the checkpoint's segment, and of the log's first
	char note[NOTE_BYTES];
	char path[PIN_PATH_BYTES];
	char place_path[PIN_PATH_BYTES];
	char place_origin[NOTE_NAME_BYTES]; // what was seen at this place; "" if nothing was
};

// Load the head that is remembered for the log `origin` and for `place`. A file that cannot be read counts as none,
// with a line on standard error. Errors: STATUS_UNAVAILABLE (no home directory), STATUS_INVALID_PARAMS (no origin).
enum status pin_load(struct pin *pin, const char *origin, const char *place, struct error *error);
// Keep this head instead. Its signature and what it follows from are the caller's to check before.
struct pin_head {
	const char *note;
	struct note_key key, first_key;
};
enum status pin_save(const struct pin *pin, const struct pin_head *head, struct error *error);
// Whether what a server answers to audit.head {since_size} continues the pin; the answer's own signature, and the keys'
// succession, too. JOURNAL_HOLDS, or what is wrong with text. *head points into the answer.
enum journal_verdict pin_compare(const struct pin *pin, const struct json *answer, struct pin_head *head, char *text,
				 size_t size);
