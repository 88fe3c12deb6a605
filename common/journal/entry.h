/* An entry of the audit log, and the bytes that its leaf is the hash of.
 *
 * The bytes are fields in a fixed order, each preceded by its length, never JSON text: two programs that agree on the
 * fields agree on every byte. All fields are always there; a text that does not apply is empty.
 *
 *     u8 version 1 | u64 seq | i64 at_us | i64 duration_us | u64 count | 10 times: u32 length, UTF-8      little-endian
 *     u8 version 2 | u64 seq | i64 at_us | i64 duration_us | u64 count | u64 bound_before | 11 times: u32 length, UTF-8
 *
 * Version 2 also says which rows of state.db the entry binds: what such a row may hold from here on
 * (server/store/audit/bound.h). Entries of version 1 were written before there was that, and are read for good.
 *
 * Pure. Thread: any. */
#pragma once
#include "common/base/buffer.h"

enum { ENTRY_TEXTS = 10, ENTRY_TEXT_BYTES = 4096, ENTRY_BYTES = 16384 }; // of one text, of all of an entry at most

#define ENTRY_TEXT_LIST(X) \
	X(actor)      /* who: token:ID, owner:UID (by the data directory's socket), node:ID, server, nobody */ \
	X(actor_name) /* what a person calls it */ \
	X(session_id) /* of a client */ \
	X(peer)       /* from where: an address, or "unix" */ \
	X(action)     /* noun.verb, as the API's methods are called where it is one */ \
	X(target)     /* the id of what it was done to: a token, an allocation, a node … */ \
	X(node_id)    /* on which node */ \
	X(device_id)  /* and device */ \
	X(outcome)    /* "ok", or the reason word of the error */ \
	X(detail)     /* a JSON object with a few figures of the action's own; never a secret, never a tenant's bytes */

struct journal_entry {
	uint64_t seq;        // from 0, without gaps
	int64_t at_us;       // wall clock, since 1970 UTC: when it was decided
	int64_t duration_us; // 0: does not apply
	uint64_t count;      // how many of the same this entry tells, 1 or more
#define X(name) const char *name;
	ENTRY_TEXT_LIST(X) // NULL is taken for ""
#undef X
	const char *bound; // a line for each row: "KIND ID SHA-256\n", or "-" for one that is gone; NULL: of version 1
	uint64_t bound_before; // of version 2: the newest entry before this one whose `bound` is not ""; or ENTRY_NONE
};
#define ENTRY_NONE UINT64_MAX

// Errors: STATUS_LIMIT_EXCEEDED (a text over ENTRY_TEXT_BYTES, or all over ENTRY_BYTES), STATUS_OUT_OF_MEMORY.
enum status entry_encode(const struct journal_entry *entry, struct buffer *bytes);
// The texts are copied into texts, one after the other with their 0, and pointed to.
// Errors: STATUS_INVALID_PARAMS, unless these are exactly the bytes of an entry.
enum status entry_decode(struct journal_entry *entry, const uint8_t *bytes, size_t length, char texts[ENTRY_BYTES]);
