/* See tickets.h. A ticket is added to memory once it is on disk. A use is counted in memory first, so that two nodes
 * cannot both take the last one, and returned if its batch fails. */
#include "server/security/tickets.h"

#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/text/ticket_text.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)TICKET_TEXT_BYTES > (int)TICKET_TEXT_LENGTH && (int)TICKET_ID_BYTES == TICKET_ID_DIGITS + 1,
	       "the header's sizes");

enum { EXPIRES_S = 3600, EXPIRES_MAX_S = 30 * 24 * 3600, USES_MAX = 1000, KEPT_MS = 24 * 3600 * 1000 };
enum {
	OVER_KEPT = 200,                    // tickets that are over and still listed: the newest
	SHARE_OF_TOKEN = LIMIT_TICKETS / 2, // that are good and were made with one token
	PLACES_OF_OWNER = 50,               // that tokens cannot take
};

struct tickets {
	struct store *store;
	struct audit *audit;
	uint8_t authority_sha256[32];
	struct ticket *all[LIMIT_TICKETS + OVER_KEPT]; // oldest first
	size_t count;
	struct request *requests; // under way
};

// A change that is being stored.
struct request {
	struct request *next, **link;
	struct tickets *tickets; // NULL: they are gone
	struct ticket *made;     // not entered yet; NULL of a revocation
	struct ticket *revoked;
	ticket_done *done;
	void *context;
};

static struct request *request_create(struct tickets *tickets, ticket_done *done, void *context)
{
	struct request *request = calloc(1, sizeof(*request));
	if (!request)
		return NULL;
	*request = (struct request){.tickets = tickets, .done = done, .context = context};
	LIST_PUSH(&tickets->requests, request, link);
	return request;
}

static void request_destroy(struct request **pointer)
{
	struct request *request = *pointer;
	*pointer = NULL;
	if (!request)
		return;
	LIST_REMOVE(request, link);
	free(request->made);
	free(request);
}

static bool over_for_long(const struct ticket *ticket, int64_t now_ms)
{
	int64_t end_ms = ticket->revoked_ms ? ticket->revoked_ms : ticket->expires_ms;
	return now_ms - end_ms > KEPT_MS;
}

// Nobody can join with it any more.
static bool is_over(const struct ticket *ticket, int64_t now_ms)
{
	return ticket->revoked_ms || ticket->expires_ms <= now_ms || (ticket->used >= ticket->uses && !ticket->taking);
}

static bool is_busy(const struct tickets *tickets, const struct ticket *ticket)
{
	for (const struct request *one = tickets->requests; one; one = one->next)
		if (one->revoked == ticket)
			return true;
	return ticket->taking > 0 || ticket->unsaved; // a revocation that is not on disk is not forgotten
}

// Those that are long over are forgotten, and the oldest of those that are over, when they are more than are kept: they
// never take the place of one that is good. Their rows go with `old`.
static void sweep(struct tickets *tickets, int64_t now_ms, struct store_batch *old)
{
	size_t kept = 0, over = 0;
	for (size_t i = 0; i < tickets->count; i++)
		over += is_over(tickets->all[i], now_ms);
	for (size_t i = 0; i < tickets->count; i++) {
		struct ticket *ticket = tickets->all[i];
		const bool surplus = is_over(ticket, now_ms) && over > OVER_KEPT;
		if ((surplus || over_for_long(ticket, now_ms)) && !is_busy(tickets, ticket)) {
			store_remove_ticket(old, ticket->ticket_id); // what fails here fails the batch, and waits
			over -= is_over(ticket, now_ms);
			free(ticket);
		} else {
			tickets->all[kept++] = ticket;
		}
	}
	tickets->count = kept;
}

struct loading {
	struct tickets *tickets;
	struct store_batch *old; // rows to be removed
	int64_t now_ms;
};

static void load_row(void *context, const struct store_ticket *row)
{
	struct loading *loading = context;
	struct tickets *tickets = loading->tickets;
	struct ticket ticket = {.uses = row->uses,
				.used = row->used,
				.created_ms = row->created_ms,
				.expires_ms = row->expires_ms,
				.revoked_ms = row->revoked_ms};
	snprintf(ticket.ticket_id, sizeof ticket.ticket_id, "%s", row->ticket_id);
	snprintf(ticket.made_by, sizeof ticket.made_by, "%s", row->made_by);
	memcpy(ticket.secret_hash, row->secret_hash, sizeof ticket.secret_hash);
	if (tickets->count == sizeof tickets->all / sizeof *tickets->all)
		sweep(tickets, loading->now_ms, loading->old);
	if (over_for_long(&ticket, loading->now_ms) || tickets->count == sizeof tickets->all / sizeof *tickets->all) {
		store_remove_ticket(loading->old, row->ticket_id); // what fails here fails the batch, and waits
		return;
	}
	struct ticket *kept = malloc(sizeof(*kept));
	if (!kept)
		return;
	*kept = ticket;
	tickets->all[tickets->count++] = kept;
}

enum status tickets_create(struct tickets **out, struct store *store, struct audit *audit,
			   const uint8_t *authority_sha256, struct error *error)
{
	struct tickets *tickets = calloc(1, sizeof(*tickets));
	struct loading loading = {.tickets = tickets, .now_ms = clock_wall_ms()};
	*out = NULL;
	if (!tickets || store_batch_create(&loading.old)) {
		free(tickets);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the tickets");
	}
	tickets->store = store;
	tickets->audit = audit;
	memcpy(tickets->authority_sha256, authority_sha256, sizeof tickets->authority_sha256);
	enum status status = store_load_tickets(store, load_row, &loading, error);
	if (status) {
		store_batch_destroy(&loading.old);
		tickets_destroy(&tickets);
		return status;
	}
	store_commit(store, &loading.old, NULL, NULL); // rows that stay are tried again at the next start
	*out = tickets;
	return STATUS_OK;
}

void tickets_destroy(struct tickets **pointer)
{
	struct tickets *tickets = *pointer;
	if (!tickets)
		return;
	*pointer = NULL;
	for (struct request *one = tickets->requests; one; one = one->next)
		one->tickets = NULL; // whose outcome the store drops
	while (tickets->requests) {
		struct request *one = tickets->requests;
		request_destroy(&one);
	}
	for (size_t i = 0; i < tickets->count; i++)
		free(tickets->all[i]);
	free(tickets);
}

static struct ticket *find(const struct tickets *tickets, const char *id)
{
	for (size_t i = 0; i < tickets->count; i++)
		if (!memcmp(tickets->all[i]->ticket_id, id, TICKET_ID_DIGITS))
			return tickets->all[i];
	return NULL;
}

static void hash_secret(const char *secret, uint8_t hash[STORE_HASH_BYTES])
{
	if (!EVP_Digest(secret, TICKET_SECRET_DIGITS, hash, NULL, EVP_sha256(), NULL))
		memset(hash, 0, STORE_HASH_BYTES); // no secret has this hash
}

static enum status put(struct store_batch *batch, const struct ticket *ticket)
{
	struct store_ticket row = {.ticket_id = ticket->ticket_id,
				   .made_by = ticket->made_by,
				   .uses = ticket->uses,
				   .used = ticket->used,
				   .created_ms = ticket->created_ms,
				   .expires_ms = ticket->expires_ms,
				   .revoked_ms = ticket->revoked_ms};
	memcpy(row.secret_hash, ticket->secret_hash, sizeof row.secret_hash);
	return store_put_ticket(batch, &row);
}

// ---- making ----

static void made(void *context, enum status status, const struct error *error)
{
	struct request *request = context;
	struct tickets *tickets = request->tickets;
	struct ticket *ticket = NULL;
	if (!status) {
		ticket = tickets->all[tickets->count++] = request->made; // its place was kept by check_room
		request->made = NULL;
		log_info("tickets", "ticket %s was made", ticket->ticket_id);
	}
	if (request->done)
		request->done(request->context, status, ticket, error);
	request_destroy(&request);
}

static enum status check_room(struct tickets *tickets, const struct audit_actor *by, int64_t now_ms,
			      struct error *error)
{
	size_t good = 0, own = 0, coming = 0, before = tickets->count;
	struct store_batch *old = NULL;
	const bool token = !strncmp(by->actor, "token:", 6);
	if (store_batch_create(&old))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a ticket");
	sweep(tickets, now_ms, old);
	if (tickets->count < before)
		store_commit(tickets->store, &old, NULL, NULL); // rows that stay are tried again at the next start
	store_batch_destroy(&old);
	for (size_t i = 0; i < tickets->count; i++) {
		const bool is_good = !is_over(tickets->all[i], now_ms);
		good += is_good;
		own += is_good && !strcmp(tickets->all[i]->made_by, by->actor);
	}
	for (const struct request *one = tickets->requests; one; one = one->next) {
		coming += one->made != NULL;
		own += one->made && !strcmp(one->made->made_by, by->actor);
	}
	good += coming;
	// Tickets that are over and in use, or whose revocation is not on disk, are not swept: the table may be full of
	// these, too.
	if (tickets->count + coming >= sizeof tickets->all / sizeof *tickets->all) {
		error_set(error, STATUS_LIMIT_EXCEEDED,
			  "%zu tickets are over, but cannot be forgotten before the disk has taken that",
			  tickets->count + coming - good);
		error_hint(error, "free space on the disk, and revoke again those that could not be stored");
		return STATUS_LIMIT_EXCEEDED;
	}
	if (good < LIMIT_TICKETS - (token ? (size_t)PLACES_OF_OWNER : 0) && !(token && own >= SHARE_OF_TOKEN))
		return STATUS_OK;
	error_set(error, STATUS_LIMIT_EXCEEDED, "there are %zu tickets that are good, %zu of them by who asks", good,
		  own);
	error_hint(error, "revoke some, or make fewer that may be used more often: exogpu ticket create --uses N");
	return STATUS_LIMIT_EXCEEDED;
}

static struct ticket *build(const struct tickets *tickets, const struct ticket_params *params, int64_t now_ms,
			    char text[TICKET_TEXT_BYTES])
{
	struct ticket_parts parts;
	struct ticket *ticket = calloc(1, sizeof(*ticket));
	if (!ticket || ticket_text_make(tickets->authority_sha256, text) || ticket_text_parse(text, &parts, NULL)) {
		free(ticket);
		return NULL;
	}
	*ticket = (struct ticket){.uses = params->uses ? params->uses : 1,
				  .created_ms = now_ms,
				  .expires_ms = now_ms +
						1000 * (params->expires_in_s ? params->expires_in_s : EXPIRES_S)};
	memcpy(ticket->ticket_id, parts.id, TICKET_ID_DIGITS);
	snprintf(ticket->made_by, sizeof ticket->made_by, "%s", params->by->actor);
	hash_secret(parts.secret, ticket->secret_hash);
	return ticket;
}

static void put_entry(struct tickets *tickets, struct store_batch *batch, const struct audit_event *event)
{
	audit_put(tickets->audit, batch, event); // what fails here fails the batch
}

enum status tickets_make(struct tickets *tickets, const struct ticket_params *params, char text[TICKET_TEXT_BYTES],
			 ticket_done *done, void *context, struct error *error)
{
	struct store_batch *batch = NULL;
	int64_t now_ms = clock_wall_ms();
	char detail[96];
	text[0] = 0;
	if (params->expires_in_s < 0 || params->expires_in_s > EXPIRES_MAX_S || params->uses < 0 ||
	    params->uses > USES_MAX)
		return error_set(error, STATUS_INVALID_PARAMS, "a ticket lasts 30 days at most and has 1 to %d uses",
				 USES_MAX);
	enum status status = check_room(tickets, params->by, now_ms, error);
	if (status)
		return status;
	struct request *request = request_create(tickets, done, context);
	if (request)
		request->made = build(tickets, params, now_ms, text);
	if (!request || !request->made || store_batch_create(&batch)) {
		request_destroy(&request);
		status = error_set(error, STATUS_UNAVAILABLE, "no ticket can be made now");
		goto done;
	}
	const struct ticket *ticket = request->made;
	snprintf(detail, sizeof detail, "{\"uses\":%lld,\"expires_in_s\":%lld}", (long long)ticket->uses,
		 (long long)(ticket->expires_ms - now_ms) / 1000);
	put(batch, ticket);
	put_entry(tickets, batch,
		  &(struct audit_event){
			  .by = params->by, .action = "ticket.create", .target = ticket->ticket_id, .detail = detail});
	status = store_commit(tickets->store, &batch, made, request);
	if (status) {
		request_destroy(&request);
		error_set(error, status, "too many changes wait for the disk");
	}
done:
	if (status)
		OPENSSL_cleanse(text, TICKET_TEXT_BYTES);
	return status;
}

// ---- using ----

// Said only to who has the secret.
static enum status usable(const struct ticket *ticket, int64_t now_ms, struct error *error)
{
	char at[CLOCK_TEXT_BYTES];
	if (ticket->revoked_ms)
		error_set(error, STATUS_UNAUTHENTICATED, "this ticket was revoked at %s",
			  clock_format(ticket->revoked_ms, at));
	else if (ticket->expires_ms <= now_ms)
		error_set(error, STATUS_UNAUTHENTICATED, "this ticket expired at %s",
			  clock_format(ticket->expires_ms, at));
	else if (ticket->used >= ticket->uses)
		error_set(error, STATUS_UNAUTHENTICATED, "this ticket is used up: it was good for %lld node%s",
			  (long long)ticket->uses, ticket->uses == 1 ? "" : "s");
	else
		return STATUS_OK;
	error_hint(error, "make a new one where the server runs: exogpu ticket create");
	return STATUS_UNAUTHENTICATED;
}

enum status tickets_use(struct tickets *tickets, const char *text, struct store_batch *batch, struct ticket **out,
			struct error *error)
{
	struct ticket_parts parts;
	uint8_t hash[STORE_HASH_BYTES];
	static const uint8_t nobody[STORE_HASH_BYTES] = {1};
	*out = NULL;
	struct error why = {0};
	if (ticket_text_parse(text, &parts, &why)) {
		error_set(error, STATUS_UNAUTHENTICATED, "%s", why.message);
		error_hint(error, "%s", why.hint);
		return STATUS_UNAUTHENTICATED;
	}
	struct ticket *ticket = find(tickets, parts.id);
	hash_secret(parts.secret, hash);
	bool same = !CRYPTO_memcmp(hash, ticket ? ticket->secret_hash : nobody, sizeof hash);
	OPENSSL_cleanse(hash, sizeof hash);
	if (!ticket || !same) {
		error_set(error, STATUS_UNAUTHENTICATED, "this ticket is not known here");
		error_hint(error, "make one where the server runs: exogpu ticket create");
		return STATUS_UNAUTHENTICATED;
	}
	enum status status = usable(ticket, clock_wall_ms(), error);
	if (status)
		return status;
	ticket->used++;
	status = put(batch, ticket);
	if (status) {
		ticket->used--;
		return error_set(error, status, "the use could not be counted");
	}
	ticket->taking++;
	*out = ticket;
	return STATUS_OK;
}

void tickets_used(struct tickets *tickets, struct ticket *ticket)
{
	(void)tickets;
	ticket->taking--;
}

void tickets_unuse(struct tickets *tickets, struct ticket *ticket)
{
	(void)tickets;
	ticket->taking--;
	ticket->used--;
}

// ---- revoking ----

static void revoked(void *context, enum status status, const struct error *error)
{
	struct request *request = context;
	request->revoked->unsaved = status != STATUS_OK;
	if (status)
		log_error("tickets", "a revocation holds now but is not on disk: %s", error->message);
	if (request->done)
		request->done(request->context, status, request->revoked, error);
	request_destroy(&request);
}

enum status tickets_revoke(struct tickets *tickets, const char *ticket_id, const struct audit_actor *by,
			   ticket_done *done, void *context, struct error *error)
{
	struct store_batch *batch = NULL;
	struct ticket *ticket = strlen(ticket_id) == TICKET_ID_DIGITS ? find(tickets, ticket_id) : NULL;
	if (!ticket) {
		error_set(error, STATUS_NOT_FOUND, "there is no ticket %.16s", ticket_id);
		error_hint(error, "exogpu ticket list shows the ids");
		return STATUS_NOT_FOUND;
	}
	if (ticket->revoked_ms && !ticket->unsaved)
		return error_set(error, STATUS_CONFLICT, "ticket %s is revoked already", ticket_id);
	struct request *request = request_create(tickets, done, context);
	if (!request || store_batch_create(&batch)) {
		request_destroy(&request);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to revoke a ticket");
	}
	request->revoked = ticket;
	ticket->revoked_ms = clock_wall_ms(); // no node joins with it from here on
	put(batch, ticket);
	put_entry(tickets, batch,
		  &(struct audit_event){.by = by, .action = "ticket.revoke", .target = ticket->ticket_id});
	log_info("tickets", "ticket %s was revoked", ticket_id);
	enum status status = store_commit(tickets->store, &batch, revoked, request);
	if (status) {
		request_destroy(&request);
		ticket->unsaved = true;
		error_set(error, status, "the ticket is revoked until the server stops, but that is not on disk");
		error_hint(error, "free space on the disk and revoke it again");
	}
	return status;
}

const struct ticket *tickets_at(const struct tickets *tickets, size_t index)
{
	return index < tickets->count ? tickets->all[tickets->count - 1 - index] : NULL;
}
