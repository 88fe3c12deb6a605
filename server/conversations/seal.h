/* Encryption of what is stored: AES-256-GCM, each time with a random nonce. A sealed text opens under its own key, for
 * the same owner, id and version, and as it was made, or not at all. Pure. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
	SEAL_KEY_BYTES = 32,
	SEAL_NONCE_BYTES = 12,
	SEAL_TAG_BYTES = 16,
	SEAL_MORE_BYTES = SEAL_NONCE_BYTES + SEAL_TAG_BYTES
};

// A sealed text is bound to these.
struct seal_about {
	const char *token_id, *conversation_id;
	int64_t version;
};
// `sealed` takes length + SEAL_MORE_BYTES: the nonce, the encrypted bytes, the tag. Errors: STATUS_UNAVAILABLE (no
// random numbers, or the cipher fails), STATUS_OUT_OF_MEMORY.
enum status seal(const uint8_t key[SEAL_KEY_BYTES], const struct seal_about *about, const void *bytes, size_t length,
		 uint8_t *sealed);
// `bytes` takes length - SEAL_MORE_BYTES. Errors: STATUS_UNAVAILABLE (it does not open; `bytes` are zeros then),
// STATUS_OUT_OF_MEMORY.
enum status seal_open(const uint8_t key[SEAL_KEY_BYTES], const struct seal_about *about, const uint8_t *sealed,
		      size_t length, uint8_t *bytes);
