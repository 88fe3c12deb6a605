/* Models that are loaded, or being loaded: placed on devices of any nodes, in parts (parts.h), each a worker of its
 * own.
 *
 * An instance holds its model (server/library/models.h) and the memory of its devices (server/tenants) from the moment
 * it is placed, so that neither allocations nor other instances take what it needs. Messages of its workers are checked
 * against schema/node.json. An instance that cannot be loaded has failed, with the reason. A ready instance that loses
 * a worker, a device, a node or the path between two of them pauses, is reconnected or placed again, and its requests
 * continue (instances_recover.c, requests.h). The wanted instances are in state.db: a server that starts restores them
 * under their ids (instances_store.c); requests that were in progress have ended with an error then. Every change is
 * published on the topic placement. Thread: the loop's. */
#pragma once
#include "server/cluster/topology/topology.h"
#include "server/library/models.h"
#include "server/security/tokens/tokens.h"
#include "server/tenants/tenants.h"
#include "server/usage/usage.h"

struct instances;
struct instance;

struct instances_params {
	struct net_loop *loop;
	const struct contract *contract, *api_contract; // CONTRACT_NODE, CONTRACT_API
	struct topology *topology;
	struct cluster *cluster;
	struct tenancy *tenants;
	struct models *models;
	struct store *store;
	struct events *events;
	struct audit *audit;
	struct usage *usage;
	double placement_timeout_s; // of a search, where nothing else is asked for
	double headroom;            // the part of each device's memory that stays free; < 0: placement_reserve's
	int64_t pause_ms;           // that requests wait for an instance that has no place
	int64_t give_way_ms;        // that an instance is idle before it may be evicted for another; < 0: none may
	int64_t line_tokens;        // that prompts which wait for a model are given as, together; and all embeddings
	int64_t tokens_per_minute;  // that each token may have computed; 0: no limit
	bool take_better;           // instances move by themselves where a device comes that makes them faster
	bool speculate;             // steps on processors may have rows for tokens that a request's text foresees
	int64_t (*now_ms)(void *now_context); // the clock, in milliseconds; NULL: clock_steady_ms. A test has its own
	void *now_context;
};
enum status instances_create(struct instances **out, const struct instances_params *params, struct error *error);
// Errors of create: also the store's.
// instances_shut_down: requests are answered; workers end, except those that the next server can adopt.
void instances_shut_down(struct instances *instances);
void instances_destroy(struct instances **instances);

// The methods of schema/api.json; `params` is checked against it. placement.preview: `done` gets a Placement, which it
// takes. Errors of it: STATUS_NOT_FOUND, STATUS_CONFLICT (the model is not ready), STATUS_INVALID_PARAMS (malformed
// pins), STATUS_UNAVAILABLE (no device, one that cannot be used; its connection is gone). At once, and then `done` is
// not called: STATUS_LIMIT_EXCEEDED (of all, or LIMIT_PREVIEWS of this asker), STATUS_OUT_OF_MEMORY,
// STATUS_UNAVAILABLE.
typedef void instances_previewed(void *context, enum status status, struct json *placement, const struct error *error);
struct instances_preview {
	const struct json *params;
	const void *asker, *connection; // whose previews are counted; over which it came: compared, nothing else
	instances_previewed *done;
	void *context;
};
enum status instances_preview(const struct instances *instances, const struct instances_preview *preview,
			      struct error *error);
void instances_leave(const struct instances *instances, const void *connection); // it is gone: so are its previews
// Predict the placements of models that are not in the library, one after the other, each with little time. `done` is
// called once, later, with the result for each: `found` (count) is valid during the call. When the connection ends, no
// further one is searched for, and `done` is called soon. Errors, after which it is not
// called: STATUS_OUT_OF_MEMORY, STATUS_UNAVAILABLE (no shape is given), and placement.preview's immediate ones.
enum { INSTANCES_WHY_BYTES = 400 };
enum instances_fit { FIT_UNKNOWN, FIT_DEVICE, FIT_DEVICES, FIT_NO };
struct instances_foreseen {
	const struct model_shape *shape; // NULL: nothing is known of it, and it is left out (FIT_UNKNOWN)
	const struct model_sizes *sizes;
	// The result:
	enum instances_fit fit;
	double tokens_per_s;           // of one request; < 0: not known
	uint64_t missing_bytes;        // with FIT_NO
	char why[INSTANCES_WHY_BYTES]; // in words
};
struct instances_foresight {
	struct instances_foreseen *models; // (count): shape and sizes are read, and outlive the search
	size_t count;
	const void *asker, *connection; // as of a preview
	void (*done)(void *context, const struct instances_foreseen *found, size_t count);
	void *context;
};
enum status instances_foresee(const struct instances *instances, const struct instances_foresight *foresight,
			      struct error *error);
// instance.create: `done` is called when it is placed and stored; loading continues by itself. Further errors:
// STATUS_OUT_OF_MEMORY (it fits nowhere, with the missing memory), STATUS_LIMIT_EXCEEDED, STATUS_CONFLICT (it was
// deleted meanwhile), the store's; immediate ones as above.
typedef void instances_started(void *context, enum status status, const struct instance *instance,
			       const struct error *error);
enum status instances_start(struct instances *instances, const struct json *params, instances_started *done,
			    void *context, struct error *error);
// instance.delete, once the row is removed (store_remove_instance): at once; its requests are answered.
enum status instances_stop(struct instances *instances, const char *instance_id, struct error *error);

// instance.move: search for a faster place when it is ready, and take it if there is one. Errors: STATUS_NOT_FOUND,
// STATUS_CONFLICT (it has failed, or is pinned). With `format`, not NULL: place it again with its weights of 16 and 32
// bits in that format, or with "file" in that of the file. If there is no room for that it stays as it is, and
// state_reason says so; a paused instance searches for a place in that format from then on. Errors: also
// STATUS_CONFLICT (the file has no such weights).
enum status instances_move(struct instances *instances, const char *instance_id, const char *format,
			   struct error *error);

// Find the room for a model of which only the size is known. A models_look; its context is `instances`.
void instances_look_room(void *instances, struct models_room *room);

// Handle a node's notification, model.fetching or hop.ended; it has been checked.
void instances_fetching(struct instances *instances, const char *node_id, const struct json *params);
void instances_hop_ended(struct instances *instances, const char *node_id, const struct json *params);
struct shards *instances_shards(const struct instances *instances); // for the connections that read model files

const struct instance *instances_find(const struct instances *instances, const char *instance_id); // NULL: none
// Array of Instance, oldest first, each with those behind it that were unloaded for it.
struct json *instances_list_json(const struct instances *instances);
// Array of ChatModel, for each model that is ready: what the holder of a token for models may know.
struct json *instances_chat_json(const struct instances *instances);
const char *instance_id(const struct instance *instance);
const char *instance_state(const struct instance *instance);
// Whether an instance computes or loads on the device, now or in the last seconds.
bool instances_compute_on(const struct instances *instances, const struct cluster_device *device); // for requests, now
bool instances_work_on(const struct instances *instances, const struct cluster_device *device);
int64_t instances_line_tokens(const struct instances *instances); // as configured
// Seconds until this token (NULL: the machine's owner) has won back some of its tokens a minute; 0: it may ask now.
int64_t instances_wait_s(const struct instances *instances, const struct token *token);
// How many more tokens a running model would make if it were placed anew, while one of its parts slows the others down
// (the bottleneck of InstanceTiming), by the last search for such a place; for alerts. The texts are valid during the
// call.
struct instances_balance {
	const char *instance_id, *model_name;
	const char *why;     // which part, and by how much, in words
	double gain_percent; // 0: no place is better by enough, or no part slows the others down; NaN: it does not work
};
typedef void instances_see_balance(void *context, const struct instances_balance *balance);
void instances_each_balance(const struct instances *instances, instances_see_balance *each, void *context);
// The cost of a link that is worse than its class (topology_late_s) to the models on it, for each token of one request:
// the links that parts use now are known, as measured, with the bytes of a token; computing takes what was measured or
// predicted. other_node_id: another node, or "server", by way of which parts reach each other. Texts are valid until a
// model is deleted.
struct instances_over {
	unsigned count;             // running models with parts that reach each other over it
	const char *model_name;     // the one that loses most; NULL: none
	double late_s;              // so much longer a token of it takes
	double rate, rate_as_class; // tokens a second, now and if the link were no worse than its class; < 0: not known
};
void instances_over_link(const struct instances *instances, const char *node_id, const char *other_node_id,
			 struct instances_over *out);
// How many of a model's instances answer requests.
unsigned instances_ready(const struct instances *instances, const struct model_record *model);
