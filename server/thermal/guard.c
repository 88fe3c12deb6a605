/* See guard.h. */
#include "server/thermal/guard.h"

#include <math.h>

static const double least_share = 0.1;
static const double rise_per_s = 0.02;   // of the share
static const double full_memory_s = 120; // in which an old peak of power is forgotten
static const double mean_memory_s = 60;  // of the mean share
static const double settle_s = 3;        // after a change of the share, in which power still shows the one before
static const double horizons_s[] = {10, 30, 60};
static const double under_celsius = 1; // below the target, so that small errors of the model do not pass it

// The power that keeps the device under `target` for the next minute. It is linear in the power.
static double allowed_watts(const struct thermal_model *model, double target)
{
	double watts = INFINITY;
	for (unsigned i = 0; i < sizeof horizons_s / sizeof *horizons_s; i++) {
		const double none = thermal_model_ahead(model, 0, horizons_s[i]);
		const double rise = thermal_model_ahead(model, 1, horizons_s[i]) - none;
		if (rise > 0)
			watts = fmin(watts, (target - none) / rise);
	}
	return fmax(watts, 0);
}

static bool go(struct thermal_guard *guard, enum thermal_step step, double share, int64_t at_ms)
{
	const bool changes = guard->step != step;
	if (guard->step == THERMAL_FREE) {
		guard->held_ms = at_ms;
		guard->mean = 1;
	}
	if (changes)
		guard->step_ms = at_ms;
	if (changes || share != guard->share)
		guard->share_ms = at_ms;
	guard->step = step;
	guard->share = share;
	guard->calls = 0;
	return changes;
}

// What the load draws unhindered, from what it draws in its share of the time. Peaks count, so that pauses of the load
// do not look like a smaller load.
static void note_full(struct thermal_guard *guard, double watts, double idle, double s, int64_t at_ms)
{
	const double share = thermal_guard_share(guard);
	guard->full_watts = idle + fmax(guard->full_watts - idle, 0) * exp(-s / full_memory_s);
	if (share > 0 && (double)(at_ms - guard->share_ms) / 1000 >= settle_s)
		guard->full_watts = fmax(guard->full_watts, idle + (watts - idle) / share);
	guard->full_watts = fmax(guard->full_watts, watts);
}

static double wanted_share(const struct thermal_guard *guard, double allowed, double idle, double s)
{
	const double range = guard->full_watts - idle;
	const double share = range > 0 ? (allowed - idle) / range : 1;
	const double most = guard->step == THERMAL_LIMITED ? guard->share + rise_per_s * s : 1;
	return fmax(fmin(fmin(share, most), 1), least_share);
}

bool thermal_guard_update(struct thermal_guard *guard, const struct thermal_policy *policy,
			  const struct thermal_model *model, double limit, int64_t at_ms)
{
	const double celsius = thermal_model_celsius(model), watts = thermal_model_watts(model);
	const double idle = thermal_model_least_watts(model), target = limit - policy->margin;
	const double s = guard->newest_ms ? fmin((double)(at_ms - guard->newest_ms) / 1000, 10) : 0;
	const bool cool = celsius <= target - policy->resume;
	guard->newest_ms = at_ms;
	guard->mean += (thermal_guard_share(guard) - guard->mean) * (1 - exp(-s / mean_memory_s));
	if (isnan(limit) || isnan(thermal_model_ambient(model)) || (!policy->limit && !policy->pause))
		return go(guard, THERMAL_FREE, 1, at_ms);
	note_full(guard, watts, idle, s, at_ms);
	// What is past the target is taken back as much again.
	const double aim = target - under_celsius - fmax(celsius - target, 0);
	const double allowed = allowed_watts(model, aim), share = wanted_share(guard, allowed, idle, s);
	const bool too_hot = policy->pause && celsius >= (policy->limit ? limit - policy->margin / 2 : target);
	switch (guard->step) {
	case THERMAL_FREE:
		guard->calls = watts > allowed || too_hot ? guard->calls + 1 : 0;
		if (guard->calls < 2) // no single reading does anything
			return false;
		return policy->limit ? go(guard, THERMAL_LIMITED, share, at_ms)
				     : too_hot && go(guard, THERMAL_PAUSED, 0, at_ms);
	case THERMAL_LIMITED:
		if (!policy->limit || (cool && share >= 1))
			return go(guard, THERMAL_FREE, 1, at_ms);
		if (too_hot && guard->share <= least_share)
			return go(guard, THERMAL_PAUSED, 0, at_ms);
		return go(guard, THERMAL_LIMITED, share, at_ms);
	case THERMAL_PAUSED:
		if (!policy->pause || cool)
			return policy->limit ? go(guard, THERMAL_LIMITED, least_share, at_ms)
					     : go(guard, THERMAL_FREE, 1, at_ms);
		return false;
	}
	return false;
}

double thermal_guard_share(const struct thermal_guard *guard)
{
	return guard->step == THERMAL_FREE ? 1 : guard->step == THERMAL_PAUSED ? 0 : guard->share;
}
