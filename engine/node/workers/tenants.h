/* Workers of sessions and of model instances: the node starts one for each tenant.open, connects it to the server, and
 * watches it.
 *
 * A worker has two sockets: on 3 the node's, over which this calls worker.open, worker.device and worker.ping; on 4 a
 * stream that the node dialled to the server and on which it has said which worker this is. What a session does goes
 * over the second and never through the node, unless the server is on another machine: then the node relays (relay.h).
 *
 * A worker ends by SIGKILL and in no other way that is planned: when the server asks for it, when it leaves a call
 * unanswered (a ping for 5 s), and when the connection to the server ends, since no session reaches it any more. One of
 * a model instance is kept for LIMIT_AWAY_MS then, if the server is on another machine: it may only have been cut off
 * or be starting anew, and a model takes long to load. An end that the server did not ask for is told it, in words. A
 * session's worker sees all devices of its back end, not one alone as the prober's do (struct backend's `narrow`):
 * copies between devices need them in one process. A model instance's worker is given its model's file, which this
 * opens for reading: by its path for a server on this machine only, since what lies on the disks of another is not that
 * server's to read; else out of the node's cache (models.h). One that is a part of several is given a ring (hops.h). It
 * sees all devices of its back end, too, and is told which of them to use over its stream. Thread: the loop's. Owns the
 * processes; does not own the table. */
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
// Kills and reaps all, half a second at most. Before the uplink goes: calls under way still belong to it.
void tenants_destroy(struct tenants **tenants);
// The calls of the server. Each takes its call and answers it.
void tenants_open(struct tenants *tenants, struct uplink_call *call);
void tenants_device(struct tenants *tenants, struct uplink_call *call);
void tenants_close(struct tenants *tenants, struct uplink_call *call);
// A worker of the prober's opened this device and verified it in so many ms: a first session may have to wait as long.
// A spare that is there already is kept no longer for it.
void tenants_verified(struct tenants *tenants, const struct device_record *record, enum backend_kind backend,
		      double took_ms);
// As hops_params.hand_over.
void tenants_channel(struct tenants *tenants, struct uplink_call *call, const struct hops_channel *channel);
// Whether a session or a model instance has a worker of this back end; one that waits for a session is nobody's.
bool tenants_use(const struct tenants *tenants, enum backend_kind backend);
// The server is gone: kill all but those that are kept.
void tenants_lost(struct tenants *tenants);
// Those that are kept, for node.register (an array of ids); NULL: none.
struct json *tenants_kept(const struct tenants *tenants);
// The server has taken the registration: it ends those that it does not want, the others are connected to it again.
void tenants_back(struct tenants *tenants);
