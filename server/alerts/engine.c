/* See engine.h. Subjects of a rule are a list in the order in which they were seen first. Rounds mostly see them in
 * the same order, so each search begins behind the subject that was found last. */
#include "server/alerts/engine.h"

#include <stdlib.h>
#include <string.h>

enum { SUBJECT_BYTES = 65 };

struct subject {
	struct subject *next;
	char subject_id[SUBJECT_BYTES];
	struct alert_state state;
	bool seen; // in this round
};

struct engine {
	engine_act *act;
	void *context;
	struct alert_rule rules[ALERT_RULES];
	struct subject *subjects[ALERT_RULES];
	struct subject *last[ALERT_RULES]; // that was found; NULL: none in this round
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
		for (struct subject *next, *one = engine->subjects[rule]; one; one = next) {
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
	for (struct subject *one = engine->subjects[number]; one; one = one->next)
		one->state.samples = 0;
}

static struct subject *search(struct subject *from, const struct subject *end, const char *subject_id)
{
	while (from != end && strcmp(from->subject_id, subject_id) != 0)
		from = from->next;
	return from == end ? NULL : from;
}

// The subject of this id, made if there is none; NULL without memory.
static struct subject *find(struct engine *engine, enum alert_rule_number number, const char *subject_id)
{
	struct subject *last = engine->last[number], *one = search(last ? last->next : NULL, NULL, subject_id);
	if (!one)
		one = search(engine->subjects[number], NULL, subject_id);
	if (one)
		return engine->last[number] = one;
	one = calloc(1, sizeof(*one));
	if (!one || strlen(subject_id) >= sizeof one->subject_id) {
		free(one);
		return NULL;
	}
	memcpy(one->subject_id, subject_id, strlen(subject_id) + 1);
	struct subject **at = last ? &last->next : &engine->subjects[number];
	one->next = *at;
	*at = one;
	return engine->last[number] = one;
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
		for (struct subject *one = engine->subjects[rule]; one; one = one->next)
			if (one->state.stands && !stands(context, engine->rules[rule].kind, one->subject_id)) {
				one->state.stands = false;
				one->state.samples = 0;
			}
}

void engine_begin(struct engine *engine)
{
	memset(engine->last, 0, sizeof engine->last);
	for (int rule = 0; rule < ALERT_RULES; rule++)
		for (struct subject *one = engine->subjects[rule]; one; one = one->next)
			one->seen = false;
}

void engine_see(struct engine *engine, const struct engine_seen *seen)
{
	struct subject *one = find(engine, seen->rule, seen->subject_id);
	if (!one)
		return; // without memory nothing is raised; it is tried again in the next round
	one->seen = true;
	const enum alert_turn turn = alert_decide(&engine->rules[seen->rule], &one->state, &seen->sample);
	if (turn != ALERT_STAYS)
		engine->act(engine->context, &engine->rules[seen->rule], seen->subject_id, seen, turn);
}

void engine_end(struct engine *engine)
{
	memset(engine->last, 0, sizeof engine->last);
	for (int rule = 0; rule < ALERT_RULES; rule++)
		for (struct subject **at = &engine->subjects[rule]; *at;) {
			struct subject *one = *at;
			if (one->seen) {
				at = &one->next;
				continue;
			}
			*at = one->next;
			if (one->state.stands)
				engine->act(engine->context, &engine->rules[rule], one->subject_id, NULL, ALERT_CLEARS);
			free(one);
		}
}
