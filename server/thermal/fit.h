/* One candidate of a thermal model: a pair of time constants, and the resistances and the ambient temperature that fit
 * them.
 *
 * The plant is a heat sink with a board on it, each a thermal resistance R (°C/W) with a heat capacity C (J/°C):
 *
 *     celsius = ambient + R1 x1 + R2 x2        dxi/dt = (watts - xi) / tau_i        tau_i = R_i C_i
 *
 * With both time constants given, the temperature is linear in (ambient, R1, R2), and x1 and x2 follow from the power
 * alone. So noise and the sensor's rounding do not bias the fit, readings may come at any distance, and recursive least
 * squares finds the three numbers. A model with one pole is the case R1 = 0 or R2 = 0.
 *
 * Forgetting: before each update the covariance grows, the ambient's faster than the resistances', and never past a
 * bound, so that hours without a change of power do not make the fit forget what it knows. Bounds: each number stays in
 * its range, the other two are moved with it as their covariance says.
 *
 * Source of the method (lumped resistances and capacitances with time constants from measurements): Conficoni et al.,
 * arXiv 1810.01865. Recursive least squares with several forgetting factors: Vahidi et al. 2005. Thread: any, one at a
 * time for each. */
#pragma once
#include <stdbool.h>

enum { THERMAL_AMBIENT, THERMAL_FAST, THERMAL_SLOW, THERMAL_NUMBERS }; // °C, °C/W, °C/W

struct thermal_fit {
	double tau_fast_s, tau_slow_s;
	double fast, slow;                                   // x1, x2, in watts
	double theta[THERMAL_NUMBERS];                       // as the enum has them
	double covariance[THERMAL_NUMBERS][THERMAL_NUMBERS]; // of theta
	double since_s;                                      // how long x1 and x2 are known to follow the power
};

// Begin at `watts`, as if that had flowed for ever.
void thermal_fit_init(struct thermal_fit *fit, double tau_fast_s, double tau_slow_s, double watts, double celsius);
// `watts` flowed for `s` seconds. `known`: it was measured; else x1 and x2 are guesses again.
void thermal_fit_step(struct thermal_fit *fit, double watts, double s, bool known);
// Take a temperature that was read `s` seconds after the one before.
void thermal_fit_learn(struct thermal_fit *fit, double celsius, double s);
// The fitted temperature now.
double thermal_fit_celsius(const struct thermal_fit *fit);
// The fitted temperature in `s` seconds, if `watts` flow until then.
double thermal_fit_ahead(const struct thermal_fit *fit, double watts, double s);
// Standard deviation of R1 + R2, in °C/W.
double thermal_fit_doubt(const struct thermal_fit *fit);
