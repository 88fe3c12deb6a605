/* Which of several servers on one PostgreSQL leads. One row there has the number of the turn, who has it and a stamp by
 * the database's clock, which the leader renews every second. The others look four times a second. One that has seen
 * the same stamp for TURN_STALE_MS, or for TURN_DEAD_MS while nobody holds the store's lock, raises the number, which
 * only one of them can, ends the backend that holds the lock, and leads. One that has lost the database and reached it
 * again waits for 10 s first: the leader may have lost it, too. What is written under an earlier number is refused by
 * the database: store_params.turn.
 *
 * Thread: turn_create and turn_destroy any one; it has one of its own, which calls `begun` and `lost`; the rest any. */
#pragma once
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TURN_ADDRESS_BYTES = 300, TURN_HOST_BYTES = 64, TURN_SERVERS = 16, TURN_SECRET_BYTES = 64 * 1024 };
enum { TURN_STALE_MS = 4000, TURN_DEAD_MS = 2000, TURN_SILENT_MS = 10000 };

struct turn;
struct turn_params {
	const char *url;              // postgres://…
	void (*begun)(void *context); // this server leads now; not where it did when turn_create returned
	void (*lost)(void *context);  // another one leads: this process is to end
	void *context;
};
// Leads at once if nobody does. Errors: those of a connection to the store, with hints.
enum status turn_create(struct turn **out, const struct turn_params *params, struct error *error);
// A leader's turn is over: another server may lead at once. The others are told that this one has not been lost.
void turn_destroy(struct turn **turn);
bool turn_leads(const struct turn *turn);
int64_t turn_number(const struct turn *turn); // of this server's turn; 0: it does not lead
// Where others reach this server, as in https://HOST:PORT: told to them from now on. Nothing where it is too long or
// has other characters than an address.
void turn_set_address(struct turn *turn, const char *address);

// What a server has told of itself, every 2 s. Times by the database's clock, of when this was read.
struct turn_server {
	char address[TURN_ADDRESS_BYTES], host[TURN_HOST_BYTES]; // host: "" if it has no plain name
	bool leads;
	int64_t since_ms;  // wall: leads, or follows
	int64_t silent_ms; // since it told this: over TURN_SILENT_MS it does not answer
	int64_t behind_ms; // how old its knowledge of who leads had become at most since it told the one before
};

struct turn_view {
	bool leads;                                             // this server
	int64_t since_ms;                                       // wall: leads, or follows
	char leader[TURN_ADDRESS_BYTES], host[TURN_HOST_BYTES]; // of who leads; "": not said
	int64_t stamp_age_ms; // of the leader's stamp when it was looked at, by the database's clock
	int64_t looked_ms;    // ms since the database answered last
	size_t count;         // servers that were there within the last day and have not said goodbye
	int64_t servers_read; // how often they were read from the database
	struct turn_server servers[TURN_SERVERS]; // by address
};
void turn_look(const struct turn *turn, struct turn_view *view);

// Bytes that every server needs, encrypted by who puts them here; a name has 64 characters at most, of a-z, 0-9 and ./-
// These wait for the database, on a connection of their own. Errors: STATUS_UNAVAILABLE, STATUS_CONFLICT (this server
// does not lead any more).
enum status turn_put_secret(struct turn *turn, const char *name, const uint8_t *bytes, size_t length,
			    struct error *error);
enum status turn_forget_secret(struct turn *turn, const char *name, struct error *error);
// Each one; `each` may end it with an error.
enum status turn_each_secret(struct turn *turn,
			     enum status (*each)(void *context, const char *name, const uint8_t *bytes, size_t length,
						 struct error *error),
			     void *context, struct error *error);
