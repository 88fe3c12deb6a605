/* An archive: one segment of the audit log in a file that verifies on its own, audit-<first>-<last>.exoaudit.
 *
 *     "EXOAUDIT" | u32 version 1 | u32 length of the head | head | records | SHA-256 of all before
 *     head: u64 number | u64 first | u32 length, key | u32 length, certificate | the peaks of the tree before it
 *     record: u8 kind | u32 length | bytes                                                      all little-endian
 *
 * A record is an entry (entry.h), the leaf of one that is not kept any more, or a checkpoint; the last one is the
 * checkpoint that covers the whole. Written beside its place, synced, read back and verified before it gets its name.
 * Every byte that is read is bounded and checked. Thread: any; blocks on the disk. */
#pragma once
#include "common/journal/verify.h"

enum archive_record { ARCHIVE_UNKNOWN, ARCHIVE_ENTRY, ARCHIVE_LEAF, ARCHIVE_CHECKPOINT };

struct archive_writer;
struct archive_writer_params {
	const char *directory;
	const struct journal_segment *segment; // its `before` is not looked at
	const struct tree *before;             // the tree at the segment's first entry
};
enum status archive_writer_create(struct archive_writer **out, const struct archive_writer_params *params,
				  struct error *error);
enum status archive_write_entry(struct archive_writer *writer, const uint8_t *bytes, size_t length,
				struct error *error);
enum status archive_write_leaf(struct archive_writer *writer, const struct tree_hash *leaf, struct error *error);
enum status archive_write_checkpoint(struct archive_writer *writer, const char *note, struct error *error);
// Sync, read back, verify; what is left to archive_writer_finish is to give it its name. Errors: as that.
enum status archive_writer_prepare(struct archive_writer *writer, struct error *error);
// All that, unless it is done, and rename. path (may be NULL): its name, size bytes. Destroys the writer, also on
// failure. Errors: STATUS_UNAVAILABLE (the disk; or what was read back does not verify), STATUS_INVALID_PARAMS (no
// entries).
enum status archive_writer_finish(struct archive_writer **writer, char *path, size_t size, struct error *error);
void archive_writer_destroy(struct archive_writer **writer); // and the unfinished file

// Feed an archive to a verifier. `entry` (may be NULL) is called for each entry that can be read; whether it holds is
// known at the end.
// Errors: STATUS_NOT_FOUND, STATUS_UNAVAILABLE (cannot be read). What is wrong inside becomes findings.
enum status archive_verify(const char *path, struct journal_verifier *verifier,
			   void (*entry)(void *context, const struct journal_entry *entry), void *context,
			   struct error *error);
// The archives of a directory in the order of the log, by their names: path, first and last entry. Freed by the caller.
// Errors: STATUS_NOT_FOUND, STATUS_UNAVAILABLE (the directory), STATUS_OUT_OF_MEMORY.
struct archive_name {
	char path[4200];
	uint64_t first, last;
};
enum status archive_list(const char *directory, struct archive_name **names, size_t *count, struct error *error);
