/* See spot.h. */
#include "server/instances/decide/spot.h"

#include <math.h>
#include <string.h>

enum { COUNTS_BYTES = 16, RUN_BYTES = 16 };

const double spot_tolerance = 0.02;

bool spot_wanted(double percent, bool owed, double drawn)
{
	return percent > 0 && (owed || drawn * 100 < percent);
}

// ---- the rows of one request ----

static bool has_page(const struct spot_request *request, uint32_t page)
{
	for (uint32_t i = 0; i < request->page_count; i++)
		if (request->pages[i] == page)
			return true;
	return false;
}

enum spot_whose spot_look(const struct spot_request *request, const struct spot_run *run)
{
	uint32_t alike = 0, shared = 0;
	for (uint32_t i = 0; i < run->page_count; i++) {
		alike += i == alike && i < request->page_count && run->pages[i] == request->pages[i];
		shared += has_page(request, run->pages[i]);
	}
	if (!shared)
		return SPOT_OTHER;
	const bool whole = alike == request->page_count || alike == run->page_count,
		   follows = run->position <= request->tokens;
	return whole && shared == alike && follows && run->position ? SPOT_OWN : SPOT_OVER;
}

// ---- a step as it passes ----

bool spot_begins(const uint8_t *body, size_t bytes)
{
	uint32_t counts[4], run[4];
	if (bytes < COUNTS_BYTES)
		return false;
	memcpy(counts, body, COUNTS_BYTES);
	if (counts[1] > bytes / sizeof(uint32_t) || counts[2] > bytes / RUN_BYTES)
		return false;
	size_t at = COUNTS_BYTES + counts[1] * sizeof(uint32_t);
	for (uint32_t i = 0; i < counts[2] && at + RUN_BYTES <= bytes; i++, at += RUN_BYTES) {
		memcpy(run, body + at, RUN_BYTES);
		if (!run[1])
			return true;
	}
	return false;
}

bool spot_finite(const uint8_t *body, size_t bytes, uint32_t kind, uint32_t width)
{
	uint32_t counts[4];
	if (bytes < COUNTS_BYTES)
		return true;
	memcpy(counts, body, COUNTS_BYTES);
	const uint64_t values = (uint64_t)counts[3] * width;
	if (counts[0] != kind || values > (bytes - COUNTS_BYTES) / sizeof(float))
		return true;
	for (const uint8_t *at = body + bytes - values * sizeof(float); at < body + bytes; at += sizeof(float)) {
		float value;
		memcpy(&value, at, sizeof value);
		if (!isfinite(value))
			return false;
	}
	return true;
}

// ---- results ----

enum spot_verdict spot_judge(const float *got, const float *wanted, uint32_t count, double *error)
{
	double difference = 0, norm = 0;
	*error = 0;
	for (uint32_t i = 0; i < count; i++) {
		const double apart = (double)got[i] - (double)wanted[i];
		difference += apart * apart;
		norm += (double)wanted[i] * (double)wanted[i];
	}
	if (!isfinite(norm))
		return SPOT_UNCLEAR;
	if (!isfinite(difference))
		*error = (double)INFINITY;
	else if (difference > 0)
		*error = norm > 0 ? sqrt(difference / norm) : (double)INFINITY;
	return *error <= spot_tolerance ? SPOT_AGREES : SPOT_DIFFERS;
}

// ---- the device that computes again ----

int spot_choose(const struct spot_device *devices, unsigned count, uint64_t needs_bytes)
{
	int best = -1;
	for (unsigned i = 0; i < count; i++) {
		const struct spot_device *one = &devices[i], *other = best < 0 ? one : &devices[best];
		if (!one->trusted || !one->usable || one->free_bytes < needs_bytes)
			continue;
		if (best < 0 || (one->idle != other->idle ? one->idle : one->free_bytes > other->free_bytes))
			best = (int)i;
	}
	return best;
}
