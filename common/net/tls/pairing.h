/* The first meeting of a node and a server that share no secret: six digits that both show, and a person compares.
 *
 *   node  ->  server   its request, and SHA-256(nonce_n)     the node has chosen, and cannot choose again
 *   node  <-  server   nonce_s                               the server has chosen, without knowing nonce_n
 *   node  ->  server   nonce_n                               checked against the hash; one try
 *   both                code = first 8 bytes of SHA-256("exogpu join" | authority | key | nonce_n | nonce_s) mod 10^6
 *
 * Each computes the code from what it saw itself: the node the SHA-256 of the authority that the server came with, the
 * server the node's public key as its request has it. Who stands between the two must show each of them another
 * authority or key; since both nonces are fixed before either is known, he cannot search for a pair of conversations
 * that end in the same code, and has one chance in a million each time that a person looks. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { PAIRING_NONCE_BYTES = 32, PAIRING_CODE_BYTES = 7, PAIRING_HEX_BYTES = 65 };

// 32 random bytes. Errors: STATUS_UNAVAILABLE (the system has no randomness to give).
enum status pairing_nonce(uint8_t nonce[PAIRING_NONCE_BYTES]);
void pairing_commit(const uint8_t nonce[PAIRING_NONCE_BYTES], uint8_t commitment[32]);
// Whether this nonce is the one that was committed to.
bool pairing_opens(const uint8_t nonce[PAIRING_NONCE_BYTES], const uint8_t commitment[32]);

struct pairing {
	const uint8_t *authority_sha256; // (32)
	const uint8_t *key;              // (key_bytes), the node's public key: SubjectPublicKeyInfo, DER
	size_t key_bytes;
	const uint8_t *node_nonce, *server_nonce; // (PAIRING_NONCE_BYTES) each
};
// Six digits and a 0.
void pairing_code(const struct pairing *pairing, char code[PAIRING_CODE_BYTES]);

// 32 bytes as 64 hexadecimal digits in lower case, and back. Reading: false if they are not 64 of these.
void pairing_print(const uint8_t bytes[32], char text[PAIRING_HEX_BYTES]);
bool pairing_read(const char *text, uint8_t bytes[32]);
