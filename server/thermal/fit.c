/* See fit.h. */
#include "server/thermal/fit.h"

#include <math.h>
#include <string.h>

static const double noise_celsius = 1.0;            // of a sample a second: the sensor's and the plant's own
static const double forget_ambient_s = 900;         // in which old samples lose weight for the ambient temperature
static const double forget_resistance_s = 5400;     // and for the resistances
static const double first_doubt[] = {15, 3, 3};     // standard deviations before the first sample
static const double most_doubt[] = {5, 0.25, 0.25}; // beyond which nothing is forgotten; of resistances a share of them
static const double lowest[] = {-40, 0, 0}, highest[] = {80, 50, 50};

void thermal_fit_init(struct thermal_fit *fit, double tau_fast_s, double tau_slow_s, double watts, double celsius)
{
	memset(fit, 0, sizeof *fit);
	fit->tau_fast_s = tau_fast_s;
	fit->tau_slow_s = tau_slow_s;
	fit->fast = fit->slow = watts;
	fit->theta[THERMAL_AMBIENT] = fmin(celsius, 30);
	for (int i = 0; i < THERMAL_NUMBERS; i++)
		fit->covariance[i][i] = first_doubt[i] * first_doubt[i];
}

void thermal_fit_step(struct thermal_fit *fit, double watts, double s, bool known)
{
	fit->fast = watts + (fit->fast - watts) * exp(-s / fit->tau_fast_s);
	fit->slow = watts + (fit->slow - watts) * exp(-s / fit->tau_slow_s);
	fit->since_s = known ? fit->since_s + s : 0;
}

// Let old samples count less.
static void forget(struct thermal_fit *fit, double s)
{
	double grow[THERMAL_NUMBERS];
	const double whole = fit->theta[THERMAL_FAST] + fit->theta[THERMAL_SLOW];
	for (int i = 0; i < THERMAL_NUMBERS; i++) {
		const double most = i == THERMAL_AMBIENT ? most_doubt[i] : most_doubt[i] * whole;
		const double time_s = i == THERMAL_AMBIENT ? forget_ambient_s : forget_resistance_s;
		grow[i] = fit->covariance[i][i] < most * most ? exp(s / (2 * time_s)) : 1;
	}
	for (int i = 0; i < THERMAL_NUMBERS; i++)
		for (int j = 0; j < THERMAL_NUMBERS; j++)
			fit->covariance[i][j] *= grow[i] * grow[j];
}

// Move what is out of its range to the end of it, and the others with it.
static void bound(struct thermal_fit *fit)
{
	for (int i = 0; i < THERMAL_NUMBERS; i++) {
		const double at = fmin(fmax(fit->theta[i], lowest[i]), highest[i]), by = at - fit->theta[i];
		if (by == 0)
			continue;
		for (int j = 0; j < THERMAL_NUMBERS; j++)
			fit->theta[j] += by * fit->covariance[i][j] / fit->covariance[i][i];
		fit->theta[i] = at;
	}
	for (int i = 0; i < THERMAL_NUMBERS; i++)
		fit->theta[i] = fmin(fmax(fit->theta[i], lowest[i]), highest[i]);
}

void thermal_fit_learn(struct thermal_fit *fit, double celsius, double s)
{
	const double inputs[THERMAL_NUMBERS] = {1, fit->fast, fit->slow};
	double gain[THERMAL_NUMBERS], spread = 0;
	// What flowed before the first reading is not known: the heat that it left fades with the slow time constant.
	const double before = 8 * exp(-fit->since_s / fit->tau_slow_s);
	const double noise = (noise_celsius * noise_celsius + before * before) / fmin(fmax(s, 0.5), 5);
	forget(fit, s);
	for (int i = 0; i < THERMAL_NUMBERS; i++) {
		gain[i] = 0;
		for (int j = 0; j < THERMAL_NUMBERS; j++)
			gain[i] += fit->covariance[i][j] * inputs[j];
		spread += gain[i] * inputs[i];
	}
	const double error = celsius - thermal_fit_celsius(fit);
	for (int i = 0; i < THERMAL_NUMBERS; i++)
		fit->theta[i] += gain[i] * error / (noise + spread);
	for (int i = 0; i < THERMAL_NUMBERS; i++)
		for (int j = 0; j <= i; j++) {
			fit->covariance[i][j] -= gain[i] * gain[j] / (noise + spread);
			fit->covariance[j][i] = fit->covariance[i][j];
		}
	for (int i = 0; i < THERMAL_NUMBERS; i++) // rounding must not make it negative
		fit->covariance[i][i] = fmax(fit->covariance[i][i], 1e-12);
	bound(fit);
}

double thermal_fit_celsius(const struct thermal_fit *fit)
{
	return fit->theta[THERMAL_AMBIENT] + fit->theta[THERMAL_FAST] * fit->fast +
	       fit->theta[THERMAL_SLOW] * fit->slow;
}

double thermal_fit_ahead(const struct thermal_fit *fit, double watts, double s)
{
	const double fast = watts + (fit->fast - watts) * exp(-s / fit->tau_fast_s);
	const double slow = watts + (fit->slow - watts) * exp(-s / fit->tau_slow_s);
	return fit->theta[THERMAL_AMBIENT] + fit->theta[THERMAL_FAST] * fast + fit->theta[THERMAL_SLOW] * slow;
}

double thermal_fit_doubt(const struct thermal_fit *fit)
{
	const double variance = fit->covariance[THERMAL_FAST][THERMAL_FAST] +
				2 * fit->covariance[THERMAL_FAST][THERMAL_SLOW] +
				fit->covariance[THERMAL_SLOW][THERMAL_SLOW];
	return sqrt(fmax(variance, 0));
}
