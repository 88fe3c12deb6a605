/* What tenants.c, tenants_calls.c, tenants_watch.c and tenants_spares.c share. See tenants.h.
 *
 * A spare is a tenant without an id: it is started, watched and reaped like any other, and becomes an ordinary one when
 * it gets its session. It never gets a second one. */
#pragma once
#include "common/base/limits.h"
#include "common/wire/rpc.h"
#include "engine/node/workers/handed.h"
#include "engine/node/workers/process.h"
#include "engine/node/workers/refusals.h"
#include "engine/node/workers/spares.h"
#include "engine/node/workers/tenants.h"
#include "engine/node/workers/vitals.h"

enum {
	TENANT_OPEN_MS = 10000,
	TENANT_DEVICE_MS = 20000,                // as for a device that is verified
	TENANT_CALLS = LIMIT_WORKER_DEVICES + 8, // to one worker, that wait
};

// A call to a worker that waits for its answer: the context of its rpc_done, which frees it (tenant_answer). Or a
// tenant.close, which waits for the end of the process.
struct ask {
	struct ask *next; // of tenant->closing
	struct tenant *tenant;
	struct uplink_call *call; // of the server, which the answer goes to; NULL: none
	int64_t began_ns;
};

struct tenant {
	struct tenant *next;
	struct tenants *all;
	char worker_id[65];
	enum backend_kind backend;
	struct process process;
	struct net_watch *socket;
	int socket_fd;             // owned by the watch; unused once that is NULL
	struct refusals *refusals; // of its system calls; NULL: its filter has no other end
	struct relay *relay;       // of its stream; NULL: it has the server's socket, or the relay is gone
	struct hops_ring *ring;    // NULL: it is no part of several
	struct buffer in;
	struct rpc rpc;      // closed once the process has ended
	struct silence ping; // there is one at a time
	struct ask *closing; // what waits for the end of the process
	unsigned closing_count;
	bool warming;              // a spare has not answered worker.warm yet
	bool has_model;            // it is a model instance's
	bool open;                 // worker.open or worker.instance was answered; for a former spare also worker.bind
	bool spare;                // it waits for a session, and has no id yet
	bool used;                 // it has opened a device for its session
	struct spare_place *place; // of a spare, unless it was given up
	int64_t warm_ms;           // of a spare: when its device last answered; 0: it is not open yet
	double start_ms;           // how long it took to start; negative: it was a spare
	char device_id[IDENTITY_ID_BYTES]; // which a session used first
	struct json *opened;               // for a spare: the answer to worker.open
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

void tenant_kill_for(struct tenant *tenant, const char *fault);
// Log once the steps of the sandbox that a worker could not take; they are the same for all workers of this machine.
void tenant_tell_sandbox(struct tenants *tenants, const struct json *result);
// Whether the device can be used through the worker's back end now.
enum status tenant_check_device(const struct device_record *record, enum backend_kind kind, struct error *error);
struct tenant *tenant_add(struct tenants *tenants, const char *worker_id, enum backend_kind backend);
// Start its process. A failure after which it runs all the same kills it; its end follows.
enum status tenant_start(struct tenant *tenant, const struct handed *handed, struct error *error);
// worker.open or worker.instance, for the server's `call`; NULL: worker.open of a spare. As tenant_call.
enum status tenant_call_open(struct tenant *tenant, struct uplink_call *call, struct error *error);
void tenant_release(struct tenant *tenant, const struct error *error, int *patience_ms);

// ---- tenants_calls.c ----

void tenant_calls_init(struct tenant *tenant);
double tenant_elapsed_ms(int64_t began_ns);
// A call to the worker. One that does not take it is killed, and the end of its process ends the call.
struct tenant_ask {
	const char *method;
	struct json *params; // taken, also on failure
	int64_t patience_ms; // without an answer by then it is killed; 0: somebody else looks after it
	rpc_done *done;      // its context: a struct ask
	struct uplink_call *call;
	int passed; // a descriptor that the worker is to have, or -1
};
// Errors: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY; `call` is still the caller's then.
enum status tenant_call(struct tenant *tenant, const struct tenant_ask *ask, struct error *error);
// The call is answered: pass the answer to the server, if the server asked (`result` is taken), and free it.
void tenant_answer(struct ask *ask, struct json *result, const struct error *error);
// Read the messages that have come. False once there will be no more.
bool tenant_take_answers(struct tenant *tenant);

// ---- tenants_watch.c ----

// Look after tenants and spares from now on, if there are any.
void tenants_look(struct tenants *tenants);
// The worker has announced that it will not answer for so long (ms).
void tenant_busy(struct tenant *tenant, int64_t ms);

// ---- tenants_spares.c ----

// Start one, if one is wanted.
void spare_start(struct tenants *all, int64_t now_ms);
// Decide whether a spare is to wait on. No other tenants are touched.
void spare_look_at(struct tenant *tenant, int64_t now_ms);
// The answer to its worker.open: an rpc_done.
void spare_opened(void *context, enum status status, const struct json *result, const struct error *error);
// The spare for this session, if it is ready: from now on it is that session's. NULL: there is none.
struct tenant *spare_take(struct tenants *tenants, const struct uplink_call *call);
// A session has opened its first device: how long it waited says whether spares are wanted.
void spare_note_use(const struct tenant *tenant, double opened_ms);
