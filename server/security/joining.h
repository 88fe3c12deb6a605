/* Nodes that ask to join without a ticket: those that wait for a person, and the exchange that gives
 * both sides six digits. A request belongs to one connection. It ends with it, with a decision, or after
 * LIMIT_JOIN_MS. This is the server's side of common/net/tls/pairing.h: the nonce must match the
 * commitment at the first try, or the request ends. The number of waiting nodes (in all and of one
 * address) and of requests in LIMIT_JOIN_MS is bounded, because each request gives an attacker in
 * between one chance in a million. Pure: no socket, no disk; the caller gives the time. Thread: the
 * loop's. */
#pragma once
#include "common/base/limits.h"
#include "common/json/json.h"
#include "common/net/tls/pairing.h"

struct joining;

enum { JOINING_PEER_BYTES = 64, JOINING_ID_BYTES = 65 };

// A waiting node. Read only, except `owner`.
struct joining_request {
	char node_id[JOINING_ID_BYTES], peer[JOINING_PEER_BYTES];
	struct json *node; // NodeRecord of schema/node.json
	char *pem;         // the request for a certificate
	uint8_t *key;      // (key_bytes), its public key: SubjectPublicKeyInfo, DER
	size_t key_bytes;
	uint8_t key_sha256[32];
	char code[PAIRING_CODE_BYTES];    // "" before both nonces are known
	char nonce[PAIRING_HEX_BYTES];    // the server's
	bool known;                       // a node of this id belongs to the cluster
	int64_t requested_ms, expires_ms; // wall clock
	void *owner;
};

// authority_sha256: (32), copied. Errors: STATUS_OUT_OF_MEMORY.
enum status joining_create(struct joining **out, const uint8_t *authority_sha256);
void joining_destroy(struct joining **joining); // ends all that wait

struct joining_ask {
	const char *peer;        // numeric address
	const struct json *node; // NodeRecord, checked against the contract
	const char *pem;
	const char *commitment; // SHA-256 of the node's nonce, hexadecimal
	bool known;
	int64_t wall_ms, steady_ms;
	void *owner;
};
// Take a request; it then waits for the node's nonce. One with the key of a request that waits already takes that one's
// place: *replaced is its owner (else NULL), whose request has ended, also where an error follows.
// Errors: STATUS_INVALID_PARAMS (the request or commitment is none), STATUS_CONFLICT (another key asks for this
// node_id), STATUS_RATE_LIMITED (the bounds above), STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY; with hints.
enum status joining_ask(struct joining *joining, const struct joining_ask *ask, struct joining_request **out,
			void **replaced, struct error *error);
// The node's nonce. Errors, after which the request must be ended: STATUS_FORBIDDEN (it does not open the commitment),
// STATUS_CONFLICT (it was shown already).
enum status joining_reveal(struct joining *joining, struct joining_request *request, const char *nonce,
			   struct error *error);
void joining_end(struct joining *joining, struct joining_request **request);
struct joining_request *joining_find(const struct joining *joining, const char *node_id);
struct joining_request *joining_at(const struct joining *joining, size_t index); // oldest first; NULL past the last
// The SHA-256 of the public key of a request, as authority_standing takes it. Errors: STATUS_INVALID_PARAMS.
enum status joining_key(const char *pem, uint8_t sha256[32], struct error *error);
