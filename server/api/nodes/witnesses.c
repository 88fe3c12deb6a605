/* See witnesses.h. */
#include "server/api/nodes/witnesses.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/wire/said.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t LATEST_S = 253402300799; // the end of the year 9999

enum {
	TRIES = 3,
	SAVE_MS = 200,
	ANSWER_MS = 5000,
	COMPLAIN_MS = 3600 * 1000,
	SEGMENTS_MOST = 1000,
	OWED_MOST = 4
}; // SEGMENTS_MOST: of one message

struct witness {
	struct witness *next;
	struct witnesses *all;
	char node_id[STORE_ID_BYTES];
	bool here, asking, warned;
	bool refused;          // it is not asked again before it comes again
	unsigned tries;        // one after the other, until what it holds is known
	uint64_t known;        // what it holds, as far as we know
	int64_t complained_ms; // when its refusal was last told; 0: never
	// The head that it is asked for.
	struct checkpoint head;
	char *note;
	struct note_key first_key;
	// What it has signed.
	struct note_key key;
	uint64_t size;
	int64_t at_s;
	// What it holds, for a verification.
	unsigned owed;       // answers, of this and earlier verifications
	struct json *answer; // its place in `answers`; NULL: nobody waits for it
};

struct witnesses {
	struct witnesses_params params;
	struct witness *first;
	unsigned count;
	struct net_timer tick, save;
	uint64_t size; // of the head with the most entries that was cosigned
	struct buffer note;
	// A verification that asks what they hold.
	struct json *answers;    // NULL: there is none
	unsigned waiting, round; // round: counts them
	struct net_timer patience;
	void (*gathered)(void *context, struct json *answers);
	void *context;
};

static void look(void *arg);
static void ask(struct witness *witness);

enum status witnesses_create(struct witnesses **out, const struct witnesses_params *params)
{
	struct witnesses *witnesses = calloc(1, sizeof(*witnesses));
	*out = witnesses;
	if (!witnesses)
		return STATUS_OUT_OF_MEMORY;
	witnesses->params = *params;
	buffer_init(&witnesses->note, NOTE_BYTES);
	net_timer_start(params->loop, &witnesses->tick, LIMIT_WITNESS_MS, look, witnesses);
	return STATUS_OK;
}

void witnesses_destroy(struct witnesses **pointer)
{
	struct witnesses *witnesses = *pointer;
	if (!witnesses)
		return;
	*pointer = NULL;
	net_timer_stop(witnesses->params.loop, &witnesses->tick);
	net_timer_stop(witnesses->params.loop, &witnesses->save);
	net_timer_stop(witnesses->params.loop, &witnesses->patience);
	if (witnesses->answers)
		witnesses->gathered(witnesses->context, NULL);
	json_destroy(&witnesses->answers);
	for (struct witness *next, *one = witnesses->first; one; one = next) {
		next = one->next;
		free(one->note);
		free(one);
	}
	buffer_finish(&witnesses->note);
	free(witnesses);
}

// ---- what comes back ----

static void save(void *arg)
{
	struct witnesses *witnesses = arg;
	struct store_batch *batch = NULL;
	if (store_batch_create(&batch) || store_put_cosigned(batch, witnesses->size, buffer_text(&witnesses->note))) {
		store_batch_destroy(&batch);
		return; // the witnesses have it, and the next head comes soon
	}
	store_commit(witnesses->params.store, &batch, NULL, NULL);
}

// Add the line to the note of that many entries, if it is the largest that was cosigned.
static void keep(struct witness *witness, const char *line)
{
	struct witnesses *all = witness->all;
	if (witness->head.size < all->size ||
	    (witness->head.size == all->size && note_check(buffer_text(&all->note), &witness->key, NULL)))
		return;
	if (witness->head.size > all->size) {
		buffer_clear(&all->note);
		buffer_append_text(&all->note, witness->note);
		all->size = witness->head.size;
	}
	if (all->note.length + strlen(line) + 1 > NOTE_BYTES) // it has more than enough of them
		return;
	buffer_printf(&all->note, "%s\n", line);
	if (!all->save.running)
		net_timer_start(all->params.loop, &all->save, SAVE_MS, save, all);
}

// Once, until it has signed again.
static void warn(struct witness *witness, const char *why)
{
	if (!witness->warned)
		log_warning("audit", "node %s does not witness the audit log: %s", witness->node_id, why);
	witness->warned = true;
}

// ---- another log ----

static void name_of(const struct witness *witness, char name[STORE_NAME_BYTES])
{
	struct json *node = cluster_describe_node(witness->all->params.cluster, witness->node_id);
	snprintf(name, STORE_NAME_BYTES, "%s", json_get_string(node, "name", witness->node_id));
	json_destroy(&node);
}

// The entry by which the log itself tells it (common/journal/verify.h), with the alert's change in one transaction.
static struct store_batch *tell(struct witness *witness, uint64_t shown, enum status outcome)
{
	char detail[96];
	struct store_batch *batch = NULL;
	snprintf(detail, sizeof(detail), "{\"held\":%" PRIu64 ",\"shown\":%" PRIu64 "}", witness->known, shown);
	const struct audit_event event = {.action = "audit.witness",
					  .target = witness->node_id,
					  .node_id = witness->node_id,
					  .outcome = outcome,
					  .detail = detail};
	if (store_batch_create(&batch) || audit_put(witness->all->params.audit, batch, &event))
		store_batch_destroy(&batch);
	return batch;
}

// It holds `known` entries, and does not sign the head of `shown`.
static void complain(struct witness *witness, uint64_t shown, const char *why)
{
	char name[STORE_NAME_BYTES], message[512];
	struct alerts *alerts = witness->all->params.alerts;
	const int64_t now_ms = clock_steady_ms();
	witness->refused = true;
	if (witness->complained_ms && now_ms - witness->complained_ms < COMPLAIN_MS &&
	    alerts_stands(alerts, ALERT_AUDIT_FORKED, witness->node_id))
		return;
	witness->complained_ms = now_ms;
	name_of(witness, name);
	log_error("audit",
		  "node %s holds %" PRIu64 " entries of the audit log as its witness and refuses the head of %" PRIu64
		  ": %s. The log was cut, replaced or restored from a backup; look into it with exogpu audit verify "
		  "--witness and the file node/witness/head of that machine",
		  witness->node_id, witness->known, shown, why);
	if (witness->known > shown)
		snprintf(message, sizeof(message),
			 "node %.128s holds %" PRIu64 " entries of the audit log, and here are only %" PRIu64
			 ": the newest were lost, and it does not sign the rest",
			 name, witness->known, shown);
	else
		snprintf(message, sizeof(message),
			 "node %.128s holds another audit log than this one, of %" PRIu64
			 " entries, and does not sign this one, "
			 "of %" PRIu64,
			 name, witness->known, shown);
	const struct alert alert = {.kind = ALERT_AUDIT_FORKED,
				    .severity = "critical",
				    .subject_type = "node",
				    .subject_id = witness->node_id,
				    .node_id = witness->node_id,
				    .subject_name = name,
				    .message = message,
				    .hint = "the log was cut, replaced or restored from a backup, or this node does "
					    "not tell the truth: keep the "
					    "data directory as it is, and compare it with that machine's "
					    "DATA/node/witness/head (exogpu audit "
					    "verify --witness). If this log is the one that you want, move "
					    "DATA/node/witness away there and "
					    "start the node anew, or remove the node"};
	struct store_batch *batch = tell(witness, shown, STATUS_CONFLICT);
	if (!batch || alerts_raise(alerts, &alert, &batch))
		log_error("audit", "that node %s holds another audit log could not be stored", witness->node_id);
}

// It signs again, or for the first time.
static void settle(struct witness *witness)
{
	struct alerts *alerts = witness->all->params.alerts;
	if (!alerts_stands(alerts, ALERT_AUDIT_FORKED, witness->node_id))
		return;
	struct store_batch *batch = tell(witness, witness->head.size, STATUS_OK);
	if (batch)
		alerts_clear(alerts, ALERT_AUDIT_FORKED, witness->node_id, &batch);
}

static bool is_there(void *context, const char *node_id)
{
	const struct witnesses *witnesses = context;
	return cluster_has_node(witnesses->params.cluster, node_id, NULL);
}

void witnesses_conflict(struct witnesses *witnesses, const char *node_id, uint64_t size)
{
	struct store_audit_head head;
	struct witness *witness = witnesses->first;
	while (witness && strcmp(witness->node_id, node_id) != 0)
		witness = witness->next;
	if (!witness)
		return;
	store_read_audit_head(witnesses->params.store, &head);
	witness->known = size;
	complain(witness, head.checkpoint.size, "it says so when it is asked what it holds");
}

// True if this is one line, a cosignature of the head that was asked for, by a key with the name that this node's has:
// any other name could be the log's own, and then the line would stand beside the log's signature as a second, wrong
// one.
static bool check(struct witness *witness, const struct json *result, const char *line)
{
	struct buffer note;
	struct note_key key;
	int64_t at_s = 0;
	char name[NOTE_NAME_BYTES];
	snprintf(name, sizeof(name), "exogpu-witness-%s", witness->node_id);
	buffer_init(&note, NOTE_BYTES);
	buffer_append_text(&note, witness->note);
	bool good = !strchr(line, '\n') && !buffer_printf(&note, "%s\n", line) &&
		    !note_key_parse(&key, json_get_string(result, "key", "")) && key.algorithm == NOTE_COSIGNATURE &&
		    !strcmp(key.name, name) && note_check(buffer_text(&note), &key, &at_s) && at_s <= LATEST_S;
	buffer_finish(&note);
	if (!good)
		return false;
	witness->key = key;
	witness->at_s = at_s;
	witness->size = witness->known = witness->head.size;
	return true;
}

static void answered(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct witness *witness = context;
	const char *line = json_get_string(result, "cosignature", NULL);
	uint64_t size = (uint64_t)json_get_integer(result, "size", 0);
	witness->asking = false;
	if (status == STATUS_CONFLICT) {
		complain(witness, witness->head.size, error->message);
	} else if (status) {
		warn(witness, error->message);
	} else if (line) {
		witness->tries = 0;
		if (size != witness->head.size || !check(witness, result, line)) {
			warn(witness, "its signature is not one of this head");
			return;
		}
		witness->warned = false;
		keep(witness, line);
		settle(witness);
	} else {
		witness->known = size;
		if (++witness->tries < TRIES)
			ask(witness);
		else
			warn(witness, "what it holds is never what it says that it holds");
	}
}

// ---- asking ----

// Who holds nothing yet is given the key of the newest segment to believe; others follow it from the one they know.
static struct json *segments_for(const struct witness *witness, const struct json *after)
{
	const struct json *last = NULL;
	struct json *segments;
	char key[NOTE_KEY_TEXT_BYTES];
	if (witness->known)
		return json_copy(after);
	segments = json_new_array();
	for (const struct json *one = json_first(after); one; one = json_next(one))
		last = one;
	struct json *segment = last ? json_copy(last) : json_new_object();
	if (!last) {
		note_key_print(&witness->first_key, key);
		json_set_integer(segment, "number", 0);
		json_set_integer(segment, "first", 0);
		json_set_string(segment, "key", key);
		json_set_string(segment, "certificate", "");
	}
	json_push(segments, segment);
	return segments;
}

static void show(struct witness *witness, const struct json *proof, const struct json *segments)
{
	struct json *params = json_new_object();
	json_set_string(params, "checkpoint", witness->note);
	json_set_integer(params, "from", (int64_t)witness->known);
	json_set(params, "proof", proof ? json_copy(proof) : json_new_array());
	json_set(params, "segments", segments ? segments_for(witness, segments) : json_new_array());
	if (cluster_ask(witness->all->params.cluster, witness->node_id, "audit.witness", params, answered, witness))
		witness->asking = witness->here = false;
}

static void proved(void *context, enum status status, struct json *result, const struct error *error)
{
	struct witness *witness = context;
	if (status) {
		witness->asking = false;
		warn(witness, error->message);
	} else if (witness->known && json_count(json_get(result, "segments")) > SEGMENTS_MOST) {
		witness->asking = false;
		warn(witness,
		     "the log has changed its key too often since; move its DATA/node/witness away, and it begins "
		     "anew");
	} else {
		show(witness, json_get(result, "proof"), json_get(result, "segments"));
	}
	json_destroy(&result);
}

static void ask(struct witness *witness)
{
	struct store_audit_head head;
	struct store *store = witness->all->params.store;
	store_read_audit_head(store, &head);
	if (witness->asking || witness->refused || !witness->here || !head.checkpoint.size)
		return;
	char *note = strdup(head.note);
	if (!note)
		return;
	free(witness->note);
	witness->note = note;
	witness->head = head.checkpoint;
	witness->first_key = head.first_key;
	witness->asking = true;
	if (witness->known > head.checkpoint.size) // nothing proves that; it is shown, so that the witness keeps it
		show(witness, NULL, NULL);
	else if (store_prove_audit(store, witness->known, head.checkpoint.size, proved, witness))
		witness->asking = false;
}

static void look(void *arg)
{
	struct witnesses *witnesses = arg;
	struct store_audit_head head;
	store_read_audit_head(witnesses->params.store, &head);
	alerts_clear_gone(witnesses->params.alerts, ALERT_AUDIT_FORKED, is_there, witnesses);
	for (struct witness *one = witnesses->first; one; one = one->next)
		if (one->size < head.checkpoint.size) {
			one->tries = 0;
			ask(one);
		}
	net_timer_start(witnesses->params.loop, &witnesses->tick, LIMIT_WITNESS_MS, look, witnesses);
}

// Nodes that were removed, and of which no answer is awaited, leave their places to others.
static void forget_removed(struct witnesses *witnesses)
{
	for (struct witness **at = &witnesses->first; *at;) {
		struct witness *one = *at;
		if (one->asking || one->owed || cluster_has_node(witnesses->params.cluster, one->node_id, NULL)) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		witnesses->count--;
		free(one->note);
		free(one);
	}
}

void witnesses_node_came(struct witnesses *witnesses, const char *node_id)
{
	struct witness *witness = witnesses->first;
	while (witness && strcmp(witness->node_id, node_id) != 0)
		witness = witness->next;
	if (!witness) {
		forget_removed(witnesses);
		witness = witnesses->count < LIMIT_NODES ? calloc(1, sizeof(*witness)) : NULL;
		if (!witness)
			return;
		witness->all = witnesses;
		snprintf(witness->node_id, sizeof(witness->node_id), "%s", node_id);
		witness->next = witnesses->first;
		witnesses->first = witness;
		witnesses->count++;
	}
	witness->here = true;
	witness->refused = witness->warned = false;
	witness->tries = 0;
	ask(witness);
}

struct json *witnesses_json(const struct witnesses *witnesses)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *array = json_new_array();
	for (const struct witness *one = witnesses->first; one; one = one->next) {
		if (!one->size || !cluster_has_node(witnesses->params.cluster, one->node_id, NULL))
			continue;
		struct json *json = json_new_object();
		json_set_string(json, "name", one->key.name);
		json_set_string(json, "node_id", one->node_id);
		json_set_integer(json, "size", (int64_t)one->size);
		json_set_string(json, "at", clock_format(one->at_s * 1000, at));
		json_push(array, json);
	}
	return array;
}

// ---- what they hold, for a verification ----

static void finish_gathering(void *arg)
{
	struct witnesses *witnesses = arg;
	struct json *answers = witnesses->answers;
	net_timer_stop(witnesses->params.loop, &witnesses->patience);
	for (struct witness *one = witnesses->first; one; one = one->next)
		one->answer = NULL;
	witnesses->answers = NULL;
	witnesses->gathered(witnesses->context, answers);
}

// What it has answered, if that is a head which it has signed itself, by a key with the name that this node's has.
static const char *check_held(const struct witness *witness, const struct json *result)
{
	struct checkpoint head;
	struct note_key key;
	struct error error = {0};
	char name[NOTE_NAME_BYTES];
	const char *note = json_get_string(result, "note", "");
	snprintf(name, sizeof(name), "exogpu-witness-%s", witness->node_id);
	if (checkpoint_parse(&head, note, &error) || (int64_t)head.size != json_get_integer(result, "size", -1))
		return "what it holds is not the head of a log";
	if (note_key_parse(&key, json_get_string(result, "key", "")) || key.algorithm != NOTE_COSIGNATURE ||
	    strcmp(key.name, name) != 0 || !note_check(note, &key, NULL))
		return "it has not signed what it holds";
	return NULL;
}

struct question {
	struct witness *witness;
	unsigned round;
};

static void held(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct question *question = context;
	struct witness *witness = question->witness;
	struct json *answer = question->round == witness->all->round ? witness->answer : NULL;
	free(question);
	witness->owed--;
	if (!answer)
		return; // too late
	witness->answer = NULL;
	const bool none = !status && !json_get_string(result, "note", NULL);
	const char *why = status ? error->message : none ? NULL : check_held(witness, result);
	json_set_string(answer, "state", none ? "none" : why ? "unusable" : "asked");
	said_set(answer, "reason", why);
	if (!none && !why) {
		json_set_integer(answer, "size", json_get_integer(result, "size", 0));
		json_set_string(answer, "note", json_get_string(result, "note", ""));
	}
	if (!--witness->all->waiting)
		finish_gathering(witness->all);
}

// Its place among the answers, and the question.
static void ask_held(struct witness *witness)
{
	struct witnesses *all = witness->all;
	char name[STORE_NAME_BYTES];
	struct json *answer = json_new_object();
	name_of(witness, name);
	json_set_string(answer, "node_id", witness->node_id);
	json_set_string(answer, "name", name);
	json_set_string(answer, "state", "silent");
	json_set_null(answer, "size");
	json_set_null(answer, "reason");
	json_push(all->answers, answer);
	struct question *question = witness->owed < OWED_MOST ? malloc(sizeof(*question)) : NULL;
	if (!question)
		return;
	*question = (struct question){.witness = witness, .round = all->round};
	witness->owed++;
	if (!cluster_ask(all->params.cluster, witness->node_id, "audit.held", json_new_object(), held, question)) {
		witness->answer = answer;
		all->waiting++;
		return;
	}
	witness->owed--;
	free(question);
	json_set_string(answer, "state", "offline");
}

enum status witnesses_gather(struct witnesses *witnesses, void (*done)(void *context, struct json *answers),
			     void *context)
{
	if (witnesses->answers)
		return STATUS_CONFLICT;
	witnesses->answers = json_new_array();
	witnesses->gathered = done;
	witnesses->context = context;
	witnesses->waiting = 0;
	witnesses->round++;
	for (struct witness *one = witnesses->first; one; one = one->next)
		if (is_there(witnesses, one->node_id))
			ask_held(one);
	// Never before this returns: the timer calls back even where nobody is waited for.
	net_timer_start(witnesses->params.loop, &witnesses->patience, witnesses->waiting ? ANSWER_MS : 0,
			finish_gathering, witnesses);
	return STATUS_OK;
}
