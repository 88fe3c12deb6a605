/* Simulated devices that heat up, and the sensors that read them: plants of two poles, and plants that are unlike the
 * model on purpose. One seed gives one plant, one course of its power and one row of readings. Thread: any. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plant_kind {
	PLANT_TWO_POLES,
	PLANT_ONE_POLE,
	PLANT_THREE_POLES, // a case around the heat sink
	PLANT_FANS,        // whose speed follows the temperature in steps
	PLANT_CURVED,      // whose resistance falls as it gets hotter
	PLANT_KINDS
};

struct plant {
	enum plant_kind kind;
	double resistance[3], capacity[3]; // from the chip outwards: °C/W, J/°C
	double celsius[3];                 // of the chip, its heat sink and its case
	double ambient, drift, drift_s;    // a slow swing of the ambient temperature
	double noise, quantum;             // of the sensor, °C
	double sample_s, jitter, dropout;  // distance of readings; share by which it varies; share that is lost
	bool busy_faster;                  // readings come at sample_s while it works and every 5 s else
	double idle, most;                 // watts
	int fan;
	uint64_t random;
};

double plant_draw(struct plant *plant); // 0 to 1
void plant_init(struct plant *plant, uint64_t seed, enum plant_kind kind);
// The plant as it is at `time_s`, one step of `s` seconds later, while `watts` flow. Steps are a quarter of a second.
void plant_step(struct plant *plant, double watts, double time_s, double s);
// What its sensor tells.
double plant_read(struct plant *plant);

enum { PLANT_STEP_MS = 250, PLANT_STEPS = 40 * 60 * 1000 / PLANT_STEP_MS };
// The power at each step: idle, steps, ramps, bursts and sustained work in an order that the seed decides. watts:
// (steps)
void plant_course(struct plant *plant, double *watts, size_t steps);

// Forty minutes of a plant under such a course.
struct plant_run {
	struct plant plant;
	double watts[PLANT_STEPS];
	size_t steps;         // that were made; at `steps` * PLANT_STEP_MS
	double now_s, next_s; // next_s: when the next reading is due
	double flowed;        // watts, summed since the last reading
	size_t flowed_steps;
	double read_celsius, read_watts; // the newest reading; its power is the mean since the one before
};
void plant_run_init(struct plant_run *run, uint64_t seed, enum plant_kind kind);
// Go to the next step. False at the end. *reads: a reading has come.
bool plant_run_step(struct plant_run *run, bool *reads);
