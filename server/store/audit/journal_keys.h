/* The private keys of the audit log: one for the newest segment, in
 * DIRECTORY/audit/key-<segment>, 32 bytes. A key is on disk before anything refers to it, and is
 * overwritten and removed when the next one has taken over. A file system or disk that keeps old
 * blocks may still hold it (docs/security.md). Thread: the store's, which may wait for the disk.
 * Inside server/store only. */
#pragma once
#include "common/journal/note.h"

enum status journal_folder_make(const char *directory, struct error *error);
// "exogpu-audit-" and 16 random digits.
enum status journal_origin_make(char origin[NOTE_NAME_BYTES], struct error *error);
// A new key, or the one that *signer holds already, on disk with its folder when this returns. A file that stands there
// was never used: it is replaced.
enum status journal_key_make(const char *directory, const char *origin, uint64_t segment, struct note_signer *signer,
			     struct error *error);
// The key of a log that is to begin: it is none of a log (journal_keys_found) before it is given its name. Errors: the
// disk's.
enum status journal_first_key_make(const char *directory, const char *origin, struct note_signer *signer,
				   struct error *error);
enum status journal_first_key_name(const char *directory, struct error *error);
// A first key that a crash has left without its name gets it. Errors: STATUS_UNAVAILABLE, with a hint: it is not there,
// or not the one whose public half `key` is.
enum status journal_key_load(const char *directory, const struct note_key *key, uint64_t segment,
			     struct note_signer *signer, struct error *error);
bool journal_keys_found(const char *directory); // some, of whatever segment
void journal_key_destroy(const char *directory, uint64_t segment);
// Destroy what a crash has left: every key but that of `segment`.
void journal_keys_sweep(const char *directory, uint64_t segment);
