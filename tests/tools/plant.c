/* See plant.h. */
#include "tests/tools/plant.h"

#include <math.h>
#include <string.h>

double plant_draw(struct plant *plant) // splitmix64
{
	uint64_t z = plant->random += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static double between(struct plant *plant, double low, double high)
{
	return low + plant_draw(plant) * (high - low);
}

static double gauss(struct plant *plant)
{
	double sum = -6;
	for (int i = 0; i < 12; i++)
		sum += plant_draw(plant);
	return sum;
}

void plant_init(struct plant *plant, uint64_t seed, enum plant_kind kind)
{
	static const struct {
		double idle, most, rise; // watts, and °C at the most of them
	} sizes[] = {{75, 700, 45}, {20, 350, 50}, {60, 350, 45}, {4, 45, 50}, {10, 120, 45}};
	static const double samples[] = {0.5, 1, 1, 2, 5};
	*plant = (struct plant){.kind = kind, .random = seed};
	const int size = (int)(plant_draw(plant) * 5);
	plant->idle = sizes[size].idle * between(plant, 0.7, 1.3);
	plant->most = sizes[size].most * between(plant, 0.8, 1.1);
	const double whole = sizes[size].rise * between(plant, 0.7, 1.2) / plant->most;
	const double share = kind == PLANT_ONE_POLE ? 0 : between(plant, 0.2, 0.6); // of the board
	plant->resistance[0] = whole * share;
	plant->resistance[1] = whole * (1 - share);
	if (kind == PLANT_THREE_POLES) {
		plant->resistance[2] = whole * between(plant, 0.1, 0.25);
		plant->resistance[1] -= plant->resistance[2];
		plant->resistance[1] = fmax(plant->resistance[1], 0.2 * whole);
	}
	plant->capacity[0] = share > 0 ? between(plant, 2, 15) / plant->resistance[0] : 0;
	plant->capacity[1] = between(plant, 30, 300) / plant->resistance[1];
	plant->capacity[2] = kind == PLANT_THREE_POLES ? between(plant, 600, 1500) / plant->resistance[2] : 0;
	plant->ambient = between(plant, 18, 35);
	plant->drift = between(plant, 0, 3);
	plant->drift_s = between(plant, 3600, 14400);
	plant->noise = between(plant, 0, 0.4);
	plant->quantum = plant_draw(plant) < 0.6 ? 1 : plant_draw(plant) < 0.5 ? 0.125 : 0;
	plant->sample_s = samples[(int)(plant_draw(plant) * 5)];
	plant->jitter = between(plant, 0, 0.2);
	plant->dropout = plant_draw(plant) < 0.5 ? between(plant, 0, 0.05) : 0;
	plant->busy_faster = plant_draw(plant) < 0.3;
	for (int i = 0; i < 3; i++)
		plant->celsius[i] = plant->ambient + plant->idle * whole * (i == 2 ? 0.2 : i == 1 ? 1 - share : 1);
}

// The resistance to the air: fans and hot air change it.
static double outer(struct plant *plant)
{
	static const double from[] = {-100, 50, 60, 70}, speed[] = {1, 0.85, 0.72, 0.62};
	if (plant->kind == PLANT_CURVED)
		return plant->resistance[1] * (1 - 0.004 * (plant->celsius[1] - plant->ambient));
	if (plant->kind != PLANT_FANS)
		return plant->resistance[1];
	if (plant->fan < 3 && plant->celsius[0] > from[plant->fan + 1])
		plant->fan++;
	else if (plant->fan > 0 && plant->celsius[0] < from[plant->fan] - 4)
		plant->fan--;
	return plant->resistance[1] * speed[plant->fan];
}

void plant_step(struct plant *plant, double watts, double time_s, double s)
{
	const double air = plant->ambient + plant->drift * sin(2 * 3.14159265358979 * time_s / plant->drift_s);
	double *celsius = plant->celsius;
	const double out = (celsius[1] - (plant->capacity[2] > 0 ? celsius[2] : air)) / outer(plant);
	double in = watts;
	if (plant->capacity[0] > 0) {
		in = (celsius[0] - celsius[1]) / plant->resistance[0];
		celsius[0] += (watts - in) * s / plant->capacity[0];
	}
	celsius[1] += (in - out) * s / plant->capacity[1];
	if (plant->capacity[2] > 0)
		celsius[2] += (out - (celsius[2] - air) / plant->resistance[2]) * s / plant->capacity[2];
	if (!(plant->capacity[0] > 0))
		celsius[0] = celsius[1];
}

double plant_read(struct plant *plant)
{
	const double celsius = plant->celsius[0] + plant->noise * gauss(plant);
	return plant->quantum > 0 ? floor(celsius / plant->quantum) * plant->quantum : celsius;
}

void plant_course(struct plant *plant, double *watts, size_t steps)
{
	size_t i = 0;
	double from = plant->idle;
	while (i < steps) {
		const double what = plant_draw(plant), to = between(plant, plant->idle, plant->most);
		size_t length = (size_t)(between(plant, 20, 400) * 1000 / PLANT_STEP_MS);
		const size_t begun = i;
		const double period = between(plant, 4, 40) * 1000 / PLANT_STEP_MS, duty = between(plant, 0.3, 0.8);
		for (; i < steps && i - begun < length; i++) {
			const double share = (double)(i - begun) / (double)length;
			double now = to;
			if (what < 0.2)
				now = plant->idle;
			else if (what < 0.35)
				now = from + (to - from) * share; // a ramp
			else if (what < 0.55)
				now = fmod((double)(i - begun), period) < duty * period ? to : plant->idle; // bursts
			watts[i] = fmax(now * (1 + 0.02 * gauss(plant)), 0);
		}
		from = watts[i - 1];
	}
}

void plant_run_init(struct plant_run *run, uint64_t seed, enum plant_kind kind)
{
	memset(run, 0, sizeof *run);
	plant_init(&run->plant, seed, kind);
	plant_course(&run->plant, run->watts, PLANT_STEPS);
}

bool plant_run_step(struct plant_run *run, bool *reads)
{
	struct plant *plant = &run->plant;
	*reads = false;
	if (run->steps == PLANT_STEPS)
		return false;
	const double watts = run->watts[run->steps++], step_s = PLANT_STEP_MS / 1000.0;
	run->now_s = (double)run->steps * step_s;
	plant_step(plant, watts, run->now_s, step_s);
	run->flowed += watts;
	run->flowed_steps++;
	if (run->now_s < run->next_s)
		return true;
	const double wait_s = plant->busy_faster && watts < 1.3 * plant->idle ? 5 : plant->sample_s;
	run->next_s = run->now_s + wait_s * (1 + plant->jitter * (plant_draw(plant) - 0.5));
	if (plant_draw(plant) < plant->dropout)
		return true;
	run->read_celsius = plant_read(plant);
	run->read_watts = run->flowed / (double)run->flowed_steps;
	run->flowed = 0;
	run->flowed_steps = 0;
	*reads = true;
	return true;
}
