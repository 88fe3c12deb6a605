/* See recurrent.h. There are some tens of slots, so that looking through all of them is quick. */
#include "engine/generation/recurrent.h"

#include <stdlib.h>

struct state {
	uint64_t owner, serial; // serial: 0 unless it is kept, or will be
	uint64_t used;          // when it was released last, of a kept one
	uint32_t holders;
	bool to_zero;
};

struct recurrent {
	uint32_t count, zero_count;
	uint64_t clock;
	uint32_t *to_zero; // (count)
	struct state list[];
};

enum status recurrent_create(struct recurrent **out, uint32_t count)
{
	struct recurrent *states = *out = calloc(1, sizeof(*states) + count * sizeof(struct state));
	if (!states)
		return STATUS_OUT_OF_MEMORY;
	states->count = count;
	states->to_zero = calloc(count + 1, sizeof(uint32_t));
	if (states->to_zero)
		return STATUS_OK;
	recurrent_destroy(out);
	return STATUS_OUT_OF_MEMORY;
}

void recurrent_destroy(struct recurrent **states)
{
	if (*states)
		free((*states)->to_zero);
	free(*states);
	*states = NULL;
}

static struct state *at(struct recurrent *states, uint32_t slot)
{
	return &states->list[slot - 1];
}

void recurrent_zero_again(struct recurrent *states, uint32_t slot)
{
	if (!at(states, slot)->to_zero)
		states->to_zero[states->zero_count++] = slot;
	at(states, slot)->to_zero = true;
}

static void make_free(struct recurrent *states, uint32_t slot)
{
	*at(states, slot) = (struct state){.to_zero = at(states, slot)->to_zero};
	recurrent_zero_again(states, slot);
}

uint32_t recurrent_take(struct recurrent *states, uint64_t owner)
{
	uint32_t best = 0;
	for (uint32_t slot = 1; slot <= states->count; slot++) {
		const struct state *state = at(states, slot);
		if (state->holders)
			continue;
		if (!best || (at(states, best)->serial && (!state->serial || state->used < at(states, best)->used)))
			best = slot;
	}
	if (!best)
		return 0;
	if (at(states, best)->serial)
		make_free(states, best);
	at(states, best)->owner = owner;
	at(states, best)->holders = 1;
	return best;
}

uint32_t recurrent_find(const struct recurrent *states, uint64_t serial)
{
	for (uint32_t slot = 1; serial && slot <= states->count; slot++)
		if (states->list[slot - 1].serial == serial)
			return slot;
	return 0;
}

void recurrent_hold(struct recurrent *states, uint32_t slot)
{
	at(states, slot)->holders++;
}

void recurrent_release(struct recurrent *states, uint32_t slot)
{
	struct state *state = at(states, slot);
	if (--state->holders)
		return;
	if (state->serial)
		state->used = ++states->clock;
	else
		make_free(states, slot);
}

void recurrent_keep(struct recurrent *states, uint32_t slot, uint64_t serial)
{
	if (serial && !recurrent_find(states, serial))
		at(states, slot)->serial = serial;
	recurrent_release(states, slot);
}

static void drop(struct recurrent *states, uint32_t slot)
{
	at(states, slot)->serial = 0;
	if (!at(states, slot)->holders)
		make_free(states, slot);
}

void recurrent_drop(struct recurrent *states, uint64_t serial)
{
	const uint32_t slot = recurrent_find(states, serial);
	if (slot)
		drop(states, slot);
}

void recurrent_forget(struct recurrent *states, uint64_t owner)
{
	for (uint32_t slot = 1; slot <= states->count; slot++)
		if (at(states, slot)->serial && (!owner || at(states, slot)->owner == owner))
			drop(states, slot);
}

const uint32_t *recurrent_to_zero(struct recurrent *states, uint32_t *count)
{
	*count = states->zero_count;
	for (uint32_t i = 0; i < states->zero_count; i++)
		at(states, states->to_zero[i])->to_zero = false;
	states->zero_count = 0;
	return states->to_zero;
}
