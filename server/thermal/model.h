/* The thermal model of one sensor of a device: how its temperature follows the power that the device draws, learnt from
 * readings as they come, and what follows from that for the next minutes.
 *
 * Ten pairs of time constants are fitted side by side (fit.h). Each is judged by what it would have said a minute ago
 * about the temperature now, given the power that flowed since then; the best of them is the model. The same errors,
 * counted apart for steady temperatures and for moving ones, are the band of a forecast, which is meant to hold nine of
 * ten readings.
 *
 * Pure: the caller gives the time, nothing is stored or told. Temperatures in °C, power in W, time in s unless the name
 * says otherwise. Thread: any, one at a time for each. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum thermal_state {
	THERMAL_UNKNOWN,
	THERMAL_LEARNING,   // not enough was seen to tell how it behaves
	THERMAL_READY,      // forecasts can be made
	THERMAL_UNSUITABLE, // it lacks a reading, or its temperature does not follow its power
};

enum { THERMAL_REASON_BYTES = 160, THERMAL_HORIZON_MOST_S = 3600, THERMAL_SEARCH_S = 3600 };

struct thermal_reading {
	int64_t at_ms;         // steady, of a clock that does not go back
	double celsius, watts; // NaN: not reported
};

struct thermal_model;

struct thermal_model *thermal_model_create(void); // NULL: no memory. 12 KiB
void thermal_model_destroy(struct thermal_model **model);
// Take a reading. One that is not newer than the last is passed over.
void thermal_model_add(struct thermal_model *model, const struct thermal_reading *reading);

// What is known at `now_ms`, with the reason of any state but THERMAL_READY ("" there), a sentence without a full stop.
enum thermal_state thermal_model_state(const struct thermal_model *model, int64_t now_ms,
				       char reason[THERMAL_REASON_BYTES]);

// The rest is known in THERMAL_READY only, and NaN otherwise.

// The temperature in `s` seconds if `watts` flow from now on.
double thermal_model_ahead(const struct thermal_model *model, double watts, double s);
// The temperature after watts[i] flowed for step_s each, one after the other. watts: (count)
double thermal_model_after(const struct thermal_model *model, const double *watts, size_t count, double step_s);
// Half the width of the band around it.
double thermal_model_band(const struct thermal_model *model, double watts, double s);
// Seconds until `celsius` are reached if `watts` flow from now on: 0 if it is that hot, INFINITY if not within
// THERMAL_SEARCH_S.
double thermal_model_reaches(const struct thermal_model *model, double celsius, double watts);
// Whether `celsius` are reached within THERMAL_WARN_S at the present power, or would be if the forecast is somewhat too
// low: by a part of its band, and 2 °C at most.
enum { THERMAL_WARN_S = 60 };
bool thermal_model_warns(const struct thermal_model *model, double celsius);
// The power that holds `celsius` for ever; 0 at least.
double thermal_model_sustains(const struct thermal_model *model, double celsius);
// The ambient temperature.
double thermal_model_ambient(const struct thermal_model *model);
// The mean error a minute ahead, given the power that flowed.
double thermal_model_error(const struct thermal_model *model);
// The present power: the middle one of the last three readings, so that one odd reading is not taken for a load.
double thermal_model_watts(const struct thermal_model *model);
double thermal_model_newest_watts(const struct thermal_model *model); // of the newest reading
// The least power that was ever read.
double thermal_model_least_watts(const struct thermal_model *model);
double thermal_model_most_watts(const struct thermal_model *model); // and the most
// Whether the temperature has moved since the start, and not in ways that its power does not explain.
bool thermal_model_moves(const struct thermal_model *model);
// The newest temperature.
double thermal_model_celsius(const struct thermal_model *model);

// The poles of the model, for a person: resistances in °C/W and capacitances in J/°C, the board first. A resistance of
// 0 is a pole that is not there; its capacitance is 0, too.
struct thermal_poles {
	double resistance[2], capacitance[2];
};
struct thermal_poles thermal_model_poles(const struct thermal_model *model);
