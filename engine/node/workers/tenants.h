/* Workers of sessions and of model instances: the node starts one for each tenant.open, connects it to the server, and
 * watches it.
 *
 * A worker has two sockets: 3 is the node's, for calls of worker.open, worker.device and worker.ping; 4 is a stream to
 * the server, which the node dialled and on which it has named the worker. The calls of a session use the second and
 * never pass the node, unless the server is on another machine: then the node relays them (relay.h).
 *
 * A worker is always ended by SIGKILL: when the server asks for it, when it leaves a call unanswered (a ping for 1.5
 * s), and when the connection to the server ends, because then no session can reach it. A model instance's worker is
 * kept for LIMIT_AWAY_MS in this case, if the server is on another machine: the server may only be cut off or
 * restarting, and a model takes long to load. The server is notified of an end that it did not ask for, with the
 * reason. A session's worker sees all devices of its back end, not only one as the prober's workers do (struct
 * backend's `narrow`), because copies between devices need them in one process. A model instance's worker gets its
 * model's file, which this code opens for reading: by its path for a server on this machine only, because another
 * machine's server must not read the files here; else from the node's cache (models.h). A part of several gets a ring
 * (hops.h). It sees all devices of its back end, too, and learns over its stream which of them to use. Thread: the
 * loop's. Owns the processes; does not own the table. */
#pragma once
#include "common/wire/contract.h"
#include "engine/device/table.h"
#include "engine/node/links/hops.h"
#include "engine/node/links/relay.h"
#include "engine/node/models/models.h"
#include "engine/node/uplink/uplink.h"

struct tenants;

struct tenants_params {
	struct net_loop *loop;
	const struct contract *contract;
	struct device_table *table;
	const char *stream_path; // the server's socket for workers; copied
	struct relays *relays;   // for workers of a server on another machine; NULL: they have that socket
	struct hops *hops;
	struct node_models *models;
	const char *cache; // the folder of compiled kernels; copied
	int spares;        // as in spares.h
	// A worker that was open ended, unasked.
	void (*ended)(void *arg, const char *worker_id, const char *message);
	void *arg;
};

// Errors: STATUS_OUT_OF_MEMORY, STATUS_INVALID_PARAMS (a socket path that is too long).
enum status tenants_create(struct tenants **out, const struct tenants_params *params, struct error *error);
// Kills and reaps all workers, for at most half a second. Call it before the uplink is destroyed: calls in progress
// still belong to that.
void tenants_destroy(struct tenants **tenants);
// The calls of the server. Each takes its call and answers it.
void tenants_open(struct tenants *tenants, struct uplink_call *call);
void tenants_device(struct tenants *tenants, struct uplink_call *call);
void tenants_close(struct tenants *tenants, struct uplink_call *call);
// A worker of the prober's opened this device and verified it in so many ms: a first session may have to wait as long.
// A spare that is there already is kept no longer for it.
void tenants_verified(struct tenants *tenants, const struct device_record *record, enum backend_kind backend,
		      double took_ms);
// hops_params.hand_over.
void tenants_channel(struct tenants *tenants, struct uplink_call *call, const struct hops_channel *channel);
// Whether a session or a model instance has a worker of this back end; a spare does not count.
bool tenants_use(const struct tenants *tenants, enum backend_kind backend);
// The same of any back end.
bool tenants_any(const struct tenants *tenants);
// The server is gone: kill all workers except those that are kept.
void tenants_lost(struct tenants *tenants);
// The ids of kept workers, for node.register (an array); NULL: none.
struct json *tenants_kept(const struct tenants *tenants);
// The server has accepted the registration: it ends the workers that it does not want, and the others are connected to
// it again.
void tenants_back(struct tenants *tenants);
