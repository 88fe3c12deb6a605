/* The known word that a mistyped one is nearest to, for "did you mean".
 *
 * Letters to insert, drop, replace or swap with a neighbour are counted; a third of the word's may be wrong. The words
 * belong to the caller and outlive the search. Bounded: words over 24 bytes are not compared. Pure. Thread: any. */
#pragma once
#include <stddef.h>

// Offer each known word; `best` stays NULL if none is near.
struct nearest {
	const char *word, *best;
	size_t length, distance;
};
void nearest_start(struct nearest *nearest, const char *word, size_t length);
void nearest_offer(struct nearest *nearest, const char *known);
