/* See joining.h. */
#include "server/security/joining.h"

#include "server/security/certificates/certificate.h"
#include "server/security/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A request that was taken lately, whether it still waits or not.
struct taken {
	char origin[LIMITS_ADDRESS_BYTES];
	int64_t steady_ms;
};

struct waiting {
	struct joining_request shown;      // first: what callers hold
	char origin[LIMITS_ADDRESS_BYTES]; // as it is counted
	uint8_t commitment[32], server_nonce[PAIRING_NONCE_BYTES];
};

struct joining {
	uint8_t authority_sha256[32];
	struct waiting *waiting[LIMIT_WAITING_NODES]; // oldest first
	size_t count;
	struct taken taken[LIMIT_JOIN_REQUESTS]; // a ring
	size_t taken_count;                      // ever
};

enum status joining_create(struct joining **out, const uint8_t *authority_sha256)
{
	struct joining *joining = calloc(1, sizeof(*joining));
	*out = joining;
	if (!joining)
		return STATUS_OUT_OF_MEMORY;
	memcpy(joining->authority_sha256, authority_sha256, sizeof joining->authority_sha256);
	return STATUS_OK;
}

void joining_destroy(struct joining **pointer)
{
	struct joining *joining = *pointer;
	if (!joining)
		return;
	*pointer = NULL;
	while (joining->count) {
		struct joining_request *request = &joining->waiting[0]->shown;
		joining_end(joining, &request);
	}
	free(joining);
}

void joining_end(struct joining *joining, struct joining_request **request)
{
	struct waiting *one = (struct waiting *)*request;
	size_t at = 0;
	*request = NULL;
	if (!one)
		return;
	while (at < joining->count && joining->waiting[at] != one)
		at++;
	if (at < joining->count) {
		joining->count--;
		memmove(joining->waiting + at, joining->waiting + at + 1,
			(joining->count - at) * sizeof(*joining->waiting));
	}
	json_destroy(&one->shown.node);
	OPENSSL_free(one->shown.key);
	free(one->shown.pem);
	free(one);
}

struct joining_request *joining_find(const struct joining *joining, const char *node_id)
{
	for (size_t i = 0; i < joining->count; i++)
		if (!strcmp(joining->waiting[i]->shown.node_id, node_id))
			return &joining->waiting[i]->shown;
	return NULL;
}

struct joining_request *joining_at(const struct joining *joining, size_t index)
{
	return index < joining->count ? &joining->waiting[index]->shown : NULL;
}

// Whether one more may ask now.
static enum status check_room(const struct joining *joining, const char *origin, int64_t steady_ms, struct error *error)
{
	unsigned waiting = 0, lately = 0, lately_here = 0;
	for (size_t i = 0; i < joining->count; i++)
		waiting += !strcmp(joining->waiting[i]->origin, origin);
	for (size_t i = 0; i < joining->taken_count && i < LIMIT_JOIN_REQUESTS; i++) {
		const struct taken *one = &joining->taken[i];
		bool fresh = steady_ms - one->steady_ms < LIMIT_JOIN_MS;
		lately += fresh;
		lately_here += fresh && !strcmp(one->origin, origin);
	}
	if (waiting >= LIMIT_WAITING_NODES_OF_ADDRESS)
		error_set(error, STATUS_RATE_LIMITED, "%d nodes of this address wait to be let in already",
			  LIMIT_WAITING_NODES_OF_ADDRESS);
	else if (joining->count >= LIMIT_WAITING_NODES)
		error_set(error, STATUS_RATE_LIMITED, "%d nodes wait to be let in already", LIMIT_WAITING_NODES);
	else if (lately_here >= LIMIT_JOIN_REQUESTS_OF_ADDRESS || lately >= LIMIT_JOIN_REQUESTS)
		error_set(error, STATUS_RATE_LIMITED, "too many requests to join in the last %d minutes",
			  LIMIT_JOIN_MS / 60000);
	else
		return STATUS_OK;
	error_hint(error, "let those in that wait, or turn them away, or join with a ticket: exogpu ticket create");
	return STATUS_RATE_LIMITED;
}

// A request of the same node and key gives way to its successor: the node came back before its end was seen here.
static enum status replace(struct joining *joining, const struct waiting *one, void **owner, struct error *error)
{
	struct joining_request *earlier = joining_find(joining, one->shown.node_id);
	if (!earlier)
		return STATUS_OK;
	if (memcmp(earlier->key_sha256, one->shown.key_sha256, sizeof earlier->key_sha256) != 0) {
		error_set(error, STATUS_CONFLICT, "another machine waits to be let in as node %.64s",
			  one->shown.node_id);
		error_hint(error, "somebody must turn that one away first: exogpu nodes refuse %.64s",
			   one->shown.node_id);
		return STATUS_CONFLICT;
	}
	*owner = earlier->owner;
	joining_end(joining, &earlier);
	return STATUS_OK;
}

// The public key of a request that is signed by it: *spki is OPENSSL_free's.
static enum status read_key(const char *pem, uint8_t **spki, size_t *bytes, struct error *error)
{
	EVP_PKEY *key = NULL;
	*spki = NULL;
	enum status status = certificate_parse_request(&key, pem, strnlen(pem, LIMIT_CSR_BYTES), error);
	int length = status ? 0 : i2d_PUBKEY(key, spki);
	EVP_PKEY_free(key);
	if (status)
		return status;
	if (length <= 0)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	*bytes = (size_t)length;
	return STATUS_OK;
}

static enum status digest_key(const uint8_t *spki, size_t bytes, uint8_t sha256[32], struct error *error)
{
	if (EVP_Digest(spki, bytes, sha256, NULL, EVP_sha256(), NULL) == 1)
		return STATUS_OK;
	return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
}

enum status joining_key(const char *pem, uint8_t sha256[32], struct error *error)
{
	uint8_t *spki;
	size_t bytes;
	enum status status = read_key(pem, &spki, &bytes, error);
	if (!status)
		status = digest_key(spki, bytes, sha256, error);
	OPENSSL_free(spki);
	return status;
}

enum status joining_ask(struct joining *joining, const struct joining_ask *ask, struct joining_request **out,
			void **replaced, struct error *error)
{
	*out = NULL;
	*replaced = NULL;
	struct waiting *one = calloc(1, sizeof(*one));
	if (!one)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	struct joining_request *shown = &one->shown;
	limits_address(ask->peer, one->origin);
	snprintf(shown->node_id, sizeof shown->node_id, "%s", json_get_string(ask->node, "node_id", ""));
	snprintf(shown->peer, sizeof shown->peer, "%s", ask->peer);
	shown->known = ask->known;
	shown->requested_ms = ask->wall_ms;
	shown->expires_ms = ask->wall_ms + LIMIT_JOIN_MS;
	shown->owner = ask->owner;
	enum status status = read_key(ask->pem, &shown->key, &shown->key_bytes, error);
	if (!status)
		status = digest_key(shown->key, shown->key_bytes, shown->key_sha256, error);
	if (!status && !pairing_read(ask->commitment, one->commitment))
		status = error_set(error, STATUS_INVALID_PARAMS,
				   "the commitment is not 64 hexadecimal digits in lower case");
	if (!status)
		status = replace(joining, one, replaced, error);
	if (!status)
		status = check_room(joining, one->origin, ask->steady_ms, error);
	if (!status && pairing_nonce(one->server_nonce))
		status = error_set(error, STATUS_UNAVAILABLE, "the system gives no random bytes");
	if (!status && (!(shown->node = json_copy(ask->node)) || !(shown->pem = strdup(ask->pem))))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (status) {
		joining_end(joining, &shown);
		return status;
	}
	pairing_print(one->server_nonce, shown->nonce);
	struct taken *taken = &joining->taken[joining->taken_count++ % LIMIT_JOIN_REQUESTS];
	taken->steady_ms = ask->steady_ms;
	memcpy(taken->origin, one->origin, sizeof taken->origin);
	joining->waiting[joining->count++] = one;
	*out = shown;
	return STATUS_OK;
}

enum status joining_reveal(struct joining *joining, struct joining_request *request, const char *nonce,
			   struct error *error)
{
	struct waiting *one = (struct waiting *)request;
	uint8_t node_nonce[PAIRING_NONCE_BYTES];
	if (request->code[0])
		return error_set(error, STATUS_CONFLICT, "the nonce was shown already");
	if (!pairing_read(nonce, node_nonce) || !pairing_opens(node_nonce, one->commitment)) {
		error_set(error, STATUS_FORBIDDEN, "this is not the nonce that was committed to");
		error_hint(error, "somebody may stand between the node and the server; the request has ended");
		return STATUS_FORBIDDEN;
	}
	pairing_code(&(struct pairing){.authority_sha256 = joining->authority_sha256,
				       .key = request->key,
				       .key_bytes = request->key_bytes,
				       .node_nonce = node_nonce,
				       .server_nonce = one->server_nonce},
		     request->code);
	return STATUS_OK;
}
