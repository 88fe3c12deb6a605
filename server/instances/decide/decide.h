/* Decides what an instance does next: a pure function of the wanted state, the facts, and the time.
 *
 *     events (a worker ended, a search is over, a timer) --> facts --> instance_decide --> one action --> doer
 *                                                              ^                                           |
 *                                                              +-------------- its result -----------------+
 *
 * The rules are a table in decide.c; the first that applies decides. To add a reason to pause or to move an instance,
 * add a fact to `struct decide_seen` and one rule to the table. Facts are gathered in instances_see.c, actions are
 * carried out in instances_recover.c. Nothing here reads a clock, allocates, or knows the rest of the server.
 *
 * The decision is for instances that are listed. Beside it, each with a table of its own: which idle instances are
 * evicted for a placement (evict.h), what happens to a request to a model (question.h), and how an instance is created
 * (start.h). Thread: any. */
#pragma once
#include "server/instances/decide/states.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	DECIDE_REASON_BYTES = 768,
	DECIDE_LOOK_MS = 250,          // how often a running instance, or one that waits for devices, is looked at
	DECIDE_AGAIN_MS = 1000,        // between the first attempts at placing it; then a second more each time ...
	DECIDE_AGAIN_MOST_MS = 5000,   // ... up to this
	DECIDE_RETURN_LEAST_MS = 1000, // that a node which is cut off is waited for, at least
	DECIDE_SETTLE_MS = 2000,       // that nodes have to reach each other after a start of the server
	DECIDE_ROOM_MS = 5000,        // how often room is looked for, for layers that were evicted to the host's memory
	DECIDE_ROOM_MOST_MS = 300000, // the same where they could not come back: twice as long each time, up to this
	DECIDE_WHOLE_MS = 10000,  // for which one that was unloaded in vain takes no place where memory is short: what
				  // is free again shows late in readings of devices
	DECIDE_MODEST_MS = 60000, // for which no other is evicted for such a one
	DECIDE_WORK_MS = 300000,  // after which an instance whose workers are at work is looked at once more
	// The next ones are compared with the clock of the readings.
	DECIDE_HOT_MS = 30000,        // that a device is held back for its heat before an instance leaves it
	DECIDE_EASED_MS = 60000,      // that an instance stays after another one has left the same device
	DECIDE_HEAT_AGAIN_MS = 60000, // between two searches for a cooler place
	DECIDE_HEAT_APART_MS =
		600000 // least time between two changes for heat, and between two searches for a way back
};

// Why an instance is paused.
enum decide_cause {
	CAUSE_NONE,    // it is not
	CAUSE_LOSS,    // a worker, a device, a node or the connection between two parts was lost
	CAUSE_RESTART, // the server was started
	CAUSE_IN_VAIN, // it was unloaded for another, which did not come up
	CAUSE_DRAIN,   // a device that it is on is draining, or rests
	// From here on nothing is lost, and somebody wants it so:
	CAUSE_MOVE,      // another place is faster
	CAUSE_HEAT,      // a device that it is on gets too hot for its work
	CAUSE_COOLED,    // that device is cool again
	CAUSE_STEP_DOWN, // a device that it is on gets too hot for its work: its weights go to a smaller format
	CAUSE_STEP_BACK, // its devices are cool: its weights go back to the format of before
	CAUSE_FORMAT,    // its weights are to be held in another format
	CAUSE_EVICTED,   // some of its layers went to the host's memory, to make room for another model
	CAUSE_RETURN     // there is room for these layers again
};

// Reports about its workers that have not been handled yet.
enum decide_news {
	NEWS_NONE,
	NEWS_LOST,   // a worker has ended, or its step has failed
	NEWS_CUT_OFF // the node of one is cut off
};

enum decide_workers {
	WORKERS_NONE,
	WORKERS_SPARED, // some are left, and kept until it is known where the rest goes
	WORKERS_AWAY,   // a node with a worker is cut off, or the workers are those of the previous server
	WORKERS_BACK,   // all of them are there again
	WORKERS_BROKEN, // the connection between two of them is broken
	WORKERS_BUSY,   // they are loading, being connected or being checked
	WORKERS_READY
};

// The purpose of a search for a place.
enum decide_purpose {
	PURPOSE_NONE,
	PURPOSE_PLACE,     // it has none
	PURPOSE_LEAVE,     // away from devices that are draining, or rest
	PURPOSE_FORMAT,    // with its weights in another format
	PURPOSE_WHOLE,     // with the layers that were evicted
	PURPOSE_STEP_DOWN, // with its weights in a smaller format, where it is
	PURPOSE_STEP_BACK, // in the format that they had before heat changed it
	PURPOSE_COOLER,    // away from devices that are held back for their heat
	PURPOSE_COOLED,    // back, after such a device has cooled
	PURPOSE_FASTER
};

enum decide_search { SEARCH_NONE, SEARCH_RUNS, SEARCH_FOUND, SEARCH_NOWHERE };

struct decide_wanted {
	bool pinned;        // to devices
	bool moves;         // somebody asked for a faster place
	bool takes_faster;  // it moves to a faster place without being asked
	bool whole;         // it was evicted, and its layers are to come back
	const char *format; // that its weights are to be held in from now on; NULL: as they are
	int64_t pause_ms;   // that requests wait for it while it has no place
};

// Times are of one clock, in milliseconds. Texts are never NULL but where that is said.
struct decide_seen {
	enum instance_state instance_state;
	// While it is paused:
	enum decide_cause cause;
	const char *why;           // it was paused, in words
	int64_t paused_ms;         // since when
	unsigned attempts;         // at placing it, since then
	bool placed_anew;          // a new placement was begun since then
	bool searched;             // a place was searched for since then
	int64_t requests_until_ms; // that its requests wait; 0: none do any more
	const char *removed;       // its model was, in words; NULL: it is there
	// Its workers:
	enum decide_workers workers;
	bool several;         // parts
	bool all_kept_failed; // the news is about a placement in which some parts were to keep their layers
	int64_t workers_ms;   // since when they are as they are
	double load_ms;       // that loading all of it takes; < 0: not known
	enum decide_news news;
	const char *news_text;   // in words
	bool news_of_part;       // it concerns one part, whose device is known
	bool part_has_no_worker; // that part has none any more
	bool worker_died;        // of itself: its device and its node are there
	unsigned deaths;         // of its workers, within LIMIT_DEATHS_MS
	unsigned deaths_most;    // from how many on it has failed for good
	// Its devices:
	const char *draining; // the first that is, or that rests; NULL: none
	const char *rests;    // why that one rests; NULL: it is draining
	const char *coming;   // after a start: the first that it was on and that is on its way; NULL: none
	bool several_missing, several_nodes; // that it was on
	int64_t devices_back_ms;             // since when none is on its way; 0: one is
	// The planner's last result, or its current state:
	enum decide_search search;
	enum decide_purpose purpose;
	bool stale;              // the instance has had another placement since the search began
	bool without_pins;       // the search left them out
	bool avoided;            // the search left out the device on which the instance failed the last time
	bool failed_there;       // there is such a device
	bool same_place;         // the found place is the present one
	bool whole_there;        // the found place has all layers on devices, in the requested format
	bool lags;               // readings still show memory as used that has been freed
	bool stood_in_for;       // another instance of its model was created after it was unloaded, and replaces it
	bool faster_there;       // the found place is faster by enough to justify a move
	const char *search_text; // where to, or why there is no place
	int64_t due_ms;          // no search begins before
	// While it runs:
	bool devices_changed;    // since a faster place was searched for, and they have been the same for a second
	bool uneven;             // a part of it slows the others down, and no faster place was searched for in a while
	bool room;               // for its evicted layers, when that was looked at
	int64_t room_due_ms;     // when to look again
	bool room_untried;       // no search has begun since room was seen
	bool others_wait;        // another instance waits for a place, and has not looked since there is this room
	const char *evicted_for; // the model that needs its memory while it is idle; NULL: none does
	bool unloads;            // it is unloaded
	// For heat, by the clock of the readings. Spans are below 0 where it did not happen.
	const char *hot;          // of its devices, the first that is held back and may be left; NULL: none
	int64_t hot_ms;           // for how long that has been so
	int64_t eased_ms;         // since another instance has left that device
	bool works;               // it has requests, so it is a part of the load
	const char *left;         // the device that it left the last time; NULL: none, or it is there again
	bool left_cool;           // that one works freely again: it has cooled by as much as its policy says
	int64_t heat_moved_ms;    // since it was moved, or its format was changed
	int64_t heat_searched_ms; // since a place was searched for
	bool pays_there;          // the found place pays, loading it included
	unsigned gives, gives_of; // there: so many of its layers leave a hot device, of so many; 0: all of them
	const char *gives_from;   // that device
	const char *held_format;
	const char *strained;     // of its devices, the first that is held back and may make it change its format; NULL
	int64_t strained_ms;      // for how long that has been so
	int64_t relieved_ms;      // since another instance has left that device, or has changed its format there
	const char *smaller;      // the next smaller format that it may be held in for heat; NULL: none
	const char *stepped_from; // the format before heat changed it; NULL: heat has not
	bool all_cool;            // its devices work freely, and can for ever
	int64_t format_searched_ms; // since a place for another format was searched for
};

enum decide_action {
	ACTION_WAIT,         // until `until_ms`, or until something else is seen
	ACTION_FAIL,         // for good
	ACTION_REMOVE,       // it is not wanted any more
	ACTION_SPILL,        // it makes room for another: more of its layers go to the host's memory
	ACTION_UNLOAD,       // the same: it has no place until that one is up, or has failed
	ACTION_END_REQUESTS, // answer the waiting requests: try again later
	ACTION_PAUSE,        // with `cause`
	ACTION_SPARE,        // end the lost parts; the others wait until there is a place for the rest
	ACTION_RELEASE,      // end all workers and free their memory
	ACTION_MEND,         // connect and check the workers, which keep their layers
	ACTION_SEARCH,       // for a place: `purpose`, `without_pins`, `avoids`
	ACTION_PLACE,        // at the place that was found; one that runs pauses with `cause`
	ACTION_NO_PLACE,     // say so, and search again in a while
	ACTION_DROP,         // the result of the search is no longer of use
	ACTION_STAY,         // the result of the search is not used; the wish for it ends
	ACTION_STAY_LATER,   // evicted layers stay where they are, and are looked after less often
	ACTION_WHOLE,        // it is whole where it is: the eviction is over
	ACTION_LOOK_ROOM     // for evicted layers
};

struct decision {
	enum decide_action action;
	const char *rule; // by its name in the table
	char reason[DECIDE_REASON_BYTES];
	bool tell;        // the reason is new to those who look at the instance: it is its state_reason from now on
	int64_t until_ms; // of ACTION_WAIT: never in the past, and never without end
	enum decide_cause cause;
	enum decide_purpose purpose;
	bool without_pins, avoids;
	bool counts; // as an attempt that has failed: the next one waits for longer
	bool evicts; // of a search: idle instances may be evicted for it
};

void instance_decide(struct decision *out, const struct decide_wanted *wanted, const struct decide_seen *seen,
		     int64_t now_ms);
// How long a node that is cut off is waited for before another place is searched for: its workers may come back with
// it, which is worth waiting for where loading takes long.
int64_t decide_grace_ms(const struct decide_seen *seen);
// How long after a start of the server the devices and workers of before are waited for.
int64_t decide_rejoin_ms(const struct decide_wanted *wanted);
// When the attempt after `attempts` is due.
int64_t decide_due_ms(unsigned attempts, int64_t now_ms);
const char *decide_action_name(enum decide_action action);
const char *decide_rule_name(unsigned index); // in their order; NULL: there are no more
