/* See guard.h. */
#include "server/thermal/guard.h"

#include <math.h>

static const double least_share = 0.1;
static const double rise_per_s = 0.02;   // of the share
static const double full_memory_s = 120; // in which an old peak of power is forgotten
static const double mean_memory_s = 60;  // of the mean share
static const double recent_s = 10;       // of the mean power and share that tell what the load draws unhindered
static const double settled = 0.1;       // of the mean share, by which the share may differ from it for that
static const double horizons_s[] = {10, 30, 60};
static const double under_celsius = 1; // below the target, so that small errors of the model do not pass it
// Without a forecast: the share at first, and by how much of the time it changes for a degree, and for a degree in a
// second.
static const double first_share = 0.5, per_celsius = 0.04, per_celsius_s = 0.001;

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
	guard->step = step;
	guard->share = share;
	guard->calls = 0;
	return changes;
}

// What the load draws unhindered, from what it draws in its share of the time. Peaks count, so that pauses of the load
// do not look like a smaller load. Power that is read shows the share of some seconds before: both are means, and tell
// nothing while the share changes fast.
static void note_full(struct thermal_guard *guard, double watts, double idle, double s)
{
	const double share = thermal_guard_share(guard), part = 1 - exp(-s / recent_s);
	guard->recent_watts += (watts - guard->recent_watts) * part;
	guard->recent_share += (share - guard->recent_share) * part;
	guard->full_watts = idle + fmax(guard->full_watts - idle, 0) * exp(-s / full_memory_s);
	if (share > 0 && fabs(share - guard->recent_share) <= settled * guard->recent_share)
		guard->full_watts = fmax(guard->full_watts, idle + (guard->recent_watts - idle) / guard->recent_share);
	guard->full_watts = fmax(guard->full_watts, watts);
}

// A share that rises slowly.
static double bounded(const struct thermal_guard *guard, double share, double s)
{
	const double most = guard->step == THERMAL_LIMITED ? guard->share + rise_per_s * s : 1;
	return fmax(fmin(fmin(share, most), 1), least_share);
}

static double wanted_share(const struct thermal_guard *guard, double allowed, double idle, double s)
{
	const double range = guard->full_watts - idle;
	const double share = range > 0 ? (allowed - idle) / range : 1;
	return bounded(guard, share, s);
}

// The share by the temperature alone, while there is no forecast: the hotter, and the faster it gets hotter, the less.
static double share_by_celsius(const struct thermal_guard *guard, double celsius, double aim, double s)
{
	if (guard->step == THERMAL_FREE)
		return first_share;
	return bounded(guard,
		       guard->share - per_celsius * (celsius - guard->celsius) - per_celsius_s * s * (celsius - aim),
		       s);
}

bool thermal_guard_update(struct thermal_guard *guard, const struct thermal_policy *policy,
			  const struct thermal_model *model, double limit, int64_t at_ms)
{
	const double celsius = thermal_model_celsius(model), watts = thermal_model_newest_watts(model);
	const double idle = thermal_model_least_watts(model), target = limit - policy->margin;
	const double s = guard->newest_ms ? fmin((double)(at_ms - guard->newest_ms) / 1000, 10) : 0;
	const bool cool = celsius <= target - policy->resume, foreseen = !isnan(thermal_model_ambient(model));
	const bool known = foreseen || thermal_model_moves(model);
	if (!guard->newest_ms)
		guard->recent_share = 1;
	guard->newest_ms = at_ms;
	guard->mean += (thermal_guard_share(guard) - guard->mean) * (1 - exp(-s / mean_memory_s));
	if (isnan(limit) || !known || (!policy->limit && !policy->pause))
		return go(guard, THERMAL_FREE, 1, at_ms);
	note_full(guard, watts, idle, s);
	// What is past the target is taken back as much again.
	const double aim = target - under_celsius - fmax(celsius - target, 0);
	const double allowed = allowed_watts(model, aim);
	const double share = foreseen ? wanted_share(guard, allowed, idle, s)
				      : share_by_celsius(guard, celsius, target - under_celsius, s);
	const bool hot = foreseen ? watts > allowed : celsius >= target;
	const bool too_hot = policy->pause && celsius >= (policy->limit ? limit - policy->margin / 2 : target);
	guard->celsius = celsius;
	switch (guard->step) {
	case THERMAL_FREE:
		guard->calls = hot || too_hot ? guard->calls + 1 : 0;
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
