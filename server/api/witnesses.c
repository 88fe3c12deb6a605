/* See witnesses.h. */
#include "server/api/witnesses.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t LATEST_S = 253402300799; // the end of the year 9999

enum { TRIES = 3, SAVE_MS = 200, COMPLAIN_MS = 3600 * 1000, SEGMENTS_MOST = 1000 }; // SEGMENTS_MOST: of one message

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
};

struct witnesses {
	struct witnesses_params params;
	struct witness *first;
	unsigned count;
	struct net_timer tick, save;
	uint64_t size; // of the head with the most entries that was cosigned
	struct buffer note;
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

static void complain(struct witness *witness, const char *why)
{
	char detail[96];
	const int64_t now_ms = clock_steady_ms();
	witness->refused = true;
	if (witness->complained_ms && now_ms - witness->complained_ms < COMPLAIN_MS)
		return;
	witness->complained_ms = now_ms;
	log_error("audit",
		  "node %s holds %" PRIu64 " entries of the audit log as its witness and refuses the head of %" PRIu64
		  ": %s. The log was cut, replaced or put back from a backup; look into it with exogpu audit verify "
		  "--witness and the file node/witness/head of that machine",
		  witness->node_id, witness->known, witness->head.size, why);
	snprintf(detail, sizeof(detail), "{\"held\":%" PRIu64 ",\"shown\":%" PRIu64 "}", witness->known,
		 witness->head.size);
	struct error error = {0};
	const struct audit_event event = {.action = "audit.witness",
					  .target = witness->node_id,
					  .node_id = witness->node_id,
					  .outcome = STATUS_CONFLICT,
					  .detail = detail};
	if (audit_write(witness->all->params.audit, &event, NULL, NULL, &error))
		log_error("audit", "%s", error.message);
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
		complain(witness, error->message);
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
	for (struct witness *one = witnesses->first; one; one = one->next)
		if (one->size < head.checkpoint.size) {
			one->tries = 0;
			ask(one);
		}
	net_timer_start(witnesses->params.loop, &witnesses->tick, LIMIT_WITNESS_MS, look, witnesses);
}

void witnesses_node_came(struct witnesses *witnesses, const char *node_id)
{
	struct witness *witness = witnesses->first;
	while (witness && strcmp(witness->node_id, node_id) != 0)
		witness = witness->next;
	if (!witness) {
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
	if (!witnesses->tick.running)
		net_timer_start(witnesses->params.loop, &witnesses->tick, LIMIT_WITNESS_MS, look, witnesses);
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
