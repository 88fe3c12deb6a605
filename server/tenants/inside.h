/* The inside of server/tenants: tenants, their workers, and what these hold. Thread: the loop's. */
#pragma once
#include "common/net/shared.h"
#include "common/net/stream.h"
#include "common/net/ws/parts.h"
#include "common/wire/rpc.h"
#include "server/tenants/tenants.h"

enum { TENANT_ID_BYTES = 32, WORKER_KEY_BYTES = 65, ITEM_SLOTS = 8192 };

enum item_kind { ITEM_UNKNOWN, ITEM_ALLOCATION, ITEM_MODULE };

// An allocation or a module. It can be named once it is `ready`, and its memory counts from before the worker is asked
// until the worker has answered that it is gone.
struct item {
	struct item *chain;        // in the table by id, while it is ready
	struct item *next, **link; // of its worker
	struct item *fresh_next;   // among those that no event has told yet
	struct worker *worker;
	enum item_kind kind;
	unsigned device; // its place in worker->devices
	uint32_t handle;
	bool ready, fresh;
	char id[TENANT_ID_BYTES];
	uint64_t bytes, serial;
	int64_t created_ms;
	char *label; // NULL without one
};

// The bytes that all sessions hold on a device.
struct holding {
	struct holding *next;
	const struct cluster_device *device;
	uint64_t bytes, awaited; // awaited: of them, what workers were asked for and have not answered
};

// A call to a worker: waiting until its device is open, or sent and not answered.
struct worker_call {
	struct worker_call *next; // while it waits
	struct worker *worker;
	int64_t id; // once it is sent
	const char *method;
	// The answer that is expected: `counts` says that it names `bytes`; its body has body_bytes.
	bool counts;
	uint64_t bytes;
	size_t body_bytes;
	cluster_answer *answer; // of an instance's: whom `done` answers, with `context`
	// Called once. result: checked, NULL unless status is STATUS_OK; body: as in net_stream_handler.message.
	void (*done)(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		     const struct error *error);
	struct tenant_call client; // whom `done` answers; its done is NULL where nobody waits
	struct item *item;         // that it makes or ends
	// In memory that the worker shares, where what is written lies, or the answer's body is to lie; NULL: it comes.
	struct net_frame *place;
	bool noted;                             // a read that the worker was asked for by a note there
	const struct cluster_device *from, *to; // of a copy from one device to another; else NULL
	int64_t told_ms;                        // of a copy inside the worker: when it was last told how far it is
	void *context;
	// while it waits
	unsigned device;
	struct json *params;
	struct net_frame *holder; // or, without one, `kept` holds the body
	uint8_t *kept;
	const uint8_t *body;
	size_t waiting_bytes, params_bytes;
	size_t unanswered_bytes; // once it is sent: its part of worker->unanswered_bytes
};

struct worker_queue {
	struct worker_call *first, **last;
	size_t count;
};

enum device_state { DEVICE_WANTED, DEVICE_OPENING, DEVICE_OPEN };

struct worker_device {
	const struct cluster_device *device;
	enum device_state state;
	uint64_t awaited; // as in struct holding, of this worker
};

struct worker {
	struct worker *next; // of its tenant
	struct tenancy *tenants;
	struct tenant *tenant;
	struct instance_worker *instance; // whose it is; NULL: a session's
	char worker_id[TENANT_ID_BYTES], key[WORKER_KEY_BYTES], node_id[STORE_ID_BYTES], backend[16];
	bool opened, ended;     // the node has answered tenant.open; it is no tenant's any more
	bool away;              // an instance's: its node is cut off, and may come back with it
	bool failed;            // it has ended of itself, or by its own fault
	bool restored;          // a server before this one had it, and has stored key_sha256, of the key's text
	bool own_code;          // it has run or may run kernels that its user has written
	bool left;              // it is to outlive this server: its node is not told that it ends
	struct error fault;     // why its process is gone, while its line may still tell what it said before
	struct json *opens;     // an instance's: tenant.open's params, until what ends on its node has ended; else NULL
	struct arrival *stream; // NULL before link.hello
	struct net_timer start_limit;
	uint8_t key_sha256[TENANT_SHA256_BYTES];
	int64_t asked_ms;
	struct worker_device devices[LIMIT_WORKER_DEVICES];
	unsigned device_count;
	unsigned asks;          // of the node, under way, and callers who use it; the struct lives until they are done
	struct rpc rpc;         // what is sent and not answered
	struct net_frame *body; // of the message that is being taken; NULL: it has none
	bool failing;           // its calls are being ended; one by one, by nothing that it has answered
	bool refused;           // its line did not take the last call
	struct worker_queue waiting;
	size_t waiting_bytes;
	size_t unanswered_bytes; // of bodies that a browser was sent: it receives all, whether it has room or not
	int64_t worked_ms;       // when it was called or answered last; steady
	uint32_t next_handle;
	struct item *items, **last_item;
	bool held; // its stream is not read, because a connection of the tenant is full
};

// How a worker is reached: by a Unix stream (stream_unix.c), or by a WebSocket that its node relays (stream_node.c).
struct line {
	// Errors: STATUS_LIMIT_EXCEEDED (its queue is full; nothing was sent), STATUS_OUT_OF_MEMORY.
	enum status (*send)(struct line *line, const struct net_parts *message);
	size_t (*queued)(const struct line *line);
	void (*pause)(struct line *line); // stop and go on reading
	void (*resume)(struct line *line);
	int (*take_fd)(struct line *line);   // net_stream_take_fd; NULL: by this line none can come
	void (*destroy)(struct line **line); // close now; what is queued is dropped, and nothing is told any more
};

// Memory that a worker shares, while much is read and written.
struct sharing {
	struct net_shared *memory; // NULL: none
	bool asked, waits;         // for it; for the answer
	bool used;                 // since the timer was last started
	size_t noted;              // calls that were asked for by notes and are not answered
	uint64_t bytes;            // that it would have been good for
	struct net_timer idle;     // runs while `asked`
};

// A worker that has come, by whatever line.
struct arrival {
	struct arrival *next, **link;
	struct tenancy *tenants;
	struct line *line; // NULL: it has ended, and why is still to be heard
	struct sharing sharing;
	uint64_t notes, bells;        // ever: answers that were notes, and empty messages to wake the server for them
	struct worker *worker;        // NULL until it has said whose it is, or
	struct hop *hop;              // of which hop it is an end
	bool linked;                  // it has
	bool tab;                     // it came without a certificate: a browser tab's
	char node_id[STORE_ID_BYTES]; // by whose certificate it came; "": this machine's owner's; of a tab its address
	struct net_timer deadline;    // for that; or for why it ended; or for what it still says
	int64_t waited_ms;            // for why it ended, when the deadline comes
};

struct tenant {
	struct tenant *next, **link;
	struct tenancy *tenants;
	struct token *token;
	char session_id[TENANT_ID_BYTES];
	struct worker *workers;
	struct tenant_conn *conns;
	struct relay *relays; // copies between workers
	struct compilation *compilations;
	unsigned compilations_count;
	unsigned full_conns, allocations, modules, relay_count;
	bool over;                     // being destroyed
	char (*lost)[TENANT_ID_BYTES]; // (LIMIT_LOST_IDS), a ring; NULL until something was lost
	size_t lost_count;             // ever
};

struct tenancy {
	struct tenancy_params params;
	struct net_stream_listener *listener;
	struct tenant *tenants;
	struct arrival *arrivals; // all
	unsigned not_linked;      // of them, without a worker and no end of a hop
	struct hop *hops;
	unsigned hop_count;
	struct closing *closings; // instances' workers whose processes are not known to be gone yet
	struct item *table[ITEM_SLOTS];
	struct holding *holdings;
	struct item *fresh;     // newest first
	struct json *freed;     // that an event is to tell: [{id, token_id}]
	uint8_t mask_key[32];   // of the ids that others see
	struct event_view view; // of such events
	size_t fresh_count;
	struct net_timer tell;
	uint64_t next_serial;
	struct buffer text; // a head being printed
	struct tenancy_stats stats;
};

// ---- what others see (mask.c) ----

enum status mask_begin(struct tenancy *tenants); // Errors: STATUS_UNAVAILABLE: no random numbers
void mask_others(const struct tenancy *tenants, struct json *allocations, const char *token_id);

// ---- items (items.c) ----

// The room that an allocation needs, taken before the worker is asked. Errors: STATUS_LIMIT_EXCEEDED,
// STATUS_OUT_OF_MEMORY.
struct item_params {
	struct worker *worker;
	enum item_kind kind;
	unsigned device;
	uint64_t bytes;
	const char *label;
};
enum status item_create(struct item **out, const struct item_params *params, struct error *error);
// Give it an id and let it be named. Errors: STATUS_UNAVAILABLE (no random bytes).
enum status item_publish(struct item *item);
void item_hide(struct item *item); // it can be named no more
void item_lose(struct item *item); // the same, and it is answered device_lost from now on
void item_destroy(struct item **item);
// Find the item that a call names. Errors: STATUS_NOT_FOUND, STATUS_DEVICE_LOST.
enum status item_find(struct item **out, const struct tenant *tenant, enum item_kind kind, const char *id,
		      struct error *error);
struct item *item_find_any(const struct tenancy *tenants, const char *id); // whoever's
const struct cluster_device *item_device(const struct item *item);
// The bytes held in the memory of this device, which it may share with others of its node; and a change of that number.
uint64_t held_bytes(const struct tenancy *tenants, const struct cluster_device *device);
enum status held_change(struct tenancy *tenants, const struct cluster_device *device, uint64_t change);
// The bytes that other workers were asked for in the memory of the worker's device at `place` and may not have touched
// yet; 0 if that is not the machine's own memory.
uint64_t awaited_bytes(const struct worker *worker, unsigned place);
// Whether an allocation of `bytes` fits its token, its device and the memory that the device shares.
enum status item_check_room(const struct tenant *tenant, const struct cluster_device *device, uint64_t bytes,
			    struct error *error);

// Say what a call is about.
void about_device(const struct tenant_call *call, const struct cluster_device *device, uint64_t bytes);
void about_item(const struct tenant_call *call, const struct item *item, uint64_t bytes);
// Ask the worker to end it; `client` NULL: nobody waits.
enum status allocation_drop(struct item *item, const struct tenant_call *client, struct error *error);
enum status module_drop(struct item *item, const struct tenant_call *client, struct error *error);

// ---- workers (worker.c) ----

// The worker for this device, which may still be starting, and the device's place in it. Errors: STATUS_UNAVAILABLE,
// STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status worker_for(struct worker **out, unsigned *place, struct tenant *tenant, const struct cluster_device *device,
		       struct error *error);
// One of its own, which is still starting. Errors: the same.
struct worker_start_params {
	const char *node_id, *backend;
	const char *device_id;             // of a session's: what it is wanted for first; else NULL
	const char *model_path, *model_id; // of an instance's one of them; else NULL
	const char *draft_path, *draft_id; // the same of its draft model, if it has one
	bool ring;
};
enum status worker_start(struct worker **out, struct tenant *tenant, const struct worker_start_params *params,
			 struct error *error);
struct worker *worker_by_id(const struct tenancy *tenants, const char *worker_id);
void worker_let_go(struct worker *worker); // free it, if it has ended and nobody uses it
// It is linked or opened now: go on.
void worker_advance(struct worker *worker);
// How a worker ends. `fault`: what its calls are answered; what was lost is told with its message.
struct worker_end_params {
	const struct error *fault;
	bool gone; // its process is known to be: the node need not be told
};
void worker_end(struct worker *worker, const struct worker_end_params *params);
// Tell its node to end it. waited_for: workers of instances start there once its process is gone, or soon after.
void worker_tell_closed(struct tenancy *tenants, const char *node_id, const char *worker_id, bool waited_for);
void workers_forget_closings(struct tenancy *tenants); // what nodes still answer is nobody's
// The same, with STATUS_DEVICE_LOST and this text.
void worker_lose(struct worker *worker, const char *why);
void worker_fail(struct worker *worker, const char *why); // the same, and it is its own fault
// Its line has told all that it was going to: it ends, with what its node has said of that, if it has.
void worker_told_all(struct worker *worker);

// The node of an instance's worker is cut off: its stream is gone, its calls are answered STATUS_DEVICE_LOST, and for
// LIMIT_AWAY_MS it may come back.
void worker_away(struct worker *worker, const char *why);

// ---- workers that outlive a server (outlive.c) ----

// Take up a worker that an earlier server had started and that is away. Errors: as worker_start's,
// STATUS_INVALID_PARAMS.
enum status worker_restore(struct worker **out, struct tenant *tenant, const struct worker_start_params *params,
			   const struct instance_worker_left *left, struct error *error);
// It is no worker of this server any more, and goes on.
void worker_leave(struct worker *worker);
// Whether this is its key.
bool worker_knows_key(const struct worker *worker, const char *key);

// ---- workers of instances (instance.c) ----
void instance_worker_away(struct instance_worker *instance, const char *why);
void instance_worker_back(struct instance_worker *instance);
void instance_worker_ready(struct instance_worker *instance);
void instance_worker_notice(struct instance_worker *instance, const struct message *message); // checked; may end it
void instance_worker_ended(struct instance_worker *instance, const struct error *fault);

// ---- calls (calls.c) ----

struct worker_send_params {
	const char *method;
	struct json *params;                  // taken, also on failure; or, of a call that does not wait,
	const struct message_number *numbers; // (number_count) in their place
	size_t number_count;
	struct net_frame *holder;
	const uint8_t *body;
	size_t body_bytes;
	size_t params_bytes; // that params take while they wait, where they are large
	bool waits;          // for `device` to be open
};
// Send or keep a call, which is taken on STATUS_OK. Errors: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status worker_send(struct worker *worker, struct worker_call *call, const struct worker_send_params *params,
			struct error *error);
// An rpc_done: a call that was sent is over.
void worker_call_over(void *context, enum status status, const struct json *result, const struct error *error);
struct worker_call *worker_call_create(const struct tenant_call *client,
				       void (*done)(struct worker_call *call, enum status status,
						    const struct json *result, struct net_frame *body,
						    const struct error *error));
void worker_call_destroy(struct worker_call **call);
// Of a worker whose tenants are set. last_id: of the last call to it before; 0: there was none.
void worker_calls_init(struct worker *worker, int64_t last_id);
// Send what waited for this place, or answer it with an error.
void worker_release(struct worker *worker, unsigned place, const struct error *error);
// Answer every call with this error.
void worker_fail_calls(struct worker *worker, const struct error *error);
// Hold the client's connection if the worker has enough to do; let connections go on if it has room.
void worker_hold(struct worker *worker, struct tenant_conn *conn);
void worker_relax(struct worker *worker);
// Answer the client of a call.
void call_answer(const struct worker_call *call, enum status status, struct json *result, const struct error *error);

// What a worker says by itself: an rpc_serve, its argument is the worker.
enum status worker_moved(void *worker, const struct message *message, struct error *error);

// Send a notification to one connection, or to all of a tenant. `params` is taken.
void tenant_notify(struct tenant *tenant, struct tenant_conn *only, const char *method, struct json *params);

// ---- streams (stream.c) ----
void streams_destroy(struct tenancy *tenants);
// To a worker that has a stream. Errors: those of struct line.
enum status stream_send(struct worker *worker, const struct net_parts *message);
size_t stream_queued(const struct worker *worker);
void stream_drop(struct worker *worker); // close a worker's stream
// Keep reading the last messages of a worker whose process is gone. False: there is no stream to read.
bool stream_outlasts(struct worker *worker);
void stream_hold(struct worker *worker); // stop or go on reading it, as the tenant's connections bid

// The events of a line; each of these functions may destroy it. `tab`: as worker_link_create has it. NULL: there is no
// room, and `line` stays the caller's.
// The message's body is its holder, or is absent.
struct arrival *arrival_create(struct tenancy *tenants, struct line *line, const char *node_id, bool tab);
void arrival_message(struct arrival *arrival, const struct net_parts *message);
void arrival_broken(struct arrival *arrival, const char *why); // what came is no message
void arrival_drained(struct arrival *arrival);
void arrival_closed(struct arrival *arrival, const char *why); // by itself; the line is not the arrival's any more

void arrival_drop(struct arrival *arrival); // close it; nothing is told any more

// Ends of hops (hop.c). False: no such end is awaited, and nothing was done. Each of the others may destroy it.
bool hop_relay_greeted(struct arrival *arrival, const struct json *params); // hop.hello, checked
void hop_relay_message(struct arrival *arrival, const struct net_parts *message);
void hop_relay_drained(struct arrival *arrival);
void hop_relay_lost(struct arrival *arrival, const char *why); // its line is gone, or breaks the protocol

// ---- memory that a worker of this machine shares (sharing.c) ----

// Room there for what is to be read or written, and where it is; NULL: it goes by the stream.
struct net_frame *sharing_place(struct worker *worker, size_t bytes, uint64_t *at);
void sharing_finish(struct arrival *arrival);
// Ask for a read by a note, which spares both ends a message; the call is taken then. False: it is to be sent, since
// something else is under way that it must come after.
bool sharing_ask(struct worker *worker, struct worker_call *call, const struct net_shared_note *read);

// The socket of this machine's workers (stream_unix.c).
enum status stream_unix_listen(struct tenancy *tenants, struct error *error);

// The channel between two workers, past the server (direct.c).
struct direct_params {
	struct worker *from, *to;
	bool link; // between two nodes, by their direct link; else within one
	uint32_t from_handle, to_handle;
	uint64_t from_offset, to_offset, bytes;
	// Both workers have their ends: nothing is moved here. NULL: memory is. Then the workers may go at any time.
	void (*opened)(void *context);
	// The last call, and never from inside direct_open: so many bytes were written, from the beginning on. Fewer
	// than asked: it did not come about, or has broken off. error: what the workers say of their memory, else NULL.
	void (*ended)(void *context, uint64_t done, const struct error *error);
	void *context;
};
enum status direct_open(struct direct **out, const struct direct_params *params);

// CUDA C that a node compiles (compile.c), until it is loaded as PTX. Errors: STATUS_INVALID_PARAMS (no text),
// STATUS_LIMIT_EXCEEDED, STATUS_UNAVAILABLE.
enum status compilation_start(const struct tenant_call *client, const struct cluster_device *device,
			      struct error *error);
void compilations_end(struct tenant *tenant, const char *why); // answer all, STATUS_DEVICE_LOST

// Copy between two workers (relay.c).
struct relay_params {
	const struct tenant_call *call;
	const struct item *from, *to;
	uint64_t from_offset, to_offset, bytes;
};
enum status relay_start(const struct relay_params *params, struct error *error);
// Tell the client of a copy how far it is.
void copy_tell(const struct tenant_call *client, uint64_t done, uint64_t total);
// memory.moved, checked: of a copy inside the worker, which is under way; of one between two.
void copy_moved(struct worker_call *call, const struct json *params);
void relays_moved(struct tenant *tenant, const struct worker *worker, const struct json *params);
void relays_lose_worker(struct tenant *tenant, const struct worker *worker, const struct error *fault);
