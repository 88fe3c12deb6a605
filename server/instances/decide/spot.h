/* Spot checks of what a browser computes for a model: which requests are checked, by which device, and what counts as
 * another result. The facts and actions are in parts/parts_spot.c.
 *
 * One request is checked at a time, from its first row on. Its rows are told from those of others by its pages, which
 * no other sequence has while it lasts: a model with layers in a browser shares none. Pure; thread: any. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SPOT_ROWS_MOST = 2048,              // of a request: what comes after is not checked
	SPOT_BYTES_MOST = 64 * 1024 * 1024, // of the copies that one check holds
	SPOT_CHECKS_MOST = 4,               // at once, of all models
	SPOT_REST_MS = 60000,               // after a check that could not begin, until the next
	SPOT_SILENCE_MS = 30000,            // of the device that computes again, or of the browser
	SPOT_PAUSE_MS = 3000,               // of the request: then what was copied of it is all
	SPOT_PERCENT_USUAL = 1,             // of requests, where an admin has set nothing
};
extern const double spot_tolerance; // largest error of a row: docs/lend.md says how it was measured

// Whether a request that begins is checked. drawn: at random, from 0 to below 1. owed: the layers have been loaded and
// no request was checked since. percent 0: none ever is.
bool spot_wanted(double percent, bool owed, double drawn);

// ---- the rows of one request ----

struct spot_run { // of a step
	uint32_t row_count, position;
	const uint32_t *pages; // (page_count)
	uint32_t page_count;
};
struct spot_request {
	const uint32_t *pages; // (page_count), all that it has used; the caller's
	uint32_t page_count;
	uint32_t tokens; // whose keys have been computed
};
enum spot_whose { SPOT_OTHER, SPOT_OWN, SPOT_OVER };
// Whose run it is: another request's, this one's, or a sign that the request is over, as another one has its pages.
enum spot_whose spot_look(const struct spot_request *request, const struct spot_run *run);

// ---- a step as it passes (the body of a ring.step, engine/worker/instance/ring.h), not checked yet ----

// Whether a request begins in it.
bool spot_begins(const uint8_t *body, size_t bytes);
// Whether no value of its activations is NaN or infinite: f32, told by this kind, `width` a row. True of what is no
// such body: who reads it refuses it.
bool spot_finite(const uint8_t *body, size_t bytes, uint32_t kind, uint32_t width);

// ---- results ----

enum spot_verdict {
	SPOT_AGREES,
	SPOT_DIFFERS,
	SPOT_UNCLEAR // what it is compared with is no number: the model overflows, or the other device is wrong
};
// Compare a row, (count) each. *error: the norm of the difference, by the norm of `wanted`; infinite where `got` has
// what is no finite number.
enum spot_verdict spot_judge(const float *got, const float *wanted, uint32_t count, double *error);

// ---- the device that computes again ----

struct spot_device {
	bool trusted; // of the server's own machine: no browser
	bool usable;  // verified, online, not draining, not held back for heat, and computes such layers
	bool idle;
	uint64_t free_bytes;
};
// Idle ones before others, of these the one with most room; -1: none has enough.
int spot_choose(const struct spot_device *devices, unsigned count, uint64_t needs_bytes);
