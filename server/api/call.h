/* The inside of the API, for the files of this folder: connections, sessions, and the table of handlers.
 * Thread: the loop's. */
#pragma once
#include "server/api/api.h"
#include "server/security/login_codes.h"

// What a token's holder has open; what it owns outlives its last connection by LIMIT_SESSION_GRACE_MS.
struct api_session {
	struct api_session *next;
	struct api *api;
	char session_id[32];
	struct token *token; // NULL: the machine's owner
	unsigned connections;
	struct tenant *tenant;    // what it owns
	struct audit_actor actor; // as it began
	int64_t began_ns;
	uint64_t launches, read_bytes, written_bytes;
	struct net_timer grace;
};

struct api_client {
	struct api_client *next, **link; // in api->clients
	struct api *api;
	struct net_conn *conn;       // NULL before it opened and after it closed
	struct api_session *session; // NULL until logged in
	struct token *first_token;   // from the upgrade's header
	bool local, closed, waiting; // waiting: counted as not logged in
	bool evicted;                // it lost its place among those, and is about to be closed
	bool overdue;                // its time to log in is over; it is still to hear why a log-in failed
	uid_t uid;                   // of a local one
	unsigned late;               // answers to failed log-ins that wait: it keeps its place until they are due
	struct limits_waiter place;  // while it waits
	struct audit_actor actor;
	int64_t now_ns; // when the message that is looked at came
	struct event_subscriber subscriber;
	bool watches_chat;          // it is told by chat.status what changes
	bool watches_conversations; // it is told by conversation.changed
	struct tenant_conn tenant_conn;
	struct net_timer login_deadline;
	unsigned calls;   // in flight; the struct lives until they are done
	double allowance; // messages that may come now
	int64_t allowance_ns;
};

struct api {
	struct api_params params;
	const struct api_handler **handlers; // one for each method, in the contract's order
	struct api_client *clients;
	struct api_session *sessions;
	struct late_answer *late_answers;
	struct login_codes login_codes;
	struct net_timer sweep; // expired tokens
	struct {
		struct net_timer timer;
		bool due;          // the timer runs
		struct json *last; // what was told last; NULL: nothing yet
	} chat;
	char url[300];      // where clients find this server, with a / at its end
	char address[300];  // HOST:PORT by which other machines are likely to reach this server; "": they do not
	struct buffer text; // an answer being printed
	struct api_stats stats;
};

struct api_call {
	struct api *api;
	struct api_client *client;
	const struct contract_method *method;
	struct json *id;   // NULL: a notification, not answered
	struct json *kept; // a handler's own, between its start and its end
	// The body of the message, valid while the handler runs; holder: the frame that it lies in, or NULL.
	const uint8_t *body; // (body_bytes), NULL without one
	size_t body_bytes;
	struct net_frame *holder;
	int64_t began_ns;
	const struct api_handler *handler;
	// of one that is about what a session owns
	struct api_session *session;
	struct tenant_about about;
	uint64_t in_flight_bytes;
};

// Return STATUS_OK with *result, an error with *error, or STATUS_PENDING after arranging for api_finish. In place of
// `run`, `owned` may stand: what it is about is the session's own. `entry`: it has an entry of the audit log for
// itself, which is on disk before the answer goes; without, it is counted.
struct api_handler {
	const char *method;
	enum status (*run)(struct api_call *call, const struct json *params, struct json **result, struct error *error);
	enum status (*owned)(const struct tenant_call *call, struct error *error);
	bool entry;
};
extern const struct api_handler server_handlers[], auth_handlers[], cluster_handlers[], events_handlers[],
	telemetry_handlers[], device_handlers[], token_handlers[], memory_handlers[], compute_handlers[],
	audit_handlers[], node_handlers[], ticket_handlers[], certificate_handlers[], model_handlers[],
	catalog_handlers[], instance_handlers[], topology_handlers[], chat_handlers[], alert_handlers[],
	thermal_handlers[], usage_handlers[], conversation_handlers[],
	lend_handlers[]; // each ends with a NULL method

// One handler for each method of the contract and none besides. Errors: STATUS_INTERNAL, naming the method.
enum status api_bind_handlers(struct api *api, struct error *error);
// Run one of server/tenants. Returns as a handler does.
enum status api_run_owned(struct api_call *call, const struct api_handler *handler, const struct json *params,
			  struct error *error);
// Answer a call and free it. `result` is taken.
void api_finish(struct api_call *call, enum status status, struct json *result, const struct error *error);
// The same for a method with x-result-body: `body` has room before it for the head, and nobody else holds it; NULL: the
// body is empty.
void api_finish_body(struct api_call *call, struct json *result, struct net_frame *body);
// Answer a call that failed `delay_ms` from now.
void api_finish_late(struct api_call *call, int64_t delay_ms, const struct error *error);
void api_answer_all(struct api *api); // those that wait, now
// Who acts where nobody has logged in: known by the address, as limits count it.
void api_stranger(struct audit_actor *actor, const char *peer);
// The connection is not one of those that have not logged in any more.
void api_give_place(struct api_client *client);
// The whole state as this client may see it: the cluster's, and the allocations.
struct json *api_snapshot(const struct api_client *client);
// Log a connection in (token NULL: the owner), into a new session or, with session_id, an existing one.
enum status api_log_in(struct api_client *client, struct token *token, const char *session_id, struct error *error);
// A notification, printed once, to each connection that `watches` it. One of this key that still waits is replaced.
struct api_notice {
	const char *method;
	struct json *params; // taken
	uint64_t key;
	bool (*watches)(const struct api_client *client, const void *context);
	const void *context;
};
void api_notify(struct api *api, const struct api_notice *notice);
// chat.status: begin to follow what becomes of models, and end it.
void api_chat_begin(struct api *api);
void api_chat_end(struct api *api);
// conversation.changed: begin to tell what becomes of conversations, and end it.
void api_conversations_begin(struct api *api);
void api_conversations_end(struct api *api);
// End a session that nobody is connected to.
void api_session_destroy(struct api_session *session);
// What the caller may do: the scopes of its token, or all.
uint32_t api_scopes(const struct api_client *client);
