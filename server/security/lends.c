/* See lends.h. An address is added to memory once it is on disk. A use is counted, and a tab added, in memory first, so
 * that two tabs cannot both take the last use; both are taken back if their batch fails. */
#include "server/security/lends.h"

#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/text/base62.h"
#include "server/security/random_id.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPIRES_S = 3600, EXPIRES_MAX_S = 30 * 24 * 3600, USES_MAX = 1000, KEPT_MS = 24 * 3600 * 1000 };
enum {
	SECRET_DIGITS = TAB_SECRET_BYTES - 1,
	ID_AT = 8,
	SECRET_AT = ID_AT + LEND_ID_DIGITS + 1,
	CRC_AT = SECRET_AT + SECRET_DIGITS + 1,
	TEXT_LENGTH = CRC_AT + BASE62_CRC_DIGITS,
};
_Static_assert((int)TEXT_LENGTH < (int)LEND_TEXT_BYTES, "the header's size");

struct lends {
	struct store *store;
	struct audit *audit;
	struct lend *all[LIMIT_LENDS]; // oldest first
	struct tab *tabs[LIMIT_TABS];  // oldest first
	size_t count, tab_count;
	struct lend_request *requests; // under way
};

// A change that is being stored.
struct lend_request {
	struct lend_request *next, **link;
	struct lends *lends; // NULL: they are gone
	struct lend *made;   // not entered yet
	struct lend *lend;   // that is revoked, or used
	char node_id[STORE_ID_BYTES];
	lend_done *done;
	void (*joined)(void *context, enum status status, const struct error *error);
	void *context;
};

static struct lend_request *request_create(struct lends *lends, void *context)
{
	struct lend_request *request = calloc(1, sizeof(*request));
	if (!request)
		return NULL;
	*request = (struct lend_request){.lends = lends, .context = context};
	LIST_PUSH(&lends->requests, request, link);
	return request;
}

static void request_destroy(struct lend_request **pointer)
{
	struct lend_request *request = *pointer;
	*pointer = NULL;
	if (!request)
		return;
	LIST_REMOVE(request, link);
	free(request->made);
	free(request);
}

static struct lend *find(const struct lends *lends, const char *id)
{
	for (size_t i = 0; i < lends->count; i++)
		if (!strncmp(lends->all[i]->lend_id, id, LEND_ID_DIGITS))
			return lends->all[i];
	return NULL;
}

static struct tab *find_tab(const struct lends *lends, const char *node_id, size_t *at)
{
	for (size_t i = 0; i < lends->tab_count; i++)
		if (!strcmp(lends->tabs[i]->node_id, node_id)) {
			if (at)
				*at = i;
			return lends->tabs[i];
		}
	return NULL;
}

static void take_out_tab(struct lends *lends, const char *node_id)
{
	size_t at;
	struct tab *tab = find_tab(lends, node_id, &at);
	if (!tab)
		return;
	struct lend *lend = find(lends, tab->lend_id);
	if (lend && lend->tabs)
		lend->tabs--;
	memmove(&lends->tabs[at], &lends->tabs[at + 1], (--lends->tab_count - at) * sizeof *lends->tabs);
	free(tab);
}

static void hash_secret(const char *secret, uint8_t hash[STORE_HASH_BYTES])
{
	if (!EVP_Digest(secret, SECRET_DIGITS, hash, NULL, EVP_sha256(), NULL))
		memset(hash, 0, STORE_HASH_BYTES); // no secret has this hash
}

// Whether this secret has this hash; without a hash no secret does, and it takes as long.
static bool knows_secret(const uint8_t *known, const char *secret)
{
	static const uint8_t nobody[STORE_HASH_BYTES] = {1};
	uint8_t hash[STORE_HASH_BYTES];
	hash_secret(secret, hash);
	const bool same = !CRYPTO_memcmp(hash, known ? known : nobody, sizeof hash);
	OPENSSL_cleanse(hash, sizeof hash);
	return same && known;
}

static enum status put(struct store_batch *batch, const struct lend *lend)
{
	struct store_lend row = {.lend_id = lend->lend_id,
				 .name = lend->name,
				 .made_by = lend->made_by,
				 .uses = lend->uses,
				 .used = lend->used,
				 .created_ms = lend->created_ms,
				 .expires_ms = lend->expires_ms,
				 .revoked_ms = lend->revoked_ms};
	memcpy(row.secret_hash, lend->secret_hash, sizeof row.secret_hash);
	return store_put_lend(batch, &row);
}

// ---- what is over ----

static bool is_over(const struct lend *lend, int64_t now_ms)
{
	return lend->revoked_ms || lend->expires_ms <= now_ms || (lend->used >= lend->uses && !lend->taking);
}

static bool is_busy(const struct lends *lends, const struct lend *lend)
{
	for (const struct lend_request *one = lends->requests; one; one = one->next)
		if (one->lend == lend)
			return true;
	return lend->tabs || lend->taking || lend->unsaved;
}

// Forget addresses that nobody can join with and no tab has joined with: those that have been over for a day, and, with
// `full`, the oldest of all. Their rows go with `old`.
static void sweep(struct lends *lends, int64_t now_ms, bool full, struct store_batch *old)
{
	size_t kept = 0;
	for (size_t i = 0; i < lends->count; i++) {
		struct lend *lend = lends->all[i];
		const int64_t end_ms = lend->revoked_ms ? lend->revoked_ms : lend->expires_ms;
		if (is_over(lend, now_ms) && !is_busy(lends, lend) && (full || now_ms - end_ms > KEPT_MS)) {
			full = false;
			store_remove_lend(old, lend->lend_id); // what fails here fails the batch, and waits
			free(lend);
		} else {
			lends->all[kept++] = lend;
		}
	}
	lends->count = kept;
}

// ---- loading ----

struct loading {
	struct lends *lends;
	struct store_batch *old; // rows to be removed
};

static void load_lend(void *context, const struct store_lend *row)
{
	struct loading *loading = context;
	struct lends *lends = loading->lends;
	struct lend *lend = lends->count < LIMIT_LENDS ? calloc(1, sizeof(*lend)) : NULL;
	if (!lend)
		return;
	*lend = (struct lend){.uses = row->uses,
			      .used = row->used,
			      .created_ms = row->created_ms,
			      .expires_ms = row->expires_ms,
			      .revoked_ms = row->revoked_ms};
	snprintf(lend->lend_id, sizeof lend->lend_id, "%s", row->lend_id);
	snprintf(lend->name, sizeof lend->name, "%s", row->name);
	snprintf(lend->made_by, sizeof lend->made_by, "%s", row->made_by);
	memcpy(lend->secret_hash, row->secret_hash, sizeof lend->secret_hash);
	lends->all[lends->count++] = lend;
}

static void load_tab(void *context, const struct store_tab *row)
{
	struct loading *loading = context;
	struct lends *lends = loading->lends;
	struct lend *lend = find(lends, row->lend_id);
	struct tab *tab = NULL;
	if (!lend || lend->revoked_ms) {
		store_remove_tab(loading->old, row->node_id);
		return;
	}
	if (lends->tab_count < LIMIT_TABS)
		tab = calloc(1, sizeof(*tab));
	if (!tab)
		return;
	tab->joined_ms = row->joined_ms;
	snprintf(tab->node_id, sizeof tab->node_id, "%s", row->node_id);
	snprintf(tab->lend_id, sizeof tab->lend_id, "%s", row->lend_id);
	memcpy(tab->secret_hash, row->secret_hash, sizeof tab->secret_hash);
	lends->tabs[lends->tab_count++] = tab;
	lend->tabs++;
}

enum status lends_create(struct lends **out, struct store *store, struct audit *audit, struct error *error)
{
	struct lends *lends = calloc(1, sizeof(*lends));
	struct loading loading = {.lends = lends};
	*out = NULL;
	if (!lends || store_batch_create(&loading.old)) {
		free(lends);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the addresses of browser tabs");
	}
	lends->store = store;
	lends->audit = audit;
	enum status status = store_load_lends(store, load_lend, &loading, error);
	if (!status)
		status = store_load_tabs(store, load_tab, &loading, error);
	if (status) {
		store_batch_destroy(&loading.old);
		lends_destroy(&lends);
		return status;
	}
	sweep(lends, clock_wall_ms(), false, loading.old);
	store_commit(store, &loading.old, NULL, NULL); // rows that stay are tried again at the next start
	*out = lends;
	return STATUS_OK;
}

void lends_destroy(struct lends **pointer)
{
	struct lends *lends = *pointer;
	if (!lends)
		return;
	*pointer = NULL;
	while (lends->requests) {
		struct lend_request *one = lends->requests; // whose outcome the store drops
		request_destroy(&one);
	}
	for (size_t i = 0; i < lends->count; i++)
		free(lends->all[i]);
	for (size_t i = 0; i < lends->tab_count; i++)
		free(lends->tabs[i]);
	free(lends);
}

// ---- making ----

static enum status make_text(char text[LEND_TEXT_BYTES])
{
	memcpy(text, "exolend_", ID_AT);
	enum status status = base62_random(text + ID_AT, LEND_ID_DIGITS);
	if (!status)
		status = base62_random(text + SECRET_AT, SECRET_DIGITS);
	if (status) {
		OPENSSL_cleanse(text, LEND_TEXT_BYTES);
		return status;
	}
	text[SECRET_AT - 1] = text[CRC_AT - 1] = '_';
	base62_crc(text, CRC_AT - 1, text + CRC_AT);
	text[TEXT_LENGTH] = 0;
	return STATUS_OK;
}

static enum status check_text(const char *text, struct error *error)
{
	char crc[BASE62_CRC_DIGITS];
	const bool whole = strnlen(text, TEXT_LENGTH + 1) == TEXT_LENGTH && !memcmp(text, "exolend_", ID_AT) &&
			   text[SECRET_AT - 1] == '_' && text[CRC_AT - 1] == '_' &&
			   base62_all(text + ID_AT, LEND_ID_DIGITS) && base62_all(text + SECRET_AT, SECRET_DIGITS);
	if (whole)
		base62_crc(text, CRC_AT - 1, crc);
	if (whole && !memcmp(crc, text + CRC_AT, sizeof crc))
		return STATUS_OK;
	error_set(error, STATUS_UNAUTHENTICATED, "this address is not whole: its token was cut or mistyped");
	error_hint(error, "scan the QR code, or copy the whole address again");
	return STATUS_UNAUTHENTICATED;
}

static void made(void *context, enum status status, const struct error *error)
{
	struct lend_request *request = context;
	struct lends *lends = request->lends;
	struct lend *lend = NULL;
	if (!status) {
		lend = lends->all[lends->count++] = request->made; // its place was kept by check_room
		request->made = NULL;
		log_info("lends", "address %s for browser tabs was made", lend->lend_id);
	}
	request->done(request->context, status, lend, error);
	request_destroy(&request);
}

static enum status check_room(struct lends *lends, int64_t now_ms, struct error *error)
{
	size_t coming = 0;
	struct store_batch *old = NULL;
	const size_t before = lends->count;
	for (const struct lend_request *one = lends->requests; one; one = one->next)
		coming += one->made != NULL;
	if (store_batch_create(&old))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an address");
	sweep(lends, now_ms, before + coming >= LIMIT_LENDS, old);
	if (lends->count < before)
		store_commit(lends->store, &old, NULL, NULL); // rows that stay are tried again at the next start
	store_batch_destroy(&old);
	if (lends->count + coming < LIMIT_LENDS)
		return STATUS_OK;
	error_set(error, STATUS_LIMIT_EXCEEDED, "there are %d addresses that are good or in use", LIMIT_LENDS);
	error_hint(error, "revoke some (exogpu lend list), or make fewer that may be used more often: --uses N");
	return STATUS_LIMIT_EXCEEDED;
}

enum status lends_make(struct lends *lends, const struct lend_params *params, char text[LEND_TEXT_BYTES],
		       lend_done *done, void *context, struct error *error)
{
	struct store_batch *batch = NULL;
	const int64_t now_ms = clock_wall_ms();
	char detail[96];
	text[0] = 0;
	if (params->expires_in_s < 0 || params->expires_in_s > EXPIRES_MAX_S || params->uses < 0 ||
	    params->uses > USES_MAX)
		return error_set(error, STATUS_INVALID_PARAMS, "an address lasts 30 days at most and has 1 to %d uses",
				 USES_MAX);
	enum status status = check_room(lends, now_ms, error);
	if (status)
		return status;
	struct lend_request *request = request_create(lends, context);
	struct lend *lend = request ? calloc(1, sizeof(*lend)) : NULL;
	if (!lend || make_text(text) || store_batch_create(&batch)) {
		free(lend);
		request_destroy(&request);
		return error_set(error, STATUS_UNAVAILABLE, "no address can be made now");
	}
	request->made = lend;
	request->done = done;
	*lend = (struct lend){.uses = params->uses ? params->uses : 1,
			      .created_ms = now_ms,
			      .expires_ms = now_ms + 1000 * (params->expires_in_s ? params->expires_in_s : EXPIRES_S)};
	snprintf(lend->lend_id, sizeof lend->lend_id, "%.*s", LEND_ID_DIGITS, text + ID_AT);
	snprintf(lend->name, sizeof lend->name, "%s", params->name);
	snprintf(lend->made_by, sizeof lend->made_by, "%s", params->by->actor);
	hash_secret(text + SECRET_AT, lend->secret_hash);
	snprintf(detail, sizeof detail, "{\"uses\":%lld,\"expires_in_s\":%lld}", (long long)lend->uses,
		 (long long)(lend->expires_ms - now_ms) / 1000);
	put(batch, lend);
	audit_put(lends->audit, batch,
		  &(struct audit_event){
			  .by = params->by, .action = "lend.create", .target = lend->lend_id, .detail = detail});
	status = store_commit(lends->store, &batch, made, request);
	if (status) {
		request_destroy(&request);
		OPENSSL_cleanse(text, LEND_TEXT_BYTES);
		error_set(error, status, "too many changes wait for the disk");
	}
	return status;
}

// ---- joining ----

// Said only to who has the token.
static enum status check_usable(const struct lends *lends, const struct lend *lend, struct error *error)
{
	char at[CLOCK_TEXT_BYTES];
	if (lend->revoked_ms)
		error_set(error, STATUS_UNAUTHENTICATED, "this address was revoked at %s",
			  clock_format(lend->revoked_ms, at));
	else if (lend->expires_ms <= clock_wall_ms())
		error_set(error, STATUS_UNAUTHENTICATED, "this address expired at %s",
			  clock_format(lend->expires_ms, at));
	else if (lend->used >= lend->uses)
		error_set(error, STATUS_UNAUTHENTICATED, "this address is used up: it was good for %lld device%s",
			  (long long)lend->uses, lend->uses == 1 ? "" : "s");
	else if (lends->tab_count >= LIMIT_TABS) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "%d browser tabs have joined already", LIMIT_TABS);
		error_hint(error, "remove those that do not come back: exogpu nodes remove NODE");
		return STATUS_LIMIT_EXCEEDED;
	} else
		return STATUS_OK;
	error_hint(error, "ask for a new one: exogpu lend, or the page Access of the dashboard");
	return STATUS_UNAUTHENTICATED;
}

static void joined(void *context, enum status status, const struct error *error)
{
	struct lend_request *request = context;
	struct error gone = {0};
	request->lend->taking--;
	if (status) {
		request->lend->used--;
		take_out_tab(request->lends, request->node_id);
	} else if (!find_tab(request->lends, request->node_id, NULL)) {
		status = error_set(&gone, STATUS_UNAUTHENTICATED, "this address was revoked meanwhile");
		error = &gone;
	} else {
		log_info("lends", "browser tab %s has joined by address %s", request->node_id, request->lend->lend_id);
	}
	request->joined(request->context, status, error);
	request_destroy(&request);
}

static enum status add_tab(struct lends *lends, struct lend *lend, struct lends_joined *out)
{
	struct tab *tab = calloc(1, sizeof(*tab));
	if (!tab || random_id("nod_", out->node_id, sizeof out->node_id) || base62_random(out->secret, SECRET_DIGITS)) {
		free(tab);
		return STATUS_UNAVAILABLE;
	}
	out->secret[SECRET_DIGITS] = 0;
	tab->joined_ms = clock_wall_ms();
	snprintf(tab->node_id, sizeof tab->node_id, "%s", out->node_id);
	snprintf(tab->lend_id, sizeof tab->lend_id, "%s", lend->lend_id);
	hash_secret(out->secret, tab->secret_hash);
	lends->tabs[lends->tab_count++] = tab;
	lend->tabs++;
	lend->taking++;
	lend->used++;
	return STATUS_OK;
}

static enum status store_join(struct lends *lends, struct lend_request *request, const struct lends_joining *joining,
			      struct error *error)
{
	struct store_batch *batch = NULL;
	struct audit_actor by = {0};
	const struct tab *tab = find_tab(lends, request->node_id, NULL);
	struct store_tab row = {.node_id = tab->node_id, .lend_id = tab->lend_id, .joined_ms = tab->joined_ms};
	memcpy(row.secret_hash, tab->secret_hash, sizeof row.secret_hash);
	snprintf(by.actor, sizeof by.actor, "node:%.*s", (int)(sizeof by.actor - 6), request->node_id);
	snprintf(by.name, sizeof by.name, "%s", request->lend->name);
	snprintf(by.peer, sizeof by.peer, "%s", joining->peer);
	enum status status = store_batch_create(&batch);
	if (status)
		return error_set(error, status, "out of memory");
	put(batch, request->lend);
	store_put_tab(batch, &row);
	audit_put(lends->audit, batch,
		  &(struct audit_event){.by = &by,
					.action = "node.join",
					.target = request->lend->lend_id,
					.node_id = request->node_id});
	status = store_commit(lends->store, &batch, joined, request);
	return status ? error_set(error, status, "too many changes wait for the disk") : STATUS_OK;
}

enum status lends_join(struct lends *lends, const struct lends_joining *joining, struct lends_joined *out,
		       struct error *error)
{
	*out = (struct lends_joined){0};
	enum status status = check_text(joining->token, error);
	if (status)
		return status;
	struct lend *lend = find(lends, joining->token + ID_AT);
	if (!knows_secret(lend ? lend->secret_hash : NULL, joining->token + SECRET_AT)) {
		error_set(error, STATUS_UNAUTHENTICATED, "this address is not known here");
		error_hint(error, "ask for a new one: exogpu lend, or the page Access of the dashboard");
		return STATUS_UNAUTHENTICATED;
	}
	status = check_usable(lends, lend, error);
	if (status)
		return status;
	struct lend_request *request = request_create(lends, joining->context);
	if (!request || add_tab(lends, lend, out)) {
		request_destroy(&request);
		return error_set(error, STATUS_UNAVAILABLE, "no tab can join now");
	}
	request->lend = lend;
	request->joined = joining->done;
	snprintf(request->node_id, sizeof request->node_id, "%s", out->node_id);
	status = store_join(lends, request, joining, error);
	if (status) {
		lend->taking--;
		lend->used--;
		take_out_tab(lends, request->node_id);
		request_destroy(&request);
		OPENSSL_cleanse(out, sizeof *out);
	}
	return status;
}

enum status lends_hello(const struct lends *lends, const char *node_id, const char *secret, struct error *error)
{
	const struct tab *tab = find_tab(lends, node_id, NULL);
	if (strlen(secret) == SECRET_DIGITS && knows_secret(tab ? tab->secret_hash : NULL, secret))
		return STATUS_OK;
	error_set(error, STATUS_UNAUTHENTICATED, "this device is not known here any more");
	error_hint(error, "it was removed, or its address was revoked: open a new address");
	return STATUS_UNAUTHENTICATED;
}

bool lends_know_tab(const struct lends *lends, const char *node_id)
{
	return find_tab(lends, node_id, NULL) != NULL;
}

void lends_forget_tab(struct lends *lends, const char *node_id, struct store_batch *batch)
{
	if (!find_tab(lends, node_id, NULL))
		return;
	store_remove_tab(batch, node_id); // what fails here fails the batch
	take_out_tab(lends, node_id);
}

// ---- revoking ----

static void revoked(void *context, enum status status, const struct error *error)
{
	struct lend_request *request = context;
	request->lend->unsaved = status != STATUS_OK;
	if (status)
		log_error("lends", "a revocation holds now but is not on disk: %s", error->message);
	request->done(request->context, status, request->lend, error);
	request_destroy(&request);
}

// Their rows go with the batch. If the disk does not take it, the next start does: their address is revoked.
static unsigned forget_tabs(struct lends *lends, const struct lend *lend, const struct lend_revocation *revocation,
			    struct store_batch *batch)
{
	unsigned count = 0;
	for (size_t i = lends->tab_count; i-- > 0;) {
		char node_id[STORE_ID_BYTES];
		if (strcmp(lends->tabs[i]->lend_id, lend->lend_id) != 0)
			continue;
		snprintf(node_id, sizeof node_id, "%s", lends->tabs[i]->node_id);
		lends_forget_tab(lends, node_id, batch);
		revocation->each(revocation->context, node_id);
		count++;
	}
	return count;
}

enum status lends_revoke(struct lends *lends, const struct lend_revocation *revocation, struct error *error)
{
	struct store_batch *batch = NULL;
	const char *lend_id = revocation->lend_id;
	char detail[48];
	struct lend *lend = strlen(lend_id) == LEND_ID_DIGITS ? find(lends, lend_id) : NULL;
	if (!lend) {
		error_set(error, STATUS_NOT_FOUND, "there is no address %.16s", lend_id);
		error_hint(error, "exogpu lend list shows the ids");
		return STATUS_NOT_FOUND;
	}
	if (lend->revoked_ms && !lend->unsaved)
		return error_set(error, STATUS_CONFLICT, "address %s is revoked already", lend_id);
	struct lend_request *request = request_create(lends, revocation->context);
	if (!request || store_batch_create(&batch)) {
		request_destroy(&request);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to revoke an address");
	}
	request->lend = lend;
	request->done = revocation->done;
	lend->revoked_ms = clock_wall_ms(); // no tab joins with it from here on
	put(batch, lend);
	snprintf(detail, sizeof detail, "{\"tabs\":%u}", forget_tabs(lends, lend, revocation, batch));
	audit_put(lends->audit, batch,
		  &(struct audit_event){
			  .by = revocation->by, .action = "lend.revoke", .target = lend->lend_id, .detail = detail});
	log_info("lends", "address %s was revoked", lend_id);
	enum status status = store_commit(lends->store, &batch, revoked, request);
	if (status) {
		request_destroy(&request);
		lend->unsaved = true;
		error_set(error, status, "the address is revoked until the server stops, but that is not on disk");
		error_hint(error, "free space on the disk and revoke it again");
	}
	return status;
}

const struct lend *lends_at(const struct lends *lends, size_t index)
{
	return index < lends->count ? lends->all[lends->count - 1 - index] : NULL;
}

const struct tab *lends_tab_at(const struct lends *lends, size_t index)
{
	return index < lends->tab_count ? lends->tabs[index] : NULL;
}
