/* A connection to a server: dial, log in where a token is needed, ask, hang up.
 *
 * The login is a call of its own rather than a header of the upgrade, because its refusal then comes with the server's
 * own words and hint. Calls may be sent ahead and waited for later, in any order, so that bulk goes out in a window.
 * Everything waits on a loop of the client's own: not from inside another one. Thread: its owner's. */
#pragma once
#include "common/json/json.h"
#include "common/net/ws/ws.h"
#include "server/cli/target.h"

#include <signal.h>
#include <stdint.h>

enum {
	CLIENT_TIMEOUT_MS = 10000, // for a connection and its login, and for an answer unless another is given
	CLIENT_WINDOW = 16,        // calls that may be under way
};

struct client;

// Dials and logs in. `target` outlives the client.
// Errors: what the server answered; STATUS_TIMEOUT; STATUS_UNAVAILABLE (not reached, or the connection broke).
enum status client_open(struct client **out, const struct target *target, struct error *error);
void client_close(struct client **client);

// Dial /ws of the target on a loop of the caller's; nothing is said there yet. Errors: net_dial's.
enum status client_dial(struct net_loop *loop, const struct target *target, const struct net_handler *handler,
			void *user, struct error *error);

struct client_call {
	const char *method;
	struct json *params;    // taken; may be NULL
	struct net_frame *body; // NULL without one; not copied, so it stays as it is until the answer is there
	struct buffer *body_to; // where the answer's body is appended, as far as it takes it; NULL: it is not wanted
};
// Send a call; *id is what to wait for. Errors: STATUS_LIMIT_EXCEEDED (CLIENT_WINDOW calls are in flight), those of
// client_open.
enum status client_send(struct client *client, const struct client_call *call, int64_t *id, struct error *error);
// Wait for an answer. *result (may be NULL): to be destroyed by the caller. body_bytes: the length that the answer's
// body must have; 0: any. timeout_ms 0: CLIENT_TIMEOUT_MS.
// Errors: what the server answered; STATUS_INTERNAL (a body of another length); those of client_open.
struct client_wait {
	int64_t id, timeout_ms;
	struct json **result;
	size_t body_bytes;
	bool *late; // may be NULL; set where there is no answer yet: it may be waited for again
};
enum status client_wait(struct client *client, const struct client_wait *wait, struct error *error);
// Send and wait.
enum status client_ask(struct client *client, const struct client_call *call, struct json **result,
		       struct error *error);
// Do for a moment what the connection needs between calls, such as answering the server's pings.
void client_keep(struct client *client);
// From now on SIGINT, SIGTERM and an alarm's SIGALRM end the next client_stay instead of the program.
enum status client_catch(struct client *client, struct error *error);
// From now on `notice` is called for every notification that comes while an answer is waited for, until client_stay.
void client_listen(struct client *client, bool (*notice)(void *context, const char *method, const struct json *params),
		   void *context);
// Stay connected until SIGINT, SIGTERM or SIGALRM comes (STATUS_OK), or `notice`, called for every notification to this
// connection, returns false (STATUS_OK), or the connection breaks (its error).
enum status client_stay(struct client *client,
			bool (*notice)(void *context, const char *method, const struct json *params), void *context,
			struct error *error);

// Open, ask, close.
enum status client_call(const struct target *target, const char *method, struct json *params, struct json **result,
			struct error *error);
