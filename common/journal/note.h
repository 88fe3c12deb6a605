/* Signed notes, as C2SP's signed-note, tlog-checkpoint and tlog-cosignature have them: a few lines of text, an empty
 * line, and lines of signatures, Ed25519.
 *
 *     exogpu-audit-3f9c0b1e22d4a786      the origin: which log, made once at its start
 *     1042                               how many entries
 *     5vR0…=                             the tree's root, Base64
 *
 *     — exogpu-audit-3f9c0b1e22d4a786 Kq2h…=        signature of the log's key
 *     — exogpu-witness-nod_41ab… w1f0…=              cosignature of a witness, with its time
 *
 * A key's id is the first 4 bytes of SHA-256(name || 0x0A || algorithm || public key); algorithm 1: Ed25519, 4:
 * cosignature/v1. Every text from outside is bounded (NOTE_BYTES, NOTE_SIGNATURES) and refused unless it is exactly of
 * this form. Pure, but for note_key_make, which wants random bytes. Thread: any. */
#pragma once
#include "common/base/buffer.h"
#include "common/journal/tree.h"

enum {
	NOTE_BYTES = 16384,
	NOTE_SIGNATURES = 64,
	NOTE_NAME_BYTES = 96, // with its 0; printable ASCII without space or plus
	NOTE_KEY_BYTES = 32,
	NOTE_SIGNATURE_BYTES = 64,
	NOTE_KEY_TEXT_BYTES = 160, // name+id+Base64, and its 0
};

enum note_algorithm { NOTE_UNKNOWN = 0, NOTE_ED25519 = 1, NOTE_COSIGNATURE = 4 };

struct note_key { // whose signatures are believed
	enum note_algorithm algorithm;
	char name[NOTE_NAME_BYTES];
	uint8_t public_key[NOTE_KEY_BYTES];
};
struct note_signer {
	struct note_key key;
	uint8_t private_key[NOTE_KEY_BYTES]; // wiped by note_signer_finish
};

// A new pair. Errors: STATUS_INVALID_PARAMS (the name), STATUS_UNAVAILABLE (no random bytes).
enum status note_key_make(struct note_signer *signer, enum note_algorithm algorithm, const char *name);
// From the private key's 32 bytes.
enum status note_key_load(struct note_signer *signer, enum note_algorithm algorithm, const char *name,
			  const uint8_t private_key[NOTE_KEY_BYTES]);
void note_signer_finish(struct note_signer *signer);
// The key as text, to be kept elsewhere: name+hex id+Base64(algorithm || public key).
void note_key_print(const struct note_key *key, char text[NOTE_KEY_TEXT_BYTES]);
enum status note_key_parse(struct note_key *key, const char *text);

struct checkpoint {
	char origin[NOTE_NAME_BYTES];
	uint64_t size;
	struct tree_hash root;
};
// The text of a checkpoint up to and with the empty line that signatures follow.
enum status checkpoint_print(const struct checkpoint *checkpoint, struct buffer *note);
// Add the signer's line to a note (text, with its empty line). at_s: the time of a cosignature, seconds since 1970.
// Errors: STATUS_INVALID_PARAMS (no note), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status note_sign(struct buffer *note, const struct note_signer *signer, int64_t at_s);
// Read a checkpoint. Says nothing of its signatures. Errors: STATUS_INVALID_PARAMS, with what is wrong.
enum status checkpoint_parse(struct checkpoint *checkpoint, const char *note, struct error *error);
// Whether the note carries a good signature of this key. *at_s (may be NULL): the time of a cosignature.
bool note_check(const char *note, const struct note_key *key, int64_t *at_s);

// Passes a log from one segment's key to the next: signed by the old key before it is destroyed.
//
//     exogpu-audit-3f9c0b1e22d4a786/segment
//     7                                  the new segment's number
//     1042                               its first entry, and how many come before it
//     5vR0…=                             the root of those before it
//     exogpu-audit-3f9c0b1e22d4a786+9a1b2c3d+AQ…=    the new key
struct succession {
	char origin[NOTE_NAME_BYTES]; // of the log, without /segment
	uint64_t number, first;
	struct tree_hash root;
	struct note_key key;
};
enum status succession_print(const struct succession *succession, struct buffer *note);
enum status succession_parse(struct succession *succession, const char *note, struct error *error);
