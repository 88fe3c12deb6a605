/* See states.h. */
#include "engine/grammar/states.h"

#include <stdlib.h>
#include <string.h>

enum {
	VISITED = 4 * GRAMMAR_POSITIONS, // places of a table, a power of two
	STACKS_MOST = 128 * 1024,        // kept
	POSITIONS_MOST = 512 * 1024,     // of all states
	NEXT_MOST = 1024 * 1024,         // numbers in the lists of positions
	FIRST_TABLE = 256,               // places of a table of numbers, at first
	POSITION_WORK = 8,               // for each that is looked at
	CREATE_WORK = 128,               // for a new state, besides its positions
};

struct position {
	uint32_t node, stack;
};

struct stack {
	uint32_t node, below; // where a rule returns to; the rest. Number 0 is the empty one
	uint32_t depth;
};

struct state {
	uint32_t first, count; // of `positions`
	uint32_t plain;        // STATE_UNKNOWN: not looked for yet
	bool accepts;
};

// Open addressing, numbers + 1; at most half full.
struct table {
	uint32_t *places; // (mask + 1)
	uint32_t mask;
};

struct states {
	const struct grammar *grammar;
	struct state *states;
	size_t state_count, state_capacity;
	uint32_t *next; // (state_capacity, class_count)
	struct position *positions;
	size_t position_count, position_capacity;
	struct stack *stacks;
	size_t stack_count, stack_capacity;
	struct table state_table, stack_table;
	uint32_t first;
	uint64_t work;
	struct error error;
	// The set that is being made.
	struct position *found, *waiting; // (GRAMMAR_POSITIONS)
	size_t found_count, waiting_count, visited_count;
	bool found_end;
	struct position visited[VISITED];
	uint32_t stamps[VISITED], stamp;
};

static bool failed(const struct states *states)
{
	return states->error.status;
}

static void out_of_memory(struct states *states)
{
	error_set(&states->error, STATUS_OUT_OF_MEMORY, "no memory for the grammar's states");
}

static void too_much(struct states *states)
{
	error_hint(&states->error, "rewrite it so that fewer alternatives begin alike");
	error_set(&states->error, STATUS_LIMIT_EXCEEDED, "the grammar is too ambiguous");
}

static uint32_t hash_of(uint64_t a, uint64_t b)
{
	uint64_t hash = (a + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u ^
			(b + 0xD6E8FEB86659FD93u) * 0x94D049BB133111EBu;
	hash ^= hash >> 29;
	return (uint32_t)(hash * 0x9E3779B97F4A7C15u >> 32);
}

// Make room for `more` items of `size` bytes by doubling; false if there is no memory or `most` is exceeded.
static bool room(struct states *states, void *items, size_t count, size_t more, size_t *capacity, size_t size,
		 size_t most)
{
	void **memory = items;
	size_t wanted = *capacity ? *capacity : 64;
	if (count + more > most) {
		too_much(states);
		return false;
	}
	while (wanted < count + more)
		wanted *= 2;
	if (wanted == *capacity)
		return true;
	void *grown = realloc(*memory, wanted * size);
	if (!grown) {
		out_of_memory(states);
		return false;
	}
	*memory = grown;
	*capacity = wanted;
	return true;
}

static bool table_init(struct table *table, uint32_t places)
{
	free(table->places);
	table->places = calloc(places, sizeof(uint32_t));
	table->mask = places - 1;
	return table->places;
}

// ---- stacks ----

static bool stacks_rehash(struct states *states)
{
	if (!table_init(&states->stack_table, 2 * (states->stack_table.mask + 1))) {
		out_of_memory(states);
		return false;
	}
	for (uint32_t i = 1; i < states->stack_count; i++) {
		uint32_t at = hash_of(states->stacks[i].node, states->stacks[i].below);
		while (states->stack_table.places[at & states->stack_table.mask])
			at++;
		states->stack_table.places[at & states->stack_table.mask] = i + 1;
	}
	return true;
}

// The number of a stack with one node more; 0 and a failure, or UINT32_MAX if it is too deep.
static uint32_t push(struct states *states, uint32_t node, uint32_t below)
{
	uint32_t at = hash_of(node, below), number;
	for (; (number = states->stack_table.places[at & states->stack_table.mask]); at++)
		if (states->stacks[number - 1].node == node && states->stacks[number - 1].below == below)
			return number - 1;
	const uint32_t depth = states->stacks[below].depth + 1;
	if (depth > GRAMMAR_DEPTH)
		return UINT32_MAX;
	void *stacks = states->stacks;
	const bool good = room(states, &stacks, states->stack_count, 1, &states->stack_capacity, sizeof(struct stack),
			       STACKS_MOST);
	states->stacks = stacks;
	if (!good)
		return 0;
	states->stacks[states->stack_count] = (struct stack){node, below, depth};
	states->stack_table.places[at & states->stack_table.mask] = (uint32_t)states->stack_count + 1;
	number = (uint32_t)states->stack_count++;
	if (2 * states->stack_count > states->stack_table.mask && !stacks_rehash(states))
		return 0;
	return number;
}

// ---- sets ----

static void begin_set(struct states *states)
{
	states->found_count = states->waiting_count = states->visited_count = 0;
	states->found_end = false;
	states->stamp++;
	if (!states->stamp) {
		memset(states->stamps, 0, sizeof(states->stamps));
		states->stamp = 1;
	}
}

// Wait to be looked at, unless it was.
static void visit(struct states *states, uint32_t node, uint32_t stack)
{
	uint32_t at = hash_of(node, stack);
	if (!states->grammar->nodes[node].live || failed(states))
		return;
	for (; states->stamps[at % VISITED] == states->stamp; at++)
		if (states->visited[at % VISITED].node == node && states->visited[at % VISITED].stack == stack)
			return;
	if (states->visited_count == GRAMMAR_POSITIONS) {
		too_much(states);
		return;
	}
	states->visited_count++;
	states->stamps[at % VISITED] = states->stamp;
	states->visited[at % VISITED] = (struct position){node, stack};
	states->waiting[states->waiting_count++] = (struct position){node, stack};
}

// Add all positions that are reached without a byte.
static void close_set(struct states *states)
{
	while (states->waiting_count && !failed(states)) {
		const struct position at = states->waiting[--states->waiting_count];
		const struct node *node = &states->grammar->nodes[at.node];
		uint32_t stack = at.stack;
		switch ((enum node_kind)node->kind) {
		case NODE_END:
			states->found_end |= !stack;
			if (stack)
				visit(states, states->stacks[stack].node, states->stacks[stack].below);
			break;
		case NODE_DEAD:
			break;
		case NODE_BYTE:
			states->found[states->found_count++] = at;
			break;
		case NODE_SPLIT:
			visit(states, node->out, stack);
			visit(states, node->other, stack);
			break;
		case NODE_CALL:
			if (!states->grammar->nodes[node->out].live)
				break;
			if (!node->last)
				stack = push(states, node->out, stack);
			if (stack != UINT32_MAX)
				visit(states, node->other, stack);
			break;
		}
	}
	states_spend(states, POSITION_WORK * states->visited_count + CREATE_WORK);
}

static int compare_positions(const void *left, const void *right)
{
	const struct position *a = left, *b = right;
	if (a->node != b->node)
		return a->node < b->node ? -1 : 1;
	return a->stack < b->stack ? -1 : a->stack > b->stack;
}

static uint32_t hash_set(const struct position *positions, size_t count, bool accepts)
{
	uint32_t hash = accepts;
	for (size_t i = 0; i < count; i++)
		hash = hash_of((uint64_t)positions[i].node << 32 | positions[i].stack, hash);
	return hash;
}

static bool states_rehash(struct states *states)
{
	if (!table_init(&states->state_table, 2 * (states->state_table.mask + 1))) {
		out_of_memory(states);
		return false;
	}
	for (uint32_t i = 1; i < states->state_count; i++) {
		const struct state *one = &states->states[i];
		uint32_t at = hash_set(&states->positions[one->first], one->count, one->accepts);
		while (states->state_table.places[at & states->state_table.mask])
			at++;
		states->state_table.places[at & states->state_table.mask] = i + 1;
	}
	return true;
}

static bool make_room(struct states *states)
{
	const size_t classes = states->grammar->class_count, most = NEXT_MOST / classes;
	const size_t states_most = most < GRAMMAR_STATES ? most : GRAMMAR_STATES;
	const size_t before = states->state_capacity;
	void *items = states->states, *positions = states->positions;
	bool good = room(states, &items, states->state_count, 1, &states->state_capacity, sizeof(struct state),
			 states_most) &&
		    room(states, &positions, states->position_count, states->found_count, &states->position_capacity,
			 sizeof(struct position), POSITIONS_MOST);
	states->states = items;
	states->positions = positions;
	if (states->state_capacity == before)
		return good;
	uint32_t *next = realloc(states->next, states->state_capacity * classes * sizeof(uint32_t));
	if (next) {
		memset(next + before * classes, 0xFF, (states->state_capacity - before) * classes * sizeof(uint32_t));
		states->next = next;
		return good;
	}
	states->state_capacity = before; // what there is of `states` is more than is used
	out_of_memory(states);
	return false;
}

// The number of the set that was made.
static uint32_t number_set(struct states *states)
{
	const struct position *found = states->found;
	const size_t count = states->found_count;
	if (failed(states) || (!count && !states->found_end))
		return STATE_DEAD;
	qsort(states->found, count, sizeof(struct position), compare_positions);
	uint32_t at = hash_set(found, count, states->found_end), number;
	for (; (number = states->state_table.places[at & states->state_table.mask]); at++) {
		const struct state *one = &states->states[number - 1];
		if (one->count == count && one->accepts == states->found_end &&
		    (!count || !memcmp(&states->positions[one->first], found, count * sizeof(*found))))
			return number - 1;
	}
	if (!make_room(states))
		return STATE_DEAD;
	number = (uint32_t)states->state_count++;
	states->state_table.places[at & states->state_table.mask] = number + 1;
	states->states[number] = (struct state){.first = (uint32_t)states->position_count,
						.count = (uint32_t)count,
						.plain = STATE_UNKNOWN,
						.accepts = states->found_end};
	if (count)
		memcpy(&states->positions[states->position_count], found, count * sizeof(*found));
	states->position_count += count;
	if (2 * states->state_count > states->state_table.mask && !states_rehash(states))
		return STATE_DEAD;
	return number;
}

// ---- steps ----

static uint32_t compute(struct states *states, uint32_t state, uint8_t byte)
{
	begin_set(states);
	for (uint32_t i = 0; i < states->states[state].count && !failed(states); i++) {
		const struct position at = states->positions[states->states[state].first + i];
		const struct node *node = &states->grammar->nodes[at.node];
		if (byte >= node->low && byte <= node->high)
			visit(states, node->out, at.stack);
	}
	states_spend(states, states->states[state].count);
	close_set(states);
	return number_set(states);
}

uint32_t states_step(struct states *states, uint32_t state, uint8_t byte)
{
	const size_t place = (size_t)state * states->grammar->class_count + states->grammar->class_of[byte];
	uint32_t next = states->next[place];
	if (next != STATE_UNKNOWN)
		return next;
	next = compute(states, state, byte);
	if (!failed(states))
		states->next[place] = next;
	return next;
}

bool states_accepts(const struct states *states, uint32_t state)
{
	return state && states->states[state].accepts;
}

bool states_ends(const struct states *states, uint32_t state)
{
	return states_accepts(states, state) && !states->states[state].count;
}

uint32_t states_first(const struct states *states)
{
	return states->first;
}

// ---- plain characters ----

// Bytes of plain characters: their first, and for each further one its bounds.
static const struct {
	uint8_t low[4], high[4];
	unsigned count;
} plain_bytes[] = {
	{{0x20}, {0x21}, 1},
	{{0x23}, {0x5B}, 1},
	{{0x5D}, {0x7F}, 1},
	{{0xC2, 0x80}, {0xDF, 0xBF}, 2},
	{{0xE0, 0xA0, 0x80}, {0xE0, 0xBF, 0xBF}, 3},
	{{0xE1, 0x80, 0x80}, {0xEC, 0xBF, 0xBF}, 3},
	{{0xED, 0x80, 0x80}, {0xED, 0x9F, 0xBF}, 3},
	{{0xEE, 0x80, 0x80}, {0xEF, 0xBF, 0xBF}, 3},
	{{0xF0, 0x90, 0x80, 0x80}, {0xF0, 0xBF, 0xBF, 0xBF}, 4},
	{{0xF1, 0x80, 0x80, 0x80}, {0xF3, 0xBF, 0xBF, 0xBF}, 4},
	{{0xF4, 0x80, 0x80, 0x80}, {0xF4, 0x8F, 0xBF, 0xBF}, 4},
};

// The one state that all bytes of this span lead to, and those after them; STATE_DEAD: there are several, or none.
static uint32_t span_to(struct states *states, uint32_t state, const uint8_t *low, const uint8_t *high, unsigned count)
{
	uint32_t to = STATE_UNKNOWN;
	const uint8_t *class_of = states->grammar->class_of;
	for (unsigned byte = low[0]; byte <= high[0] && to != STATE_DEAD; byte++) {
		if (byte > low[0] && class_of[byte] == class_of[byte - 1])
			continue;
		uint32_t next = states_step(states, state, (uint8_t)byte);
		if (next && count > 1)
			next = span_to(states, next, low + 1, high + 1, count - 1);
		to = to == STATE_UNKNOWN || to == next ? next : STATE_DEAD;
	}
	return to;
}

uint32_t states_plain(struct states *states, uint32_t state)
{
	uint32_t to = states->states[state].plain;
	if (to != STATE_UNKNOWN)
		return to;
	for (size_t i = 0; i < sizeof(plain_bytes) / sizeof(plain_bytes[0]) && to != STATE_DEAD; i++) {
		const uint32_t next = span_to(states, state, plain_bytes[i].low, plain_bytes[i].high,
					      plain_bytes[i].count);
		to = to == STATE_UNKNOWN || to == next ? next : STATE_DEAD;
	}
	if (!failed(states))
		states->states[state].plain = to;
	return failed(states) ? STATE_DEAD : to;
}

// ---- life ----

static void clear(struct states *states)
{
	const size_t classes = states->grammar->class_count;
	states->state_count = 1; // the dead one
	states->stack_count = 1; // the empty one
	states->position_count = 0;
	memset(states->state_table.places, 0, (states->state_table.mask + 1) * sizeof(uint32_t));
	memset(states->stack_table.places, 0, (states->stack_table.mask + 1) * sizeof(uint32_t));
	memset(states->next, 0xFF, states->state_capacity * classes * sizeof(uint32_t));
	memset(states->next, 0, classes * sizeof(uint32_t));
	states->states[0] = (struct state){.plain = STATE_DEAD};
}

void states_restart(struct states *states)
{
	clear(states);
	states_allow(states, GRAMMAR_WORK);
	begin_set(states);
	visit(states, states->grammar->start, 0);
	close_set(states);
	states->first = number_set(states);
}

enum status states_create(struct states **out, const struct grammar *grammar)
{
	struct states *states = *out = calloc(1, sizeof(*states));
	if (!states)
		return STATUS_OUT_OF_MEMORY;
	states->grammar = grammar;
	states->found = malloc(GRAMMAR_POSITIONS * sizeof(struct position));
	states->waiting = malloc(GRAMMAR_POSITIONS * sizeof(struct position));
	states->stacks = calloc(1, sizeof(struct stack));
	states->stack_capacity = 1;
	if (!states->found || !states->waiting || !states->stacks || !table_init(&states->state_table, FIRST_TABLE) ||
	    !table_init(&states->stack_table, FIRST_TABLE) || !make_room(states)) {
		states_destroy(out);
		return STATUS_OUT_OF_MEMORY;
	}
	states_restart(states);
	return STATUS_OK;
}

void states_destroy(struct states **states)
{
	if (!*states)
		return;
	free((*states)->states);
	free((*states)->next);
	free((*states)->positions);
	free((*states)->stacks);
	free((*states)->state_table.places);
	free((*states)->stack_table.places);
	free((*states)->found);
	free((*states)->waiting);
	free(*states);
	*states = NULL;
}

size_t states_count(const struct states *states)
{
	return states->state_count;
}

bool states_crowded(const struct states *states)
{
	const size_t most = NEXT_MOST / states->grammar->class_count;
	return states->state_count > (most < GRAMMAR_STATES ? most : GRAMMAR_STATES) / 2 ||
	       states->position_count > POSITIONS_MOST / 2 || states->stack_count > STACKS_MOST / 2;
}

uint32_t states_fresh(struct states *states, uint32_t state)
{
	const struct state old = states->states[state];
	struct position *kept = malloc((old.count + 1) * sizeof(*kept));
	struct stack *stacks = malloc(states->stack_count * sizeof(*stacks));
	if (!kept || !stacks) {
		free(kept);
		free(stacks);
		out_of_memory(states);
		return state;
	}
	if (old.count)
		memcpy(kept, &states->positions[old.first], old.count * sizeof(*kept));
	memcpy(stacks, states->stacks, states->stack_count * sizeof(*stacks));
	clear(states);
	begin_set(states);
	for (uint32_t i = 0; i < old.count; i++) {
		uint32_t nodes[GRAMMAR_DEPTH], depth = 0;
		for (uint32_t at = kept[i].stack; at; at = stacks[at].below)
			nodes[depth++] = stacks[at].node;
		for (kept[i].stack = 0; depth;)
			kept[i].stack = push(states, nodes[--depth], kept[i].stack);
		visit(states, kept[i].node, kept[i].stack);
	}
	close_set(states);
	states->found_end = old.accepts;
	free(kept);
	free(stacks);
	states->first = STATE_DEAD; // no answer begins until it is set again
	return number_set(states);
}

void states_allow(struct states *states, uint64_t work)
{
	states->work = work;
}

void states_spend(struct states *states, uint64_t work)
{
	if (work > states->work)
		too_much(states);
	states->work = work < states->work ? states->work - work : 0;
}

const struct error *states_error(const struct states *states)
{
	return &states->error;
}
