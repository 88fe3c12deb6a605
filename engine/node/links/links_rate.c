/* Computes the rate of a burst from the arrival of its pieces, and updates the known throughput; see links_bursts.c.
 * Pure, except for the wall clock.
 *
 * The round trips that TCP waits between its first flights are left out; see link_pieces_rate. A busy machine reads a
 * burst late, and a stalled wire delivers all waiting pieces at once. So the first burst, a burst with a lower rate
 * than before, and one with more than twice the rate are repeated. Of the first two the better one counts, later the
 * median of both and the known rate. It is averaged with the known rate; but if both are below half or above twice of
 * that, the path has changed, and the new rate replaces it. If segments were retransmitted no pause is left out, and
 * the mean of two bursts counts that do not show a changed path, or the second of the first two. */
#include "common/base/clock.h"
#include "engine/node/links/links_inside.h"

#include <math.h>
#include <stdlib.h>

enum {
	FLIGHTS = 10,     // of TCP's slow start, between which it waits
	LAST_FLIGHTS = 2, // that the second half of a burst has of them
	PARTS = 8,        // of a burst on a lossy way
};
static const double doubt_below = 0.7; // of the known rate
static const double changed_times = 2; // times the known rate, or the inverse

static int compare_gaps(const void *a, const void *b)
{
	const int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
	return left < right ? 1 : left > right ? -1 : 0;
}

// The rate of the pieces after `first` up to `last`, without so many pauses of TCP. < 0: they came at the same time.
static double rate_between(const struct link_pieces *pieces, size_t first, size_t last, size_t pauses)
{
	int64_t gaps[LINK_PIECES], total_ns = pieces->ns[last] - pieces->ns[first];
	const size_t count = last - first;
	for (size_t i = 0; i < count; i++)
		gaps[i] = pieces->ns[first + i + 1] - pieces->ns[first + i];
	qsort(gaps, count, sizeof *gaps, compare_gaps);
	const int64_t usual_ns = gaps[count / 2];
	for (size_t i = 0, left = pauses; left && i < count / 2 && pieces->rtt_ms >= 2; i++) {
		const double gap_ms = (double)gaps[i] / 1e6; // a much longer gap than a round trip is not a pause of
							     // TCP
		if (gap_ms < 1.5 * pieces->rtt_ms && gap_ms > pieces->rtt_ms / 4 && gaps[i] > 4 * usual_ns) {
			total_ns -= gaps[i] - usual_ns;
			left--;
		}
	}
	return total_ns > 0 ? (double)count * (double)pieces->bytes * 1e9 / (double)total_ns : -1;
}

// The rate over eight parts of the pieces without the first two, the slowest and the fastest: TCP stalls once when it
// has overrun a queue on the path, and then all waiting pieces come at once.
static double trimmed_rate(const struct link_pieces *pieces)
{
	int64_t per_piece_ns[PARTS - 2], total_ns = 0;
	const size_t gaps = pieces->count - 1;
	for (size_t i = 2; i < PARTS; i++) {
		const size_t first = i * gaps / PARTS, last = (i + 1) * gaps / PARTS;
		per_piece_ns[i - 2] = (pieces->ns[last] - pieces->ns[first]) / (int64_t)(last - first);
	}
	qsort(per_piece_ns, PARTS - 2, sizeof *per_piece_ns, compare_gaps);
	for (size_t i = 1; i < PARTS - 3; i++)
		total_ns += per_piece_ns[i];
	return total_ns > 0 ? (PARTS - 4) * (double)pieces->bytes * 1e9 / (double)total_ns : -1;
}

double link_pieces_rate(const struct link_pieces *pieces, bool *growing)
{
	const size_t last = pieces->count - 1, half = pieces->count / 2, flights = pieces->lossy ? 0 : FLIGHTS;
	const double before = rate_between(pieces, 0, half, flights),
		     rate = rate_between(pieces, half, last, pieces->lossy ? 0 : LAST_FLIGHTS);
	*growing = pieces->rtt_ms >= 2 && before > 0 && rate > 1.5 * before;
	if (pieces->lossy && last >= PARTS)
		return trimmed_rate(pieces);
	return pieces->lossy || *growing ? rate : rate_between(pieces, 0, last, flights);
}

static double middle_of(double a, double b, double c)
{
	return fmax(fmin(a, b), fmin(fmax(a, b), c));
}

bool link_measures_rate(struct link_measures *measures, double rate, bool lossy, bool may)
{
	const double known = measures->throughput, other = measures->doubted;
	const bool first = known < 0;
	const bool twice = other > 0;
	if (!twice && may && (first || rate < doubt_below * known || rate > changed_times * known)) {
		measures->doubted = rate;
		return true;
	}
	const double middle = twice ? middle_of(known, rate, other) : rate;
	measures->doubted = 0;
	if (first)
		measures->throughput = lossy ? rate : fmax(rate, other);
	else if (twice && (middle * changed_times < known || middle > changed_times * known))
		measures->throughput = middle;
	else
		measures->throughput += ((twice && lossy ? (rate + other) / 2 : middle) - known) / 2;
	measures->throughput_at_ms = measures->at_ms = clock_wall_ms();
	return false;
}
