/* Tenants: what sessions own on devices, and the workers that hold it for them.
 *
 * A tenant is one session. It has one worker for each node and back end that it uses; a worker is a process that the
 * node starts (tenant.open) and that then speaks to the server over a stream of its own (link.hello, and the methods of
 * schema/node.json whose direction is server-to-worker). Allocations and modules are names of handles in a worker, and
 * live as long as it does. When it ends, whoever ends it, its tenant's calls under way are answered device_lost, the
 * tenant is told what it lost (session.device_lost), and the next allocation starts another. All of it stands in memory
 * only: a server that starts holds nothing.
 *
 * A worker runs a tenant's code, so what comes over its stream is taken for hostile: an answer that nobody waits for,
 * that breaks the contract, or whose body is not as long as what was asked ends that worker, and only that one.
 *
 * Nobody's slowness grows the server: connections that send to a worker with a full queue are not read until it has
 * room, and workers of a tenant one of whose connections does not take its answers are not read either.
 * Thread: the loop's. */
#pragma once
#include "common/wire/contract.h"
#include "server/cluster/cluster.h"
#include "server/security/limits.h"
#include "server/security/tokens/tokens.h"

struct tenancy;
struct tenant;
struct topology;
struct worker;

enum { TENANT_TARGET_BYTES = 160, TENANT_SHA256_BYTES = 32 };

struct tenancy_params {
	struct net_loop *loop;
	const struct contract *contract; // CONTRACT_NODE
	struct cluster *cluster;
	const struct topology *topology;
	struct events *events;
	struct audit *audit;
	const struct limits *limits;
	const char *directory; // where the socket of workers lies
};
// Errors: net_stream_listen's.
enum status tenancy_create(struct tenancy **out, const struct tenancy_params *params, struct error *error);
// After every tenant was destroyed.
void tenancy_destroy(struct tenancy **tenants);

// `token` NULL: the machine's owner. It must outlive the tenant. Errors: STATUS_OUT_OF_MEMORY.
enum status tenant_create(struct tenant **out, struct tenancy *tenants, const char *session_id, struct token *token);
// Ends its workers, in this turn. Calls under way are answered.
void tenant_destroy(struct tenant **tenant);
// End its workers and keep the tenant. `why` is told to its connections.
void tenant_end(struct tenant *tenant, const char *why);

// A connection of a tenant, embedded in its owner; zero before it joins.
struct tenant_conn {
	struct tenant_conn *next;
	struct tenant *tenant;
	struct net_conn *conn;
	const struct worker *waits_for; // a worker whose queue is full: this connection is not read
	bool full;                      // its own queue is: no worker of the tenant is read
};
void tenant_join(struct tenant *tenant, struct tenant_conn *conn, struct net_conn *net);
void tenant_leave(struct tenant_conn *conn); // also when it never joined
// After an answer was queued; and when the queue is empty again.
void tenant_conn_sent(struct tenant_conn *conn);
void tenant_conn_drained(struct tenant_conn *conn);

// The subject of a call, for its entry in the audit log. Filled in as far as it is known.
struct tenant_about {
	char node_id[STORE_ID_BYTES], device_id[STORE_ID_BYTES], target[TENANT_TARGET_BYTES];
	char taken_from[STORE_ID_BYTES]; // the session whose allocation an admin frees
	uint64_t bytes;
};

// A call of a client. Everything that it points at is valid during the call, but conn, id and context until `done`.
struct tenant_call {
	struct tenant *tenant;
	struct tenant_conn *conn;
	const struct json *id;     // of the call, for session.progress; NULL: nobody waits
	const struct json *params; // checked against the contract
	struct net_frame *holder;  // that the body lies in; NULL: it must be copied to be kept
	const uint8_t *body;       // (body_bytes), NULL without one
	size_t body_bytes;
	bool admin;
	struct tenant_about *about; // stays until `done`
	// Once, later. result is taken, with an error it is what its data has besides; body: of the answer to
	// memory.read, with room before it; NULL without one.
	void (*done)(void *context, enum status status, struct json *result, struct net_frame *body,
		     const struct error *error);
	void *context;
};
// The methods of schema/api.json. STATUS_OK: `done` will be called. Errors at once, as the contract says, with hints.
enum status tenant_allocate(const struct tenant_call *call, struct error *error);
enum status tenant_write(const struct tenant_call *call, struct error *error);
enum status tenant_read(const struct tenant_call *call, struct error *error);
enum status tenant_copy(const struct tenant_call *call, struct error *error);
enum status tenant_fill(const struct tenant_call *call, struct error *error);
enum status tenant_free(const struct tenant_call *call, struct error *error);
enum status tenant_load(const struct tenant_call *call, struct error *error);
enum status tenant_launch(const struct tenant_call *call, struct error *error);
enum status tenant_run(const struct tenant_call *call, struct error *error);
size_t tenant_run_numbers(const struct json *params); // how many come with a compute.run
enum status tenant_unload(const struct tenant_call *call, struct error *error);
// Free an allocation or unload a module again: what made it has no entry in the audit log. Nothing if it is gone.
void tenancy_undo(struct tenancy *tenants, const char *id);

// Allocation records, oldest first: of one token's sessions with their labels, or, with `all`, of everyone, with or
// without them. `token` NULL: the machine's owner. With `masks_others` what is not that token's has no name: ids that
// stand for the true ones until the server ends and are good for no call, and no holder.
struct tenancy_list_params {
	const struct token *token;
	bool all, labels, masks_others;
};
struct json *tenancy_list(const struct tenancy *tenants, const struct tenancy_list_params *params);
// Publish now what is gathered, so that a snapshot stands where its seq says.
void tenancy_flush_events(struct tenancy *tenants);

// Handle a node's word that one of its workers is gone.
void tenancy_worker_ended(struct tenancy *tenants, const char *node_id, const char *worker_id, const char *message);

// A connection of /node by which a node relays one worker (subprotocol exogpu.worker.v1). `node_id`: of the certificate
// that it showed; "": it is this machine's owner's. With `tab` it is the network address of somebody who has shown
// nothing yet, and who may bring workers of browser tabs only. NULL: there is no room. Its functions are those of
// net_handler.
struct worker_link;
struct worker_link *worker_link_create(struct tenancy *tenants, const char *node_id, bool tab);
void worker_link_opened(void *user, struct net_conn *conn);
void worker_link_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary);
void worker_link_drained(void *user, struct net_conn *conn);
void worker_link_closed(void *user, struct net_conn *conn, int code);

// A model instance's worker: no session's, otherwise as any (instance.c). It opens its devices itself.
struct instance_worker;
struct instance_worker_params {
	const char *instance_id;
	const char *model_path, *model_id; // the file on this machine; or whose bytes its node has fetched
	const char *draft_path, *draft_id; // the same of its draft model; NULL: it has none
	bool ring;                         // it is one of several parts
	const struct cluster_device *const *devices;
	unsigned device_count;        // of one node and back end; it ends when one of them is lost
	void (*ready)(void *context); // it can be called now
	// Called for the worker's own notifications, checked against the contract.
	void (*notice)(void *context, const char *method, const struct json *params);
	// Its node, on another machine, is cut off: calls under way were answered, and nothing can be asked of it until
	// it is back, with all that it had; or until it has ended.
	void (*away)(void *context, const char *why);
	void (*back)(void *context);
	// The last call: it has ended. Calls under way were answered before. `died`: of itself, or by its own fault;
	// else its node, its device or the connection to it is gone.
	void (*ended)(void *context, const struct error *fault, bool died);
	void *context;
};
// Errors: STATUS_UNAVAILABLE (its node cannot be asked), STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status instance_worker_create(struct instance_worker **out, struct tenancy *tenants,
				   const struct instance_worker_params *params, struct error *error);
// A worker that an earlier server had left, or that outlived it. It is away, as if its node had just been cut off, and
// has LIMIT_AWAY_MS to come back. It must show the key whose digest this is. `epoch` is the new one, greater than any
// earlier; it tells messages for this server from messages for the earlier one. Then `instance.adopt` is to be called
// before anything else. Errors: also STATUS_INVALID_PARAMS (an id that is none, or that is in use).
struct instance_worker_left {
	const char *worker_id;
	uint8_t key_sha256[TENANT_SHA256_BYTES];
	uint64_t epoch;
};
enum status instance_worker_restore(struct instance_worker **out, struct tenancy *tenants,
				    const struct instance_worker_params *params,
				    const struct instance_worker_left *left, struct error *error);
// The record to store for that. `epoch` is 0; worker_id is valid as long as the worker exists.
void instance_worker_describe(const struct instance_worker *instance, struct instance_worker_left *left);
// As instance_worker_destroy, but its process goes on: its node keeps it for LIMIT_AWAY_MS.
void instance_worker_leave(struct instance_worker **instance);
// Kill it, in this turn; `ended` is not called. Calls under way are answered with `why`. Accepts NULL, leaves NULL
// behind. Safe in its callbacks.
void instance_worker_destroy(struct instance_worker **instance, const char *why);
// Call it, once it is ready; `params` is taken. `answer` (may be NULL) is called once, unless an error is returned:
// STATUS_DEVICE_LOST (it is ending), STATUS_LIMIT_EXCEEDED (its queue is full, or the message too long),
// STATUS_OUT_OF_MEMORY.
enum status instance_worker_call(struct instance_worker *instance, const char *method, struct json *params,
				 cluster_answer *answer, void *context, struct error *error);
// Connect a channel from one to another, past the server: within a node or by the direct link of two. `opened` is
// called once both workers have their ends, or `ended` if that does not come about, neither from inside. Errors:
// STATUS_UNAVAILABLE (there is no such way, or a worker is not there), STATUS_OUT_OF_MEMORY.
struct direct;
enum status instance_worker_connect(struct direct **out, struct instance_worker *from, struct instance_worker *to,
				    void (*opened)(void *context),
				    void (*ended)(void *context, uint64_t done, const struct error *error),
				    void *context);
void direct_close(struct direct **channel);          // no callback follows; the workers keep their ends. Accepts NULL
const char *direct_id(const struct direct *channel); // as the workers know it
// The same with a body, `bytes` of the frame's beginning. The frame is referenced.
enum status instance_worker_write(struct instance_worker *instance, const char *method, struct json *params,
				  struct net_frame *frame, size_t bytes, cluster_answer *answer, void *context,
				  struct error *error);
// It stays, and what it was asked is of no interest any more: calls under way are answered STATUS_DEVICE_LOST with
// `why`, now, and what it still answers to them is passed over.
void instance_worker_recall(struct instance_worker *instance, const char *why);
void instance_worker_hand_over(struct instance_worker *instance, void *context); // of its callbacks, from now on
bool instance_worker_is_away(const struct instance_worker *instance);
const char *instance_worker_id(const struct instance_worker *instance); // as its node knows it
// It broke the contract: end it. `ended` is called.
void instance_worker_fail(struct instance_worker *instance, const char *why);

// Whether a session has called a worker that has this device open, now or in the last seconds.
bool tenancy_works_on(const struct tenancy *tenants, const struct cluster_device *device);

// A node has registered on a new connection, with these workers of earlier ones (an array of ids; NULL: none): those
// that nobody wants any more are ended, those that it has not are lost, of the others it says link.hello again.
void tenancy_node_back(struct tenancy *tenants, const char *node_id, const struct json *workers);

// The bytes that sessions and instances hold in the memory of a device and of those that share it; and a change of what
// an instance holds, negative for less. Errors: STATUS_OUT_OF_MEMORY.
uint64_t tenancy_held_bytes(const struct tenancy *tenants, const struct cluster_device *device);
enum status tenancy_hold(struct tenancy *tenants, const struct cluster_device *device, int64_t change);

// A device that new work may go to. Errors: STATUS_NOT_FOUND, STATUS_UNAVAILABLE, saying why.
enum status tenant_find_device(const struct tenancy *tenants, const char *device_id,
			       const struct cluster_device **device, struct error *error);

// Figures for /metrics.
struct tenancy_stats {
	size_t allocations, workers;
	uint64_t written_bytes, read_bytes, relayed_bytes;
};
void tenancy_read_stats(const struct tenancy *tenants, struct tenancy_stats *stats);
void tenancy_each_device(const struct tenancy *tenants,
			 void (*each)(void *context, const struct cluster_device *device, uint64_t bytes),
			 void *context);
