/* The CPU back end: what the layers of an encoder have that others do not. See stage.h. */
#include "engine/cpu/stage/stage.h"

#include <math.h>

// x = norm(x + bias): less its mean, by its deviation, times weights, plus the norm's bias.
void cpu_encoder_norm(float *x, const float *bias, const struct encoder_norm *norm, size_t n, float epsilon)
{
	double mean = 0, square = 0;
	for (size_t i = 0; i < n; i++) {
		x[i] += bias ? bias[i] : 0;
		mean += (double)x[i];
	}
	mean /= (double)n;
	for (size_t i = 0; i < n; i++)
		square += ((double)x[i] - mean) * ((double)x[i] - mean);
	const double by = 1 / sqrt(square / (double)n + (double)epsilon);
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(((double)x[i] - mean) * by) * norm->weights[i] + norm->bias[i];
}

// GELU as it is defined: x times the normal distribution's function of x (Hendrycks and Gimpel, arXiv 1606.08415).
void cpu_encoder_gelu(float *x, const float *bias, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const float value = x[i] + bias[i];
		x[i] = 0.5f * value * (1 + erff(value * 0.70710678f));
	}
}
