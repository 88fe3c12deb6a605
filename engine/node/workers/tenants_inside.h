/* What tenants.c, tenants_watch.c and tenants_spares.c share. See tenants.h.
 *
 * A spare is a tenant without an id: it is started, watched and reaped as every other, and becomes an ordinary one when
 * it gets its session. It never has another. */
#pragma once
#include "engine/node/workers/handed.h"
#include "engine/node/workers/process.h"
#include "engine/node/workers/refusals.h"
#include "engine/node/workers/spares.h"
#include "engine/node/workers/tenants.h"
#include "engine/node/workers/vitals.h"

enum {
	TENANT_OPEN_MS = 10000,
	TENANT_DEVICE_MS = 20000, // as for a device that is verified
};

enum request_kind {
	REQUEST_UNKNOWN,
	REQUEST_OPEN,
	REQUEST_INSTANCE,
	REQUEST_WARM, // of a spare: open the device, or see whether it still answers
	REQUEST_BIND, // a spare gets its session
	REQUEST_DEVICE,
	REQUEST_CHANNEL,
	REQUEST_PING,
	REQUEST_CLOSE,
};

struct request {
	struct request *next;
	enum request_kind kind;
	int64_t id, began_ns, due_ms;
	struct uplink_call *call; // NULL for a ping
	// Of a ping that was not answered by the next look: what the worker did then, and when.
	struct vitals seen;
	int64_t seen_ms;
	bool excused; // it was told why the answer may take longer
};

struct tenant {
	struct tenant *next;
	struct tenants *all;
	char worker_id[65];
	enum backend_kind backend;
	struct process process;
	struct net_watch *socket;
	int socket_fd;             // owned by the watch: nobody's once that is NULL
	struct refusals *refusals; // of its system calls; NULL: its filter has no other end
	struct relay *relay;       // of its stream; NULL: it has the server's socket, or the relay is gone
	struct hops_ring *ring;    // NULL: it is no part of several
	struct buffer in;
	struct request *requests;
	size_t request_count;
	int64_t last_id;
	bool has_model; // it is a model instance's
	bool open;      // worker.open, or worker.instance, was answered; of what was a spare also worker.bind
	bool spare;     // it waits for a session, and has no id yet
	bool used;      // it has opened a device for its session
	struct spare_place *place;         // of a spare, unless it was given up
	int64_t warm_ms;                   // of a spare: when its device last answered; 0: it is not open yet
	double start_ms;                   // how long it took to start; negative: it was a spare
	char device_id[IDENTITY_ID_BYTES]; // which a session used first
	struct json *opened;               // of a spare: what it answered to worker.open
	bool unwanted;                     // the server asked for its end, or knows of it
	int64_t busy_until_ms; // steady clock: until when it has said that it does not answer; 0: it has not
	int64_t away_ms;       // steady clock: since when it is kept without a connection to the server; 0: it has one
	char fault[96];        // why it was killed; "" if it was not, or not for a fault
};

struct tenants {
	struct tenants_params params;
	struct sockaddr_un stream;
	char cache[4096];
	struct tenant *list;
	size_t count;
	struct net_timer look; // runs while there are any, or spares are wanted
	int64_t looked_ms;     // steady clock: when it last ran
	struct spares spares;
	bool sandbox_told;
	bool connected; // to the server
};

// ---- tenants.c ----

const char *tenant_method(enum request_kind kind); // as the contract names it
double tenant_elapsed_ms(int64_t began_ns);
// NULL, with the error: too many, or no memory.
struct request *tenant_add_request(struct tenant *tenant, enum request_kind kind, int64_t patience_ms,
				   struct error *error);
void tenant_remove_request(struct tenant *tenant, struct request *request);
// `params` is taken. `passed`: a descriptor that the worker is to have, or -1.
void tenant_send(struct tenant *tenant, const struct request *request, struct json *params, int passed);
void tenant_kill_for(struct tenant *tenant, const char *fault);
// What a worker could not give up, once: it is so for every worker of this machine.
void tenant_tell_sandbox(struct tenants *tenants, const struct json *result);
// Whether the device can be used through the worker's back end now.
enum status tenant_check_device(const struct device_record *record, enum backend_kind kind, struct error *error);
struct tenant *tenant_add(struct tenants *tenants, const char *worker_id, enum backend_kind backend);
// Start its process. A failure after which it runs all the same kills it; its end follows.
enum status tenant_start(struct tenant *tenant, const struct handed *handed, struct error *error);
// The call that makes a worker what it is to be. `given`: the server's; NULL: a spare.
void tenant_send_open(struct tenant *tenant, const struct request *request, const struct json *given);
void tenant_release(struct tenant *tenant, const struct error *error, int *patience_ms);

// Read what has come from it. False once there is nothing more to come.
bool tenant_take_answers(struct tenant *tenant);

// ---- tenants_watch.c ----

// Look after tenants and spares from now on, if there are any.
void tenants_look(struct tenants *tenants);
// It has said that it is about to do what keeps it from answering for so long (ms).
void tenant_busy(struct tenant *tenant, int64_t ms);

// ---- tenants_spares.c ----

// Start one, if one is wanted.
void spare_start(struct tenants *all, int64_t now_ms);
// One that waits: whether it is to wait on. No other tenants are touched.
void spare_look_at(struct tenant *tenant, int64_t now_ms);
// What one that waits answers; its pings are as everybody's.
void spare_settle(struct tenant *tenant, struct request *request, struct json *result, const struct error *error);
// The one for this session, if it is ready: from here on it is that session's. NULL: there is none.
struct tenant *spare_take(struct tenants *tenants, const struct uplink_call *call);
// Give it what makes it the session's: the limits that the server has `given`, and the stream.
void spare_bind(struct tenant *tenant, const struct request *request, const struct json *given, int stream);
// A session has opened its first device: how long it waited says whether spares are wanted.
void spare_note_use(const struct tenant *tenant, double opened_ms);
