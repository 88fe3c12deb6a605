/* Keeps a device under its limit: decides from each reading how large a share of the time work may use it.
 *
 *     FREE --(its target will be reached within a minute at this power)--> LIMITED --(it is hotter still)--> PAUSED
 *      ^                                                                    |  ^                               |
 *      +--(cooler than the target by `resume`, and the load fits)-----------+  +--(cooler by `resume`)---------+
 *
 * LIMITED: the share is the power that the forecast allows for the next minute, over what the load draws when it is not
 * held back. It falls at once and rises slowly. A policy without `limit` goes from FREE to PAUSED and back. While there
 * is no forecast, it is limited once it is at its target, by its temperature alone.
 *
 * Pure: the caller gives the time. Thread: any, one at a time for each. */
#pragma once
#include "server/thermal/model.h"

struct thermal_policy {
	double margin, resume; // °C: the target is the limit less `margin`; `resume` is below the target
	bool limit, pause;     // what may be done
	bool step_down, move;  // models may change their format, and may leave; the guard leaves that to others
};

enum thermal_step { THERMAL_FREE, THERMAL_LIMITED, THERMAL_PAUSED };

struct thermal_guard { // all zero at first
	enum thermal_step step;
	double share;                      // 0 to 1, of the time; of THERMAL_LIMITED
	double mean;                       // of the share, of the last minute or so, from 1 on; while it is not free
	double full_watts;                 // what the load draws when it is not held back, as far as is known
	double recent_watts, recent_share; // means of the last seconds
	double celsius;                    // of the reading before
	unsigned calls;                    // readings in a row that call for the next step
	int64_t newest_ms, step_ms;        // of the newest reading; since when the step is as it is
	int64_t held_ms;                   // since when it is not free; while it is, nothing
};

// Take the newest reading of `model`; limit: NaN if it is not known. True: the step has changed.
bool thermal_guard_update(struct thermal_guard *guard, const struct thermal_policy *policy,
			  const struct thermal_model *model, double limit, int64_t at_ms);
// The share of the time that work may use: 1 when it is free, 0 while it is paused.
double thermal_guard_share(const struct thermal_guard *guard);
