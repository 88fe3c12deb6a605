/* See engine.h. Subjects of a rule are in a table by the hash of their ids, with a random key: nodes choose ids. */
#include "server/alerts/engine.h"

#include "common/base/keyed_hash.h"

#include <stdlib.h>
#include <string.h>

enum { SUBJECT_BYTES = 65, BUCKETS = 1024 };

struct subject {
	struct subject *next; // of the same bucket
	char subject_id[SUBJECT_BYTES];
	size_t node; // its place in `of_node`
	struct alert_state state;
	bool seen; // in this round
};

struct engine {
	engine_act *act;
	void *context;
	struct alert_rule rules[ALERT_RULES];
	struct subject *subjects[ALERT_RULES][BUCKETS];
	unsigned stand, of_node[ALERT_RULES][BUCKETS]; // that stand: of all rules; of each rule by the node
	unsigned changes;                              // in this round
	bool full;
};

enum status engine_create(struct engine **out, engine_act *act, void *context)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	*out = engine;
	if (!engine)
		return STATUS_OUT_OF_MEMORY;
	engine->act = act;
	engine->context = context;
	memcpy(engine->rules, alert_default_rules, sizeof engine->rules);
	return STATUS_OK;
}

void engine_destroy(struct engine **pointer)
{
	struct engine *engine = *pointer;
	if (!engine)
		return;
	*pointer = NULL;
	for (int rule = 0; rule < ALERT_RULES; rule++)
		for (size_t i = 0; i < BUCKETS; i++)
			for (struct subject *next, *one = engine->subjects[rule][i]; one; one = next) {
				next = one->next;
				free(one);
			}
	free(engine);
}

const struct alert_rule *engine_rule(const struct engine *engine, enum alert_rule_number number)
{
	return &engine->rules[number];
}

void engine_set_rule(struct engine *engine, enum alert_rule_number number, const struct alert_rule *rule)
{
	engine->rules[number].threshold = rule->threshold;
	engine->rules[number].clear_threshold = rule->clear_threshold;
	engine->rules[number].for_s = rule->for_s;
	engine->rules[number].enabled = rule->enabled;
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct subject *one = engine->subjects[number][i]; one; one = one->next)
			one->state.samples = 0;
}

static size_t place_of(const char *id)
{
	return keyed_hash(id, strlen(id)) % BUCKETS;
}

// The subject of this id, made if there is none; NULL without memory.
static struct subject *find(struct engine *engine, enum alert_rule_number number, const char *subject_id)
{
	struct subject **bucket = &engine->subjects[number][place_of(subject_id)], *one = *bucket;
	while (one && strcmp(one->subject_id, subject_id) != 0)
		one = one->next;
	if (one)
		return one;
	one = calloc(1, sizeof(*one));
	if (!one || strlen(subject_id) >= sizeof one->subject_id) {
		free(one);
		return NULL;
	}
	memcpy(one->subject_id, subject_id, strlen(subject_id) + 1);
	one->next = *bucket;
	return *bucket = one;
}

enum status engine_stands(struct engine *engine, enum alert_rule_number number, const char *subject_id)
{
	struct subject *one = find(engine, number, subject_id);
	if (!one)
		return STATUS_OUT_OF_MEMORY;
	if (!one->state.stands)
		one->state.samples = 0;
	one->state.stands = true;
	return STATUS_OK;
}

void engine_sync(struct engine *engine, bool (*stands)(void *context, const char *kind, const char *subject_id),
		 void *context)
{
	for (int rule = 0; rule < ALERT_RULES; rule++)
		for (size_t i = 0; i < BUCKETS; i++)
			for (struct subject *one = engine->subjects[rule][i]; one; one = one->next)
				if (one->state.stands && !stands(context, engine->rules[rule].kind, one->subject_id)) {
					one->state.stands = false;
					one->state.samples = 0;
				}
}

void engine_begin(struct engine *engine)
{
	engine->stand = engine->changes = 0;
	engine->full = false;
	memset(engine->of_node, 0, sizeof engine->of_node);
	for (int rule = 0; rule < ALERT_RULES; rule++)
		for (size_t i = 0; i < BUCKETS; i++)
			for (struct subject *one = engine->subjects[rule][i]; one; one = one->next) {
				one->seen = false;
				engine->stand += one->state.stands;
				engine->of_node[rule][one->node] += one->state.stands;
			}
}

// Whether the alert of a subject may be raised or cleared in this round.
static bool may_change(struct engine *engine, unsigned of_node, enum alert_turn turn)
{
	if (turn == ALERT_RAISES && (engine->stand >= ENGINE_STAND || of_node >= ENGINE_STAND_NODE)) {
		engine->full = true;
		return false;
	}
	return engine->changes < ENGINE_CHANGES;
}

void engine_see(struct engine *engine, const struct engine_seen *seen)
{
	struct subject *one = find(engine, seen->rule, seen->subject_id);
	if (!one)
		return; // without memory nothing is raised; it is tried again in the next round
	const size_t node = place_of(seen->node_id ? seen->node_id : "");
	const struct alert_state before = one->state;
	unsigned *counts = engine->of_node[seen->rule];
	counts[one->node] -= before.stands;
	counts[node] += before.stands;
	one->node = node;
	one->seen = true;
	const enum alert_turn turn = alert_decide(&engine->rules[seen->rule], &one->state, &seen->sample);
	if (turn == ALERT_STAYS)
		return;
	if (!may_change(engine, counts[node], turn)) {
		one->state = before; // the next sample calls for the same change
		return;
	}
	engine->changes++;
	if (turn == ALERT_RAISES) {
		engine->stand++;
		counts[node]++;
	} else {
		engine->stand--;
		counts[node]--;
	}
	engine->act(engine->context, &engine->rules[seen->rule], seen->subject_id, seen, turn);
}

// Drop the subjects of a bucket that are gone, and clear their alerts.
static void drop_gone(struct engine *engine, int rule, struct subject **at)
{
	while (*at) {
		struct subject *one = *at;
		if (one->seen || (one->state.stands && engine->changes >= ENGINE_CHANGES)) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		if (one->state.stands) {
			engine->changes++;
			engine->act(engine->context, &engine->rules[rule], one->subject_id, NULL, ALERT_CLEARS);
		}
		free(one);
	}
}

void engine_end(struct engine *engine)
{
	for (int rule = 0; rule < ALERT_RULES; rule++)
		for (size_t i = 0; i < BUCKETS; i++)
			drop_gone(engine, rule, &engine->subjects[rule][i]);
}

bool engine_full(const struct engine *engine)
{
	return engine->full;
}
