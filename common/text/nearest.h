/* Finds the known word that is nearest to a mistyped one, for "did you mean". The distance counts letters
 * that were inserted, dropped, replaced or swapped with a neighbour; up to a third of the word may be
 * wrong. The words belong to the caller. Bounded: words longer than 24 bytes are not compared. Pure.
 * Thread: any. */
#pragma once
#include <stddef.h>

// Offer each known word; `best` stays NULL if none is near.
struct nearest {
	const char *word, *best;
	size_t length, distance;
};
void nearest_start(struct nearest *nearest, const char *word, size_t length);
void nearest_offer(struct nearest *nearest, const char *known);
