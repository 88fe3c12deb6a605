/* The states of a matcher: sets of positions in an automaton, each with where it returns to, found as they are met.
 *
 * A position is a node that takes a byte, and a stack of the nodes that come after the rules it is in. Stacks share
 * their lower parts and are numbered, so that equal ones are one number; so are sets. What follows from a state by a
 * class of bytes is computed once and kept. Memory is bounded: states_fresh forgets all but one state. Thread: one. */
#pragma once
#include "engine/grammar/automaton.h"

enum { STATE_DEAD = 0, STATE_UNKNOWN = UINT32_MAX };

struct states;
// Errors: STATUS_OUT_OF_MEMORY. The grammar is the caller's.
enum status states_create(struct states **out, const struct grammar *grammar);
void states_destroy(struct states **states);

uint32_t states_first(const struct states *states); // where an answer begins; STATE_DEAD: that has been forgotten
void states_restart(struct states *states);         // forget all but where an answer begins
// The state after this byte; STATE_DEAD: the byte is not allowed.
uint32_t states_step(struct states *states, uint32_t state, uint8_t byte);
bool states_accepts(const struct states *states, uint32_t state); // the answer may end
bool states_ends(const struct states *states, uint32_t state);    // it can do nothing else
// The one state to which every character of a JSON string that needs no escape leads from this state; STATE_DEAD: there
// is no such state.
uint32_t states_plain(struct states *states, uint32_t state);

size_t states_count(const struct states *states);
bool states_crowded(const struct states *states); // half of the memory for states is in use
// Forget all but this one. Returns its new number.
uint32_t states_fresh(struct states *states, uint32_t state);
// How much may be computed from now on; and why no more is, once it is used up or memory is short.
void states_allow(struct states *states, uint64_t work);
void states_spend(struct states *states, uint64_t work);
const struct error *states_error(const struct states *states);
