/* Whether a browser's tab rests: it gets no new work, and layers of models leave it, while its page is in the
 * background, its battery is low, or its processor is pressed. Decided by what the tab reports and what its owner has
 * chosen on its page. What lasts only a moment counts for nothing. Pure but for the struct; thread: any. */
#pragma once
#include "common/json/json.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	REST_HIDDEN_MS = 10000,    // that a page is in the background before it rests
	REST_PRESSED_MS = 30000,   // that the pressure is critical before it rests, and that it is not until it works
	REST_LEAST_MS = 5000,      // that it rests
	REST_BATTERY_PERCENT = 20, // where the owner has set nothing
	REST_BATTERY_STEP = 5,     // above the limit it works again
};

struct rest {
	char why[96];        // "": it does not rest
	int64_t since_ms;    // that it rests
	int64_t hidden_ms;   // since when, steady; 0: it is not
	int64_t pressure_ms; // since when the pressure asks for a change; 0: it does not
	bool low, pressed;   // its battery; its processor
};

// After each report (NodeTelemetry, and what node.telemetry has as `rest`). `computes`: the device is the processor
// itself, whose pressure is its own work. True: `why` has changed from "" or to it.
bool rest_look(struct rest *rest, const struct json *telemetry, const struct json *chosen, bool computes,
	       int64_t now_ms);
