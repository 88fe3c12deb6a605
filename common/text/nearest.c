/* See nearest.h. */
#include "common/text/nearest.h"

#include <string.h>

enum { NEAREST_LENGTH = 24 }; // longer words are not compared

// Letters to insert, drop, replace or swap with their neighbour.
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[3][NEAREST_LENGTH + 1]; // by length of b: two rows ago, the last, this one
	for (size_t j = 0; j <= b_length; j++)
		rows[1][j] = j;
	memset(rows[0], 0, sizeof rows[0]);
	for (size_t i = 1; i <= a_length; i++) {
		rows[2][0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			size_t best = rows[1][j - 1] + (a[i - 1] != b[j - 1]);
			if (rows[1][j] + 1 < best)
				best = rows[1][j] + 1;
			if (rows[2][j - 1] + 1 < best)
				best = rows[2][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && rows[0][j - 2] + 1 < best)
				best = rows[0][j - 2] + 1;
			rows[2][j] = best;
		}
		memcpy(rows[0], rows[1], sizeof rows[0]);
		memcpy(rows[1], rows[2], sizeof rows[1]);
	}
	return rows[1][b_length];
}

void nearest_start(struct nearest *nearest, const char *word, size_t length)
{
	size_t wrong = length < 3 ? 1 : length / 3;
	*nearest = (struct nearest){.word = word, .length = length, .distance = wrong + 1};
}

void nearest_offer(struct nearest *nearest, const char *known)
{
	size_t length = strlen(known);
	if (!nearest->length || nearest->length > NEAREST_LENGTH || length > NEAREST_LENGTH)
		return;
	size_t distance = edit_distance(nearest->word, nearest->length, known, length);
	if (nearest->length >= 2 && length > nearest->length && !memcmp(known, nearest->word, nearest->length))
		distance = 1; // the beginning of it
	if (distance < nearest->distance && distance < length) {
		nearest->distance = distance;
		nearest->best = known;
	}
}
