/* The inside of instances, for instances*.c and requests.c. Thread: the loop's. */
#pragma once
#include "common/base/limits.h"
#include "server/instances/decide/bottleneck.h"
#include "server/instances/decide/decide.h"
#include "server/instances/decide/evict.h"
#include "server/instances/decide/question.h"
#include "server/instances/decide/search.h"
#include "server/instances/decide/states.h"
#include "server/instances/decide/trials.h"
#include "server/instances/instances.h"
#include "server/instances/parts/parts.h"
#include "server/instances/placing/layer_times.h"
#include "server/instances/placing/placing.h"
#include "server/instances/requests/requests.h"

enum { GATHER_NAME_BYTES = 208 }; // of a device, in words
enum { INSTANCE_REASON_BYTES = DECIDE_REASON_BYTES };
enum { HELD_UNKNOWN = 101 }; // instance.held_percent

// The devices that must not be used and the memory that is about to be free, for an instance that is placed again.
struct placing_excluded {
	char ids[PLACEMENT_STAGES][STORE_ID_BYTES]; // (count): of nodes and of devices
	unsigned count;
	const char *why;               // static, in words: "it is lost"
	const struct instance *ending; // what its stages hold counts as free; may be NULL. Cancel when it goes
	bool evicts;                   // idle instances may be evicted, as for one that is created
	bool keeps;                    // what `ending` has loaded and is not lost stays, unless that is slow
	bool cool;                     // devices that are held back for their heat are left out, too
	bool eases;                    // but some layers of `ending` may stay on its own
	bool stays;                    // so are all that `ending` is not on; how hot these are does not count
};

// What people are to be told of an instance: cluster_note_model.
struct instance_news {
	struct instance_news *next;
	const char *kind, *level, *summary; // static
	char node_id[STORE_ID_BYTES];
};

// An instance as it is shown while a change of it is not on disk yet, and what is told once that is.
struct instance_shown {
	struct instance_shown *next;
	struct json *json;
	struct instance_news *news; // oldest first
};

enum { STAGE_TIMES = STORE_BATCHES + 2 }; // of batches, of one row, of prompts

struct instance_stage {
	const struct cluster_device *device, *host; // host: whose memory host_bytes are held in; may be NULL
	uint32_t first_layer, layer_count, host_layers;
	bool embeds, predicts;
	unsigned slices, slice;          // of a stage on several devices: which of how many; 0: it is whole
	struct stage_memory memory;      // estimated, then as it is
	uint64_t held, host_held;        // of the devices
	double seconds_per_token;        // predicted, then as it was measured; < 0: not known
	struct layer_time timed;         // layer_s 0: it was not
	struct layer_time stored;        // timed, as it was stored last
	double spent_ms, unclaimed_ms;   // for requests, as its worker told; of that, not told of any request yet
	unsigned corrected[STAGE_TIMES]; // how often running steps have corrected what of timed (instances_times.c)
};

// Layers that are gone.
struct instance_missing {
	char device_id[STORE_ID_BYTES];
	uint32_t first_layer, layer_count;
};

// A size that a device had no room for, although the placement counted on it.
struct refused {
	char device_id[STORE_ID_BYTES]; // "": none
	uint64_t bytes;
	int64_t used_bytes, at_ms; // by the reading then (< 0: not known); steady
};

// A search for a place of an instance that has been listed, and its result (instances_recover.c).
struct searched {
	enum decide_search phase;
	enum decide_purpose purpose;
	bool without_pins, avoided; // as struct decide_seen has them
	uint64_t epoch;             // of the instance when it began
	struct placing *placing;    // the result of the search; NULL: none, and `why` is the reason
	char why[INSTANCE_REASON_BYTES];
};

// The facts about an instance for its next decision (decide.h), and about the last times that it was paused.
struct recovery {
	struct instance_missing missing[PLACEMENT_STAGES]; // (missing_count), while it is paused
	unsigned missing_count;
	enum decide_cause cause; // of the last pause
	char why[INSTANCE_REASON_BYTES];
	int64_t paused_ms;         // steady
	uint64_t paused_epoch;     // of the placement that it had then
	unsigned attempts;         // at placing it since then
	int64_t requests_until_ms; // that requests wait; steady; 0: they do not any more
	unsigned kept, of_parts;   // parts that keep their layers in the newest placement; all parts
	bool load_failed;          // of all of it, since it was paused: requests wait no longer for the next one
	char gave_way[INSTANCE_REASON_BYTES];     // how: "it was evicted for ..."; until it is whole again; ""
	struct json *remedies;                    // array of text: what would give it a place; NULL: nothing is known
	char failed_on[STORE_ID_BYTES];           // the device on which it failed the last time; ""
	struct refused refused[PLACEMENT_STAGES]; // by devices of its later placements, the newest first
	size_t refused_count;                     // ever
	int64_t deaths_ms[LIMIT_DEATHS];          // when workers died, steady, the newest first; 0: none did
	enum decide_workers workers;              // as they were reported last
	int64_t workers_ms;                       // since when; steady
	struct {
		enum decide_news kind;
		struct error fault; // its message in words
		int part;           // -1: none in particular
		bool died;
	} news; // that no action has dealt with yet
	struct {
		const struct evict_candidate *candidate; // NULL: no other one needs its memory
		struct instance *to;
	} evicted;               // while evict_begin evicts it
	int64_t devices_back_ms; // after a start of the server: since when none of its devices is on its way; 0: one is
	struct searched search;
	bool stays;                    // on a device that is draining: no other place was found
	int64_t due_ms;                // no search begins before; steady
	int64_t search_ms, in_vain_ms; // steady; time of the last search, and of the last one in vain; 0: never
	struct net_timer again;        // the next decision
};

struct instance {
	struct instance *next; // newer
	struct instances *all;
	char instance_id[INSTANCE_ID_BYTES];
	const struct model_record *model; // held; NULL once it has failed
	const struct model_record *draft; // held as long as `model`; NULL: there is none
	char model_id[MODEL_ID_BYTES], model_name[MODEL_NAME_BYTES];
	enum instance_state state; // only instance_change sets it
	char state_reason[INSTANCE_REASON_BYTES];
	int64_t created_ms, ready_ms; // wall clock; ready_ms 0: not yet
	int64_t state_ms;             // wall clock; since when it has its state
	int64_t failed_ms;            // steady; 0: it has not, or not since the server began
	const char *strategy;
	struct instance_stage stages[PLACEMENT_STAGES]; // (stage_count)
	unsigned stage_count;
	enum tensor_format format,
		held_format; // of most weights; what wide ones are held in, FORMAT_UNKNOWN: as they are
	enum placement_step step;
	uint32_t context_tokens, sequences, page_count;
	struct json *wanted;      // the parameters with which it was created
	struct parts *parts;      // its workers; NULL: it has none, or none any more
	uint64_t epoch;           // counts the placements; messages of parts of an older one are dropped
	unsigned recoveries;      // how often it went on after a loss
	unsigned moves;           // how often it was placed again on request
	double load_ms;           // < 0: not known
	int64_t began_loading_ms; // steady
	bool chat;
	char chat_template[33]; // "": none is known, or not yet
	struct recovery recovery;
	struct json *timing; // InstanceTiming, as its worker told it last; NULL: not known
	struct bottleneck_shown bottleneck;
	struct json *hops; // of PlacementHop, as it was placed
	// Faster places (instances_offer.c).
	double predicted_s, predicted_rate, way_s; // a token; by the objective, tokens a second; of the first, hops
	struct json *offer;                        // InstanceOffer; NULL: none
	uint64_t seen, looked_at;                  // versions of the usable devices: current, and of the last search
	bool devices_settled;                      // they were the same at the two last looks
	int64_t offer_ms;                          // when was looked last; steady
	int64_t uneven_ms;                         // when a faster place was searched for last; steady; 0: never
	bool move_wanted;                          // take an offer if there is one
	int64_t return_ms;                         // when room for its evicted layers was looked for; steady
	int64_t return_tried_ms;                   // when a place was searched for because there was; steady
	int64_t return_wait_ms;                    // until it is looked for again; longer where that was in vain
	uint64_t others_held;                      // what all others held then: less is worth another look
	int64_t room_ms;                           // steady; since when there is room; 0: there is none
	struct json *stepping;                     // `wanted` with another format, which is to be placed; or NULL
	struct {                                   // changes for heat (instances_heat.c), by the clock of the readings
		char left_id[STORE_ID_BYTES];      // the device that it, or some of its layers, left the last time; ""
		uint32_t left_layers;              // that stayed there; 0: none
		char format_before[16]; // `format` of `wanted` before heat changed it, or "file"; "": it has not
		int64_t moved_ms, searched_ms, format_searched_ms; // the last ones; 0: never
	} heat;
	struct instance *displaced;          // unloaded for it, until it is ready: listed as paused, behind it
	char gave_way_to[INSTANCE_ID_BYTES]; // of such a one: the instance; ""
	int64_t gave_way_ms;                 // when; wall clock
	bool stands_in;                      // for another of its model, which therefore did not come back
	struct json *left;                   // stored data of its workers, at a start; or NULL
	uint64_t ties, ties_before;          // of this placement; of those before it
	// As its worker says.
	uint64_t running, waiting, pages_used, pages_cached, pages, prompt_tokens, generated_tokens;
	uint64_t proposed_tokens, accepted_tokens;
	uint64_t drafted_tokens, draft_accepted_tokens; // of these
	uint64_t draft_bytes;                           // that its draft model takes on the device, once loaded
	double tokens_per_s;                            // < 0: not known
	int64_t told_ms;                                // steady; when it was reported
	struct generation *generations;                 // oldest first
	int64_t stale_request;     // reports about this and older requests that are over are ignored
	unsigned generation_count; // that are not cancelled
	int64_t used_ms;           // steady: a request began or ended, or it was ready; 0: not yet
	size_t line_tokens;        // that their prompts are given as: text counts nothing
	uint64_t failed_epoch;     // the placement for which the log reports a failed request
	unsigned held_percent;     // of the time that its worker was told to rest; HELD_UNKNOWN: it may not have heard
	bool forgets;              // a token ended while its worker could not be told
	// While changes with an entry of the audit log are not on disk yet (instance_keep):
	struct instance_shown *shown; // as it was before each of them, the oldest first; NULL: there are none
	unsigned shown_count, unsaved;
	bool removed, gone;       // removed: that must still be published; gone: freed, which must still be done
	struct error failed_with; // of a failed instance: the error for its requests
};

// The results of a model's reference token, each time that it went around the parts of an instance (parts_ring.c).
struct instance_reference {
	char model_id[MODEL_ID_BYTES];
	enum tensor_format format; // held_format
	uint32_t context_tokens;
	struct trials *trials;
};

struct released { // memory of a device, freed by an instance that ended or is placed again
	char device_id[STORE_ID_BYTES], instance_id[INSTANCE_ID_BYTES];
	uint64_t bytes;
	int64_t at_ms; // steady
};

struct disagreed { // a device that found a browser's results wrong
	char device_id[STORE_ID_BYTES], node_id[STORE_ID_BYTES];
};

struct instances {
	struct instances_params params;
	struct instance *first; // oldest
	size_t count;
	bool ending;                     // the server is
	struct starting *starting;       // instances that are being created, or come back (instances_start.c)
	struct demand *demands;          // for models that are not loaded
	struct generation *held;         // requests that have ended, whose clients wait for their joules
	struct nowhere *nowhere;         // and for which there was no room, the newest first
	struct instance_row_write *rows; // of state.db that are not as they should be yet (instances_rows.c)
	struct net_timer rows_again;
	int64_t next_request;
	const struct token **owners; // (owner_count): whose number is its place and 2; 1 is the machine's owner's;
				     // NULL: of a token that has ended
	size_t owner_count, owner_capacity;
	struct planner *planner;
	struct layer_times *layer_times;
	struct shards *shards;                                 // what nodes elsewhere read of model files
	struct instance_reference references[LIMIT_INSTANCES]; // the newest
	size_t reference_count;                                // ever
	struct released released[LIMIT_INSTANCES];             // the newest
	size_t released_count;                                 // ever
	struct disagreed disagreed[LIMIT_INSTANCES];           // the newest
	size_t disagreed_count;                                // ever
	unsigned spot_checks;                                  // under way
};

// instances_state.c
int64_t instances_now(const struct instances *all); // by the clock of params, or the steady clock
enum instance_row {
	INSTANCE_ROW_STAYS,   // nothing is stored
	INSTANCE_ROW_WRITTEN, // the row in state.db as the instance is now
	INSTANCE_ROW_REMOVED
};
struct instance_change {
	enum instance_state to;
	const char *reason; // state_reason from now on; NULL: it stays as it is
	enum instance_row row;
	const struct audit_tally *entry; // of the same transaction as the row, which then is not INSTANCE_ROW_STAYS;
					 // may be NULL. The instance is shown as it was until both are on disk
};
// Give an instance another state. To be called last, once all fields that the row has are set. False: that state cannot
// follow the one it has, which is logged, and nothing has happened.
bool instance_change(struct instance *instance, const struct instance_change *change);
// Tell all of the news, or none where the server has ended; free them.
void instance_give_news(const struct instance *instance, struct instance_news *news, bool tell);

// instances.c
// STATUS_UNAVAILABLE while the server is ending: the caller should try again.
enum status instances_refuse(const struct instances *instances, struct error *error);
// End the instance and take it out of the list; it may be started again, so its description and its row stay until
// then. Nothing is published.
void instance_displace(struct instance *instance, const struct error *fault);
void instance_free(struct instance *instance);          // one that is in no list; its row of state.db stays
void instance_discard(struct instance *instance);       // an instance that was in no list yet: its memory is freed
void instance_publish(const struct instance *instance); // unless a change of it is not on disk yet
void instance_publish_shown(const struct instance *instance);
void instance_publish_removed(struct instance *instance);
void instance_take_placement(struct instance *instance, const struct placing *placing);
// The next placement is where it is, with as many layers in the host's memory as these stages have.
void instance_take_spilled(struct instance *instance, const struct evict_candidate *candidate);
// Reserve the memory of the stages instead of the present reservation; or reserve nothing. Errors:
// STATUS_OUT_OF_MEMORY.
enum status instance_hold(struct instance *instance, bool any);
// Take in the times that a worker measured for this stage: an item of `times` in the answer to instance.load; may be
// NULL, or JSON's null.
void instance_take_times(struct instance *instance, unsigned stage, const struct json *times);
// Take in the times that its parts took for steps (steps_took of instance.state): the measured times move towards them.
void instance_observe(struct instance *instance, const struct json *steps_took);
void instance_set_failed(struct instance *instance, const struct error *fault); // for good
// The instance leaves the list, and its requests are answered. Its row of state.db stays.
void instance_remove(struct instance *instance, const struct error *fault);
// Remove the failed instances of this model: another try takes their place.
void instances_drop_failed(struct instances *instances, const char *model_id);
// The one of this id that is listed by itself; NULL: none, or it was evicted, or comes back.
struct instance *instances_listed(const struct instances *instances, const char *id);
// Handle what its parts report. `part` is -1 if the report concerns no single part.
void instance_parts_moved(struct instance *instance); // in fetching or loading
void instance_parts_ready(struct instance *instance);
void instance_parts_failed(struct instance *instance, const struct error *fault, int part);
void instance_parts_broken(struct instance *instance);
void instance_parts_away(struct instance *instance, unsigned part, const char *why);
void instance_parts_back(struct instance *instance); // all that were away
bool instance_parts_notice(struct instance *instance, const char *method, const struct json *params);

// instances_start.c
void starts_shut_down(struct instances *all, const struct error *fault); // callers that wait for memory are answered
void starts_destroy(struct instances *all);

// instances_see.c
struct snapshot {
	struct decide_wanted wanted;
	struct decide_seen seen;
	char coming[GATHER_NAME_BYTES], draining[GATHER_NAME_BYTES], hot[GATHER_NAME_BYTES], left[GATHER_NAME_BYTES],
		strained[GATHER_NAME_BYTES];
	char text[INSTANCE_REASON_BYTES];
};
// Gather the wanted state and the facts of an instance. Devices are counted once a second; the count is kept in the
// instance.
void instance_see(struct snapshot *snapshot, struct instance *instance);
bool instance_is_anew(const struct instance *instance);         // a new placement was begun since it was paused
bool instance_is_draining(const struct instance_stage *stage);  // its device is
const char *instance_rests(const struct instance_stage *stage); // why its device rests; NULL: it does not

// instances_act.c: the doer
void instance_act(struct instance *instance, const struct decision *decision);
void recover_set_reason(struct instance *instance, const char *why);              // state_reason, not published
void recover_set_workers(struct instance *instance, enum decide_workers workers); // they are so from now on
// In words, how it was evicted and what follows from that.
void recover_say_gave_way(const struct instance *instance, char why[INSTANCE_REASON_BYTES]);
void recover_drop_search(struct instance *instance);
// The instance leaves the list and has no place: its devices are missing.
void recover_leave(struct instance *instance);
// It has no place, and its devices are missing: CAUSE_RESTART or CAUSE_IN_VAIN.
void recover_restored(struct instance *instance, enum decide_cause cause, const char *why);
// A ready instance stays where it is, with its layers as in `candidate`; recovery.gave_way is published while it is
// loaded, and afterwards. It is not stored by this call.
void recover_spill(struct instance *instance, const struct evict_candidate *candidate);

// instances_recover.c: what happens to an instance, and its next decision
// Decide and do, until there is something to wait for. `soon`: in the turn after this one.
void instance_pace(struct instance *instance); // instances_pace.c
void recover_decide(struct instance *instance);
void recover_soon(struct instance *instance);
// A part is lost, or its step has failed.
void recover_lost(struct instance *instance, const struct error *fault, int part);
void recover_broken(struct instance *instance);                               // a connection between its parts is
void recover_away(struct instance *instance, unsigned part, const char *why); // the node of a part is cut off
void recover_back(struct instance *instance);                                 // all parts that were away are there
void recover_moved(struct instance *instance); // more of it is fetched or loaded: requests wait on
void recover_done(struct instance *instance);  // all its parts are ready again, but it is not running yet
// It runs in its new placement: the row and the entry of the audit log are written.
void recover_goes_on(struct instance *instance);
void recover_watch(struct instance *instance); // it runs: from now on it is looked at
void recover_stop(struct instance *instance);  // nothing more comes of it
void recover_wish(struct instance *instance);  // it has no place, and something else is wanted of it: look again

// instances_store.c
// Store a new one. Errors: the store's, and then `done` is not called.
enum status instance_keep_new(const struct instance *instance,
			      void (*done)(void *context, enum status status, const struct error *error),
			      void *context);
// Store an instance as it is now, or remove its row, without waiting. With an audit entry (which may be NULL) clients
// see the instance as before (instance_changes) until the row and the entry, of one transaction, are on disk. Then the
// new state is published, and callers that wait for a failed instance get the error (`failed_with`). If they cannot be
// stored the change is published nevertheless, because it has happened.
void instance_keep(struct instance *instance, const struct audit_tally *entry);
void instance_forget(struct instance *instance, const struct audit_tally *entry);
enum status instance_put_row(struct store_batch *batch, const struct instance *instance); // as it is now
void instance_changes(struct instance *instance);
// Only so many of these are under way: the others end, and their news are told.
void instance_show_next(struct instance *instance, unsigned left, bool tell);

// instances_rows.c
// Commit a batch with a row, which is taken; NULL: there was no memory for one. A row that cannot be written is written
// again, as its instance is then.
void instance_row_commit(struct instances *all, const char *instance_id, struct store_batch **batch);
void instance_row_stale(struct instances *all, const char *instance_id); // it could not be written
void instance_rows_destroy(struct instances *all);
// All that are stored, at the start. Errors: the store's.
enum status instances_restore(struct instances *instances, struct error *error);

// instances_adopt.c
// The record by which the next server finds its workers; NULL: it cannot. It holds digests of the keys, no key.
struct json *instance_left_json(const struct instance *instance);
// Take over the workers of `instance->left`, if possible: it then waits for them. The model is held.
bool instance_find_left(struct instance *instance);

// instances_offer.c
void instance_take_prediction(struct instance *instance, const struct placing *placing);
// Note that the evicted layers cannot come back yet, which is logged: the next attempt waits twice as long, 5 min at
// most.
void offer_wait(struct instance *instance, const char *why);
uint64_t offer_devices(const struct instances *all);        // that can be used: a number that changes with them
double offer_present_rate(const struct instance *instance); // tokens a second where it runs; < 0: not known
double offer_rate(const struct placing *placing);           // the same at the found place
bool offer_same_place(const struct instance *instance, const struct placing *placing);
bool offer_faster(const struct instance *instance, const struct placing *placing); // by as much as a move is worth
// For a place of its evicted layers: why the found one is not the wanted one.
const char *offer_not_whole(const struct placing *placing);
bool offer_others_wait(const struct instance *instance);
int64_t offer_room_due_ms(const struct instance *instance);
void offer_look_room(struct instance *instance);
// The result of a search for a faster place that is not taken at once: an offer, or none (placing NULL, or not faster).
void offer_take(struct instance *instance, const struct placing *placing);
// Whether a part of it slows the others down; and whether a faster place is to be searched for because of that.
bool offer_uneven(const struct instance *instance);
bool offer_uneven_due(const struct instance *instance);
void offer_take_format(struct instance *instance); // the other format is the wanted one from now on

// instances_heat.c: moves away from devices that get too hot, changes to a smaller format there, and back
void heat_see(struct snapshot *snapshot, const struct instance *instance);
// Whether the found place, or format, is faster by enough that loading pays.
bool heat_pays(const struct instance *instance, const struct placing *placing, enum decide_purpose purpose);
void heat_searched(struct instance *instance, enum decide_purpose purpose); // a search for such a place begins
// What is wanted, with the format that heat calls for, or the one of before: to be destroyed by the caller.
struct json *heat_wanted(const struct instance *instance, enum decide_purpose purpose);
// It leaves its hottest device, changes its format, or goes back: note which, and when.
void heat_moved(struct instance *instance, enum decide_cause cause, const struct placing *placing);
// The format that it had before heat changed it, by name; NULL: heat has not.
const char *heat_format_before(const struct instance *instance);
// Say of one that has left a device for its heat, or has another format for it, that it has, and what follows; else
// nothing.
void heat_say(const struct instance *instance, char why[INSTANCE_REASON_BYTES]);
// Of a row of state.db.
void heat_store(const struct instance *instance, struct json *row);
void heat_restore(struct instance *instance, const struct json *row);
bool instance_is_on(const struct instance *instance, const char *device_id);

// evict_gather.c
enum evict_kind evict_kind_of(const struct instance *instance);
int64_t evict_idle_ms(const struct instance *instance); // since it was used; < 0: it is in use, or not ready
// Collect the instances that may be evicted for the gathered placement.
void evict_gather(struct placing *placing, const struct instances *instances);

// evict_act.c
bool evict_any(const struct placing *placing); // whether any must be evicted; the first of its whys says so
// How it is evicted: its layers are spilled, or it is unloaded (ACTION_SPILL, ACTION_UNLOAD).
void evict_act(struct instance *instance);
// Whether the instances to evict are still idle, and unchanged since the search.
bool evict_may_begin(const struct instances *all, const struct placing *placing);
void evict_begin(struct instance *to, const struct placing *placing); // evict them, for `to`
// It is ready: instances that were unloaded for it are forgotten.
void evict_settle(struct instance *instance);
// The one of this id that was unloaded for it, taken out; NULL: none.
struct instance *evict_take_out(struct instance *instance, const char *id);
// It is over. If it never was ready, the instances that were unloaded for it are loaded again, when there is room for
// them.
void evict_return(struct instance *instance);
// For an instance that was unloaded in vain: an instance of its model that was created since, and that replaces no
// other one. NULL: none.
struct instance *evict_stand_in(const struct instance *instance);
// At the start of the server: instances that were unloaded for another one wait for that one.
void evict_restore(struct instances *instances);

// What the draft model takes that the parameters ask for, into `wanted`; nothing without one. `again`: for an instance
// that is placed again, which goes on without a draft that is gone. Errors: STATUS_NOT_FOUND, STATUS_CONFLICT (it is
// not ready), STATUS_INVALID_PARAMS (it can be none).
enum status placing_read_draft(struct placing *placing, const struct instances *instances, const struct json *params,
			       bool again, struct error *error);

// instances_gather.c
// gather_heat.c: how hot the device is, as a placement counts it.
void gather_heat(struct placement_device *out, const struct cluster_device *device, const struct json *telemetry);
bool gather_same_pool(const struct cluster_device *a, const struct cluster_device *b);
uint64_t gather_held_by(const struct instance *instance, const struct cluster_device *device); // of its memory
// In words, as placements have it: with its node's name where there are devices of several. Returns text.
const char *gather_name(const struct instances *instances, const struct cluster_device *device,
			char text[GATHER_NAME_BYTES]);
void gather_released(const struct instance *instance); // its memory is about to be free: noted for `lags`
void gather_released_stage(const struct instance *instance, const struct instance_stage *stage); // what one does
// Part of it was to be loaded and there was no memory: noted, of the stages that it has on that node with that back
// end, for a device that has refused before, else the fullest. For a minute, or until it has that much more, it counts
// as having less.
void gather_refused(struct instance *instance, const struct instance_stage *first);
// Read the request, and gather the devices. The caller frees the result. Errors: instances_preview's.
struct placing_request;
enum status placing_gather(struct placing **out, const struct instances *instances, const struct placing_request *asked,
			   struct error *error);
// After a while: find the model and the devices again. False: a device of the placement is gone, or can no longer be
// used.
bool placing_stands(struct placing *placing, const struct instances *instances);

// Only devices, with their memory and the instances that may be evicted. The caller frees the result. Errors:
// STATUS_OUT_OF_MEMORY.
enum status placing_gather_memory(struct placing **out, const struct instances *instances,
				  const struct model_record *model);

// instances_keep.c
// Find the layers that `ending` has and may keep, on the devices that are gathered.
void keep_gather(struct placing *placing, const struct instance *ending);
// evict_find, or what keeps all that can be kept, where that is not much slower. Thread: the planner's. Errors:
// placement_find's.
enum status keep_find(struct placing *placing, struct error *error);
// Spare the layers that it keeps, and count the rest of its memory as free. False: there is nothing to keep, and
// nothing has happened.
bool keep_spare(struct instance *instance, const char *why);
// Begin this placement: create its parts and reserve their memory. Errors: as parts_create's; then the instance has no
// parts.
enum status keep_begin(struct instance *instance, const struct placing *placing, struct error *error);

// placing/ease.c
// Note the layers of `ending` of which some may leave a device that is held back, on the devices that are gathered.
void ease_gather(struct placing *placing, const struct instance *ending);
// Look for a place in which some layers leave that device. `found`: a place without it was found. True: it is faster
// than that one by enough, and is the result. Thread: the planner's.
bool ease_find(struct placing *placing, bool found);

// nowhere.c
// Remember that there is no place for the model of a request: `error` is the answer to requests.
// Whether the holder of this token (NULL: the machine's owner) may know the reasons of models in words. They name
// devices and machines; who may only use models is told neither.
bool sees_why(const struct token *token);
void nowhere_keep(struct instances *all, const struct placing *placing, const struct error *error);
// The remembered result for the next decision; and whether there is more memory by now.
void nowhere_see(struct question_seen *seen, const struct instances *all, const char *model_id);
enum question_room nowhere_look(const struct instances *all, const struct model_record *model);
void nowhere_forget(struct instances *all, const char *model_id); // accepts an unknown model
void nowhere_destroy(struct instances *all);

// planner.c
// Gather, search on the planner's thread, and call `done`, later and once, on the loop. The callee frees `placing`,
// which is NULL with an error. Errors of it: instances_preview's.
typedef void placing_done(void *context, enum status status, struct placing *placing, const struct error *error);
struct placing_request {
	enum placing_kind kind;
	const struct json *params;               // copied
	const struct placing_excluded *excluded; // copied; may be NULL
	const struct instances_foreseen *of;     // a model that is not in the library, instead of params' model_id; it
						 // must outlive the search. NULL: none
	const void *asker, *connection;          // of a preview: who has few at a time; whose end is its end
	bool *left;                              // set when that connection has ended; valid until `done`; may be NULL
	placing_done *done;
	void *context;
};
// A more urgent kind stops the running search: a preview then answers with its result so far, other searches are
// repeated. A newer preview of the same connection stops the older one, too, unless
// one of them is of a foreseen model.
// Errors, after which `done` is not called: STATUS_LIMIT_EXCEEDED (LIMIT_PLACINGS of its kind wait, or LIMIT_PREVIEWS
// of its asker), STATUS_OUT_OF_MEMORY, STATUS_UNAVAILABLE.
enum status placing_start(const struct instances *instances, const struct placing_request *request,
			  struct error *error);
// End the searches that were started with this context; their callbacks do not run.
void placing_cancel(const struct instances *instances, const void *context);
// End the previews of a closed connection: waiting ones are answered now, a running one soon.
void placing_leave(const struct instances *instances, const void *connection);
enum status planner_create(struct planner **out, const struct instances *instances, struct error *error);
void planner_go_on(struct planner *planner);     // devices of this machine are found
void planner_shut_down(struct planner *planner); // waiting requests are answered
void planner_destroy(struct planner **planner);

// instances_place.c
struct json *placing_hops_json(const struct placing *placing); // of PlacementHop
// placing/instances_draft.c: the draft model is held beside the model, and let go of. Errors: those of models_hold.
enum status instance_hold_draft(struct instance *instance, struct error *error);
void instance_release_draft(struct instance *instance);
// An instance's, if it is ready; what instance.load is told of it; and as the API shows it (null: none was asked for).
const struct model_record *instance_draft(const struct instance *instance);
struct json *instance_draft_params(const struct instance *instance);
struct json *instance_draft_json(const struct instance *instance);
void instance_set_bytes(struct json *object, const char *name, uint64_t value);
void instance_set_maybe(struct json *object, const char *name, double value);                // below 0: null
struct json *placing_json(const struct placing *placing);                                    // Placement
struct json *instance_stage_json(const char *device_id, const struct instance_stage *stage); // Stage

// instances_json.c
struct json *instance_json(const struct instance *instance); // as it is shown
struct json *instance_json_now(const struct instance *instance);
// Complete what a request says of drawing tokens (NULL: it says nothing) as sampling_complete does.
struct json *instance_sampling(const struct instance *instance, struct json *request);

// instances_timing.c
// Make InstanceTiming, with a text, from the last part's report (RingTiming).
struct json *instance_timing_json(struct instance *instance, const struct json *told);

// requests.c
// Handle generate.delta and generate.end. False: the message breaks the contract.
bool generations_notice(struct instance *instance, const char *method, const struct json *params);
// What its requests have spent, as its worker tells it: Spent of schema/node.json, or NULL. `whole`: of every request
// that runs.
void generations_spent(struct instance *instance, const struct json *spent, bool whole);
// Its worker has, or will have, none of its requests; later another worker has them, and each continues.
void generations_pause(struct instance *instance);
void generations_resume(struct instance *instance);
// Its worker has died by itself, before generations_pause; one of its requests may be the reason. A request to which
// this happens a second time without a token in between ends.
void generations_blame(struct instance *instance);
// The worker of the requests is cut off, and its messages may be lost: later messages are ignored, and when it is back
// generations_resume starts each request from the last token that its client has.
void generations_cut(struct instance *instance);
// End all requests with this error; workers that have any are notified.
void generations_give_up(struct instance *instance, const struct error *fault);
// Answer all with this; the worker is gone.
void generations_fail(struct instance *instance, const struct error *fault);
unsigned generations_of(const struct instance *instance, const struct token *token); // how many run or wait
// None of them has been sent: they wait for `to` from now on, before the requests that wait there.
void generations_move(struct instance *from, struct instance *to);

// requests_choose.c
// The instance that a request joins, or the line where it waits until there is one. given_tokens: of its prompt; 0: the
// prompt is text. Errors: STATUS_NOT_FOUND (no such model), question_decide's, question_admit's, demand_begin's.
enum status requests_choose(struct instance **out, struct instances *all, const struct generation_params *params,
			    size_t given_tokens, struct error *error);

// demand.c
// The queue of requests for which this model is loaded, while there is no instance yet; NULL: there is none.
struct instance *demand_find(const struct instances *all, const char *model_id);
// Have the model loaded, by who asks: *out is the line where the request waits. Errors: audit_write's,
// STATUS_OUT_OF_MEMORY.
enum status demand_begin(struct instance **out, struct instances *all, const struct model_record *model,
			 const struct generation_params *params, struct error *error);
// The lines of demands, one after the other; of NULL the first. NULL: there are no more.
struct instance *demand_next(const struct instances *all, const struct instance *line);
// Whether `context` is a demand that wants none of its own any more: another instance of the model has come up.
bool demand_met(const struct instances *all, const void *context);
// There is no place, and `error` says why: if `context` is a demand, that is kept.
void demand_refused(const struct instances *all, const void *context, const struct placing *placing,
		    const struct error *error);
// The error for a request to a model that could not be loaded: STATUS_UNAVAILABLE, and why.
void demand_explain(struct error *told, const char *model_name, const struct error *error);
void demands_shut_down(struct instances *all, const struct error *fault); // questions are answered with this
void demands_destroy(struct instances *all);
