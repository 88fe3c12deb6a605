/* See decide.h. */
#include "server/instances/decide/decide.h"

#include "common/base/limits.h"

#include <stdarg.h>
#include <stdio.h>

// ---- deciding ----

struct deciding {
	const struct decide_wanted *wanted;
	const struct decide_seen *seen;
	int64_t now_ms;
	struct decision *out;
};

// These return true, so that a rule can end with one of them.
__attribute__((format(printf, 3, 4))) static bool take(struct deciding *at, enum decide_action action,
						       const char *reason, ...)
{
	va_list arguments;
	va_start(arguments, reason);
	at->out->action = action;
	vsnprintf(at->out->reason, sizeof at->out->reason, reason, arguments);
	va_end(arguments);
	return true;
}

__attribute__((format(printf, 3, 4))) static bool wait_until(struct deciding *at, int64_t until_ms, const char *reason,
							     ...)
{
	va_list arguments;
	va_start(arguments, reason);
	at->out->action = ACTION_WAIT;
	at->out->until_ms = until_ms;
	vsnprintf(at->out->reason, sizeof at->out->reason, reason, arguments);
	va_end(arguments);
	return true;
}

// It was unloaded in vain less than so long ago.
static bool comes_back_since(const struct deciding *at, int64_t ms)
{
	return at->seen->cause == CAUSE_IN_VAIN && at->now_ms < at->seen->paused_ms + ms;
}

static bool search(struct deciding *at, enum decide_purpose purpose, const char *reason)
{
	at->out->purpose = purpose;
	at->out->evicts = purpose == PURPOSE_PLACE && !comes_back_since(at, DECIDE_MODEST_MS);
	return take(at, ACTION_SEARCH, "%s", reason);
}

int64_t decide_grace_ms(const struct decide_seen *seen)
{
	const double ms = seen->load_ms / 2;
	return ms < DECIDE_RETURN_LEAST_MS ? DECIDE_RETURN_LEAST_MS
	       : ms > LIMIT_RETURN_MS      ? LIMIT_RETURN_MS
					   : (int64_t)ms;
}

int64_t decide_rejoin_ms(const struct decide_wanted *wanted)
{
	const int64_t half_ms = wanted->pause_ms / 2;
	return half_ms < LIMIT_REJOIN_MS ? half_ms : LIMIT_REJOIN_MS;
}

int64_t decide_due_ms(unsigned attempts, int64_t now_ms)
{
	const int64_t ms = (int64_t)attempts * DECIDE_AGAIN_MS;
	return now_ms + (ms < DECIDE_AGAIN_MOST_MS ? ms : DECIDE_AGAIN_MOST_MS);
}

static bool runs(const struct decide_seen *seen)
{
	return seen->instance_state == INSTANCE_RUNNING;
}

// The devices that it was on before, and its workers after a start of the server, are waited for.
static bool returns(const struct decide_seen *seen)
{
	return seen->instance_state == INSTANCE_PAUSED && !seen->searched &&
	       (seen->cause == CAUSE_RESTART || seen->cause == CAUSE_IN_VAIN);
}

static bool has_result(const struct decide_seen *seen, enum decide_purpose purpose)
{
	return (seen->search == SEARCH_FOUND || seen->search == SEARCH_NOWHERE) && seen->purpose == purpose;
}

// ---- rules of all ----

static bool is_removed(struct deciding *at)
{
	const bool in_vain = at->seen->cause == CAUSE_IN_VAIN;
	return at->seen->removed && take(at, in_vain ? ACTION_REMOVE : ACTION_FAIL, "%s", at->seen->removed);
}

// Nothing has been promised yet, and the caller of instance.create gets the reason.
static bool cannot_be_loaded(struct deciding *at)
{
	return at->seen->news == NEWS_LOST && take(at, ACTION_FAIL, "%s", at->seen->news_text);
}

static bool is_stood_in_for(struct deciding *at)
{
	return at->seen->cause == CAUSE_IN_VAIN && !at->seen->placed_anew && at->seen->stood_in_for &&
	       take(at, ACTION_REMOVE, "it was begun meanwhile");
}

static bool dies_often(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	return seen->news == NEWS_LOST && seen->worker_died && !returns(seen) && seen->deaths >= seen->deaths_most &&
	       take(at, ACTION_FAIL, "%s", seen->news_text);
}

static bool is_stale(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	const bool foreign = runs(seen) ? seen->purpose == PURPOSE_PLACE : seen->purpose != PURPOSE_PLACE;
	return seen->search != SEARCH_NONE && (seen->stale || foreign) &&
	       take(at, ACTION_DROP, "the place was searched for another placement of the instance");
}

static bool requests_waited(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	return !runs(seen) && seen->requests_until_ms && at->now_ms >= seen->requests_until_ms &&
	       take(at, ACTION_END_REQUESTS, "requests have waited for %lld s", (long long)at->wanted->pause_ms / 1000);
}

static bool is_cut_off(struct deciding *at)
{
	at->out->cause = CAUSE_LOSS;
	at->out->tell = true;
	return at->seen->news == NEWS_CUT_OFF && take(at, ACTION_PAUSE, "%s", at->seen->news_text);
}

static bool is_lost(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	if (seen->news != NEWS_LOST)
		return false;
	at->out->tell = true;
	at->out->cause = CAUSE_LOSS;
	if (seen->instance_state != INSTANCE_PAUSED)
		return take(at, ACTION_PAUSE, "%s", seen->news_text);
	// A first failure may have been caused by work that ran on the device before.
	at->out->avoids = seen->attempts && seen->news_of_part && !seen->all_kept_failed;
	at->out->counts = !returns(seen);
	const bool spares = !seen->placed_anew && !returns(seen) && seen->news_of_part && seen->part_has_no_worker;
	return take(at, spares ? ACTION_SPARE : ACTION_RELEASE, "%s", seen->news_text);
}

static bool is_broken(struct deciding *at)
{
	static const char why[] = "a connection between its parts is broken";
	if (at->seen->workers != WORKERS_BROKEN)
		return false;
	at->out->tell = true;
	at->out->cause = CAUSE_LOSS;
	return take(at, at->seen->instance_state == INSTANCE_PAUSED ? ACTION_MEND : ACTION_PAUSE, why);
}

// ---- rules for a paused instance ----

static bool is_back(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	const int64_t settled_ms = seen->workers_ms + DECIDE_SETTLE_MS;
	if (seen->workers != WORKERS_BACK)
		return false;
	if (returns(seen) && seen->several && at->now_ms < settled_ms) // nodes tell of their links
		return wait_until(at, settled_ms, "its nodes are to reach each other");
	return take(at, ACTION_MEND, "its workers are back");
}

static bool is_at_work(struct deciding *at)
{
	return at->seen->workers == WORKERS_BUSY &&
	       wait_until(at, at->now_ms + DECIDE_WORK_MS, "its workers load, or are being connected");
}

static bool may_return(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	const int64_t until_ms = seen->paused_ms + decide_rejoin_ms(at->wanted),
		      settled_ms = seen->devices_back_ms + DECIDE_SETTLE_MS;
	const bool gone = seen->workers == WORKERS_NONE, back = !seen->coming && gone,
		   settled = back && (!seen->several_nodes || at->now_ms >= settled_ms);
	if (!returns(seen) || settled || at->now_ms >= until_ms)
		return false;
	int64_t look_ms = at->now_ms + DECIDE_LOOK_MS;
	look_ms = back && settled_ms < look_ms ? settled_ms : look_ms;
	at->out->tell = true;
	return wait_until(at, look_ms < until_ms ? look_ms : until_ms, "%.448s: it waits for %s%s", seen->why,
			  seen->coming ? seen->coming
			  : !gone      ? "its workers"
				       : "its nodes to reach each other",
			  seen->coming && seen->several_missing ? " and the other devices it was on" : "");
}

static bool node_may_be_back(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	const int64_t until_ms = seen->workers_ms + decide_grace_ms(seen);
	return seen->workers == WORKERS_AWAY && !returns(seen) && at->now_ms < until_ms &&
	       wait_until(at, until_ms, "a node that is cut off may be back by then");
}

// Where something is short now, there may be room for all of it in a moment.
static bool waits_for_room(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->tell = true;
	return seen->search == SEARCH_FOUND && !seen->whole_there && seen->cause == CAUSE_IN_VAIN &&
	       !seen->placed_anew && (seen->lags || comes_back_since(at, DECIDE_WHOLE_MS)) &&
	       take(at, ACTION_NO_PLACE, "%.384s: the memory that it had does not show as free yet", seen->why);
}

static bool has_place(struct deciding *at)
{
	at->out->cause = at->seen->cause;
	return at->seen->search == SEARCH_FOUND && take(at, ACTION_PLACE, "%s", at->seen->search_text);
}

// Finishing its requests counts more than its pins.
static bool drops_pins(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->without_pins = true;
	at->out->avoids = seen->avoided;
	return seen->search == SEARCH_NOWHERE && at->wanted->pinned && !seen->without_pins &&
	       search(at, PURPOSE_PLACE, "there is no place on the devices that it is pinned to");
}

static bool takes_any_device(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->without_pins = at->out->avoids = false;
	return seen->search == SEARCH_NOWHERE && seen->avoided &&
	       search(at, PURPOSE_PLACE, "there is no place but where it failed the last time");
}

// Without a place for the rest, its spared parts must not keep memory from others.
static bool ends_spared(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	return seen->search == SEARCH_NOWHERE && seen->workers == WORKERS_SPARED &&
	       at->now_ms >= seen->paused_ms + decide_grace_ms(seen) &&
	       take(at, ACTION_RELEASE, "there is no place for the rest of the instance");
}

static bool has_no_place(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	const bool in_vain = seen->cause == CAUSE_IN_VAIN;
	at->out->tell = true;
	return seen->search == SEARCH_NOWHERE && take(at, ACTION_NO_PLACE, "%.300s%sit waits for a place: %.384s",
						      in_vain ? seen->why : "", in_vain ? ": " : "", seen->search_text);
}

static bool is_searched_for(struct deciding *at)
{
	return at->seen->search == SEARCH_RUNS &&
	       wait_until(at, at->now_ms + DECIDE_WORK_MS, "a place is being searched for");
}

static bool is_due(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->avoids = seen->failed_there;
	return at->now_ms >= seen->due_ms && search(at, PURPOSE_PLACE, "it has no place");
}

static bool is_due_later(struct deciding *at)
{
	return wait_until(at, at->seen->due_ms, "a place is searched for again by then");
}

// ---- rules for a running instance ----

static bool makes_room(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->cause = CAUSE_EVICTED;
	return seen->evicted_for && take(at, seen->unloads ? ACTION_UNLOAD : ACTION_SPILL,
					 "it is idle, and %.128s needs its memory", seen->evicted_for);
}

static bool leaves_draining(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->cause = CAUSE_DRAIN;
	if (!seen->draining && seen->purpose == PURPOSE_LEAVE && seen->search != SEARCH_NONE)
		return take(at, ACTION_DROP, "none of its devices is draining or rests any more");
	if (!seen->draining)
		return false;
	if (seen->search != SEARCH_NONE && seen->purpose != PURPOSE_LEAVE)
		return take(at, ACTION_DROP, "%s %s, which comes first", seen->draining,
			    seen->rests ? "rests" : "is draining");
	if (seen->search == SEARCH_FOUND && seen->rests)
		return take(at, ACTION_PLACE, "it leaves %s, which rests: %s", seen->draining, seen->rests);
	if (seen->search == SEARCH_FOUND)
		return take(at, ACTION_PLACE, "it leaves %s, which is draining", seen->draining);
	if (seen->search == SEARCH_NOWHERE)
		return take(at, ACTION_STAY, "there is no other place: %.384s", seen->search_text);
	return seen->search == SEARCH_NONE && at->now_ms >= seen->due_ms &&
	       search(at, PURPOSE_LEAVE,
		      seen->rests ? "a device that it is on rests" : "a device that it is on is draining");
}

// What was searched for is not taken: because of `why`, or because nothing was found.
static bool stay(struct deciding *at, const char *why)
{
	return take(at, ACTION_STAY, "%s", at->seen->search == SEARCH_FOUND ? why : at->seen->search_text);
}

static bool is_past(int64_t since_ms, int64_t ms)
{
	return since_ms < 0 || since_ms >= ms;
}

// Nothing is done about a device that is held back for a moment, or whose load another instance has just made less.
static bool lasts(const struct decide_seen *seen, int64_t held_ms, int64_t less_ms)
{
	return held_ms >= DECIDE_HOT_MS && is_past(less_ms, DECIDE_EASED_MS) &&
	       is_past(seen->heat_moved_ms, DECIDE_HEAT_APART_MS);
}

static bool must_step(const struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	return seen->strained && seen->smaller && lasts(seen, seen->strained_ms, seen->relieved_ms);
}

// Comes before a move: where the instance permits a smaller format, it stays.
static bool steps_down(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->cause = CAUSE_STEP_DOWN;
	if (has_result(seen, PURPOSE_STEP_DOWN)) {
		if (!must_step(at))
			return take(at, ACTION_DROP, "no smaller format is called for any more");
		if (seen->search == SEARCH_FOUND && seen->pays_there)
			return take(at, ACTION_PLACE, "%s gets too hot for its work: its weights go from %s to %s",
				    seen->strained, seen->held_format, seen->smaller);
		return stay(at, "it is not faster in a smaller format by as much as that is worth");
	}
	return must_step(at) && seen->works && seen->search == SEARCH_NONE && at->now_ms >= seen->due_ms &&
	       is_past(seen->format_searched_ms, DECIDE_HEAT_AGAIN_MS) &&
	       search(at, PURPOSE_STEP_DOWN, "a device that it is on is held back, and it may be in a smaller format");
}

static bool must_leave(const struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	return !at->wanted->pinned && seen->hot && lasts(seen, seen->hot_ms, seen->eased_ms);
}

static bool leaves_hot(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->cause = CAUSE_HEAT;
	if (has_result(seen, PURPOSE_COOLER)) {
		if (!must_leave(at))
			return take(at, ACTION_DROP, "none of its devices has to be left for its heat any more");
		if (seen->search == SEARCH_FOUND && seen->pays_there && seen->gives)
			return take(at, ACTION_PLACE, "%s gets too hot for its work: %u of its %u layers go to %s",
				    seen->gives_from, seen->gives, seen->gives_of, seen->search_text);
		if (seen->search == SEARCH_FOUND && seen->pays_there)
			return take(at, ACTION_PLACE, "it leaves %s, which gets too hot for its work, for %s",
				    seen->hot, seen->search_text);
		return stay(at, "no cooler place is faster by as much as a move is worth");
	}
	return must_leave(at) && seen->works && seen->search == SEARCH_NONE && at->now_ms >= seen->due_ms &&
	       is_past(seen->heat_searched_ms, DECIDE_HEAT_AGAIN_MS) &&
	       search(at, PURPOSE_COOLER, "a device that it is on is held back for its heat");
}

static bool takes_format(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	const char *format = at->wanted->format;
	at->out->cause = CAUSE_FORMAT;
	if (!format)
		return seen->search != SEARCH_NONE && seen->purpose == PURPOSE_FORMAT &&
		       take(at, ACTION_DROP, "no other format is wanted any more");
	if (has_result(seen, PURPOSE_FORMAT) && seen->search == SEARCH_FOUND)
		return take(at, ACTION_PLACE, "its weights are to be held in %.32s", format);
	if (has_result(seen, PURPOSE_FORMAT)) {
		at->out->tell = true;
		return take(at, ACTION_STAY, "it stays in %s; in %.32s: %.384s", seen->held_format, format,
			    seen->search_text);
	}
	return seen->search == SEARCH_NONE && at->now_ms >= seen->due_ms &&
	       search(at, PURPOSE_FORMAT, "another format is wanted");
}

static bool goes_back(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->cause = CAUSE_RETURN;
	if (has_result(seen, PURPOSE_WHOLE)) {
		if (seen->search == SEARCH_FOUND && seen->whole_there && seen->same_place)
			return take(at, ACTION_WHOLE, "all of its layers are where they are to be");
		if (seen->search == SEARCH_FOUND && seen->whole_there && !seen->others_wait)
			return take(at, ACTION_PLACE, "there is room for all of its layers again");
		return take(at, ACTION_STAY_LATER, "%s",
			    seen->search == SEARCH_FOUND && seen->whole_there ? "another one waits for a place"
									      : seen->search_text);
	}
	if (!at->wanted->whole || seen->search != SEARCH_NONE || at->now_ms < seen->due_ms)
		return false;
	if (at->now_ms >= seen->room_due_ms)
		return take(at, ACTION_LOOK_ROOM, "there may be room for its evicted layers");
	return seen->room && seen->room_untried && !seen->others_wait &&
	       search(at, PURPOSE_WHOLE, "there is room for its evicted layers");
}

static bool may_go_back(const struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	return !at->wanted->pinned && seen->left && seen->left_cool && seen->heat_moved_ms >= DECIDE_HEAT_APART_MS;
}

static bool goes_back_cooled(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->cause = CAUSE_COOLED;
	if (has_result(seen, PURPOSE_COOLED)) {
		if (!may_go_back(at))
			return take(at, ACTION_DROP, "it may not go back any more");
		if (seen->search == SEARCH_FOUND && seen->pays_there)
			return take(at, ACTION_PLACE,
				    "%s, which it had left for its heat, is cool again: it goes to %s", seen->left,
				    seen->search_text);
		return stay(at, "no place is faster by as much as a move is worth");
	}
	return may_go_back(at) && seen->search == SEARCH_NONE && at->now_ms >= seen->due_ms &&
	       is_past(seen->heat_searched_ms, DECIDE_HEAT_APART_MS) &&
	       search(at, PURPOSE_COOLED, "the device that it left for its heat is cool again");
}

static bool may_step_back(const struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	return seen->stepped_from && seen->all_cool && seen->heat_moved_ms >= DECIDE_HEAT_APART_MS;
}

static bool steps_back(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	at->out->cause = CAUSE_STEP_BACK;
	if (has_result(seen, PURPOSE_STEP_BACK)) {
		if (!may_step_back(at))
			return take(at, ACTION_DROP, "it may not go back to its format any more");
		if (seen->search == SEARCH_FOUND && seen->whole_there)
			return take(at, ACTION_PLACE, "its devices are cool again: its weights go back from %s to %s",
				    seen->held_format, seen->stepped_from);
		return stay(at, "there is no room on devices for its format of before");
	}
	return may_step_back(at) && seen->search == SEARCH_NONE && at->now_ms >= seen->due_ms &&
	       is_past(seen->format_searched_ms, DECIDE_HEAT_APART_MS) &&
	       search(at, PURPOSE_STEP_BACK, "its devices are cool, and heat has changed its format");
}

static bool goes_faster(struct deciding *at)
{
	const struct decide_seen *seen = at->seen;
	const struct decide_wanted *wanted = at->wanted;
	at->out->cause = CAUSE_MOVE;
	if (has_result(seen, PURPOSE_FASTER)) {
		if (seen->search == SEARCH_FOUND && seen->faster_there && (wanted->moves || wanted->takes_faster))
			return take(at, ACTION_PLACE, "it moves to %s, where it is faster", seen->search_text);
		return stay(at, seen->faster_there ? "a faster place is offered, and nobody asked for it"
						   : "no place is faster by as much as a move is worth");
	}
	return !wanted->pinned && seen->search == SEARCH_NONE && at->now_ms >= seen->due_ms &&
	       (wanted->moves || seen->devices_changed || seen->uneven) &&
	       search(at, PURPOSE_FASTER,
		      wanted->moves           ? "a faster place is wanted"
		      : seen->devices_changed ? "there are other devices than before"
					      : "one of its parts slows the others down");
}

static bool is_loaded(struct deciding *at)
{
	return wait_until(at, at->now_ms + DECIDE_WORK_MS, "it is being loaded");
}

static bool is_well(struct deciding *at)
{
	const int64_t due_ms[] = {at->seen->due_ms, at->wanted->whole ? at->seen->room_due_ms : 0};
	int64_t until_ms = at->now_ms + DECIDE_LOOK_MS; // devices begin to drain without a word
	for (size_t i = 0; i < sizeof due_ms / sizeof *due_ms; i++)
		if (due_ms[i] > at->now_ms && due_ms[i] < until_ms)
			until_ms = due_ms[i];
	return wait_until(at, until_ms, "it is well where it is");
}

// ---- the table ----

enum {
	IN_STARTING = 1 << INSTANCE_STARTING,
	IN_RUNNING = 1 << INSTANCE_RUNNING,
	IN_PAUSED = 1 << INSTANCE_PAUSED,
	IN_LOADING = 1 << INSTANCE_LOADING
};

// The first rule that applies decides.
static const struct rule {
	const char *name;
	unsigned states;
	bool (*decides)(struct deciding *at); // false: it does not apply
} rules[] = {
	{"it cannot be loaded", IN_STARTING | IN_LOADING, cannot_be_loaded},
	{"the model was removed", IN_PAUSED, is_removed},
	{"another stands in for it", IN_PAUSED, is_stood_in_for},
	{"its worker dies often", IN_RUNNING | IN_PAUSED, dies_often},
	{"the search is stale", IN_RUNNING | IN_PAUSED, is_stale},
	{"requests waited long enough", IN_PAUSED, requests_waited},
	{"a part is lost", IN_RUNNING | IN_PAUSED, is_lost},
	{"a node is cut off", IN_LOADING | IN_RUNNING | IN_PAUSED, is_cut_off},
	{"a connection is broken", IN_LOADING | IN_RUNNING | IN_PAUSED, is_broken},
	// Paused, with workers that are left or at work.
	{"workers are back", IN_PAUSED, is_back},
	{"workers are at work", IN_PAUSED, is_at_work},
	{"devices of before may return", IN_PAUSED, may_return},
	{"a node may be back", IN_PAUSED, node_may_be_back},
	// Paused, without a place.
	{"memory is not free yet", IN_PAUSED, waits_for_room},
	{"a place was found", IN_PAUSED, has_place},
	{"pins are left out", IN_PAUSED, drops_pins},
	{"no device is avoided", IN_PAUSED, takes_any_device},
	{"what was spared ends", IN_PAUSED, ends_spared},
	{"there is no place", IN_PAUSED, has_no_place},
	{"a place is searched for", IN_PAUSED, is_searched_for},
	{"a search is due", IN_PAUSED, is_due},
	{"a search is due later", IN_PAUSED, is_due_later},
	// Running.
	{"another model needs room", IN_RUNNING, makes_room},
	{"a device is draining or rests", IN_RUNNING, leaves_draining},
	{"a smaller format is cooler", IN_RUNNING, steps_down},
	{"a device is too hot", IN_RUNNING, leaves_hot},
	{"another format is wanted", IN_RUNNING, takes_format},
	{"evicted layers go back", IN_RUNNING, goes_back},
	{"a device has cooled", IN_RUNNING, goes_back_cooled},
	{"heat changed its format, and is over", IN_RUNNING, steps_back},
	{"a faster place", IN_RUNNING, goes_faster},
	{"all is well", IN_RUNNING, is_well},
	{"it is being loaded", IN_STARTING | IN_LOADING, is_loaded},
};

// Requests get an error in time, whatever else the instance waits for.
static void bound_wait(struct deciding *at)
{
	struct decision *out = at->out;
	const int64_t requests_ms = at->seen->instance_state == INSTANCE_PAUSED ? at->seen->requests_until_ms : 0;
	if (requests_ms && out->until_ms > requests_ms)
		out->until_ms = requests_ms;
	if (out->until_ms < at->now_ms)
		out->until_ms = at->now_ms;
}

void instance_decide(struct decision *out, const struct decide_wanted *wanted, const struct decide_seen *seen,
		     int64_t now_ms)
{
	struct deciding at = {.wanted = wanted, .seen = seen, .now_ms = now_ms, .out = out};
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		*out = (struct decision){.rule = rules[i].name};
		if (!(rules[i].states & (1u << seen->instance_state)) || !rules[i].decides(&at))
			continue;
		if (out->action == ACTION_WAIT)
			bound_wait(&at);
		return;
	}
	*out = (struct decision){.rule = "its state is not decided here", .until_ms = now_ms + DECIDE_WORK_MS};
	snprintf(out->reason, sizeof out->reason, "it is %s", instance_state_name(seen->instance_state));
}

const char *decide_rule_name(unsigned index)
{
	return index < sizeof rules / sizeof *rules ? rules[index].name : NULL;
}

const char *decide_action_name(enum decide_action action)
{
	static const char *const names[] = {
		[ACTION_WAIT] = "wait",         [ACTION_FAIL] = "fail",
		[ACTION_REMOVE] = "remove",     [ACTION_SPILL] = "spill",
		[ACTION_UNLOAD] = "unload",     [ACTION_END_REQUESTS] = "end requests",
		[ACTION_PAUSE] = "pause",       [ACTION_SPARE] = "spare",
		[ACTION_RELEASE] = "release",   [ACTION_MEND] = "mend",
		[ACTION_SEARCH] = "search",     [ACTION_PLACE] = "place",
		[ACTION_NO_PLACE] = "no place", [ACTION_DROP] = "drop",
		[ACTION_STAY] = "stay",         [ACTION_STAY_LATER] = "stay for longer",
		[ACTION_WHOLE] = "whole",       [ACTION_LOOK_ROOM] = "look for room",
	};
	return names[action];
}
