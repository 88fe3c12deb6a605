/* See rest.h. */
#include "server/cluster/rest.h"

#include <stdio.h>
#include <string.h>

static bool is_hidden(struct rest *rest, const struct json *telemetry, const struct json *chosen, int64_t now_ms)
{
	const bool hidden = !json_get_bool(telemetry, "visible", true) && json_get_bool(chosen, "hidden", true);
	if (!hidden)
		rest->hidden_ms = 0;
	else if (!rest->hidden_ms)
		rest->hidden_ms = now_ms;
	return hidden && now_ms - rest->hidden_ms >= REST_HIDDEN_MS;
}

static bool is_low(struct rest *rest, const struct json *telemetry, double percent, double limit)
{
	if (percent < 0 || json_get_bool(telemetry, "charging", true))
		rest->low = false;
	else if (percent < limit)
		rest->low = true;
	else if (percent >= limit + REST_BATTERY_STEP || limit <= 0)
		rest->low = false;
	return rest->low;
}

static bool is_pressed(struct rest *rest, const struct json *telemetry, bool computes, int64_t now_ms)
{
	const bool critical = !computes && !strcmp(json_get_string(telemetry, "pressure", ""), "critical");
	if (critical == rest->pressed)
		rest->pressure_ms = 0;
	else if (!rest->pressure_ms)
		rest->pressure_ms = now_ms;
	else if (now_ms - rest->pressure_ms >= REST_PRESSED_MS) {
		rest->pressed = critical;
		rest->pressure_ms = 0;
	}
	return rest->pressed;
}

bool rest_look(struct rest *rest, const struct json *telemetry, const struct json *chosen, bool computes,
	       int64_t now_ms)
{
	const double percent = json_get_number(telemetry, "battery_percent", -1),
		     limit = json_get_number(chosen, "below_percent", REST_BATTERY_PERCENT);
	const bool rested = rest->why[0] != 0, hidden = is_hidden(rest, telemetry, chosen, now_ms),
		   low = is_low(rest, telemetry, percent, limit),
		   pressed = is_pressed(rest, telemetry, computes, now_ms);
	if (hidden || low || pressed) {
		if (hidden)
			snprintf(rest->why, sizeof rest->why, "its page is in the background");
		else if (low)
			snprintf(rest->why, sizeof rest->why, "its battery is at %.0f %% (limit %.0f %%)", percent,
				 limit);
		else
			snprintf(rest->why, sizeof rest->why, "its processor is under critical pressure");
		rest->since_ms = rested ? rest->since_ms : now_ms;
	} else if (rested && now_ms - rest->since_ms >= REST_LEAST_MS) {
		rest->why[0] = 0;
	}
	return rested != (rest->why[0] != 0);
}
