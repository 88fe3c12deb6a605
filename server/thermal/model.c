/* See model.h. */
#include "server/thermal/model.h"

#include "server/thermal/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Pairs of time constants, of boards and heat sinks, in seconds.
static const struct {
	double fast_s, slow_s;
} pairs[] = {{2, 25}, {2, 60}, {5, 60}, {5, 150}, {5, 400}, {12, 60}, {12, 150}, {12, 400}, {30, 150}, {30, 400}};

enum {
	FITS = sizeof pairs / sizeof *pairs,
	NOTE_MS = 10000, // how often it is noted what the fits say
	MINUTE = 6,      // notes in a minute
	FAR = 30,        // and in five
	NOTES = FAR + 1,
	LEARN_MS = 1000,        // readings that come faster are one sample of the fit
	GAP_MS = 20000,         // from here on it is not known what flowed between two readings
	STALE_MS = 30000,       // a forecast from older readings would be a guess
	ABSENT_MS = 30000,      // for how long a reading must be missing to be called absent
	FIXED_MS = 600000,      // and a temperature must not move to be called fixed
	JUDGED_LEAST = 4,       // moving minutes that were judged before anything is said
	JUDGED_UNSUITABLE = 60, // and before a device is called unsuitable
};

static const double moves_celsius = 2;   // from here on a minute's change is called moving
static const double swing_celsius = 4;   // that the temperature must have moved to tell anything
static const double swing_share = 0.1;   // of the most power, that the power must have moved
static const double swing_watts = 2;     // and at least
static const double error_ready = 3;     // mean error in moving minutes up to which forecasts are made
static const double error_again = 4;     // and beyond which a model that made them learns again
static const double offset_s = 8;        // time constant by which the newest readings move the whole forecast
static const double memory_s = 3600;     // of the mean errors
static const double memory_moving = 40;  // of those in moving minutes, in minutes that were judged
static const double within = 1.65;       // half the band of nine in ten, in standard deviations
static const double better = 0.95;       // share of the best error at which another fit takes over
static const double warn_celsius = 2;    // but no more than this
static const double warn_band = 0.6;     // share of the band that a warning allows for
static const double least_band = 0.5;    // what sensors that tell whole degrees are off by
static const double fixed_celsius = 0.5; // a sensor that moves by less does not move
static const double moves_full = 8;      // a forecast that moves by this is as uncertain as those that moved
static const double follows = 0.85;      // share of "it stays as it is" that a fit must be better than

struct note { // what was said at one time
	int64_t at_ms;
	unsigned run; // readings of one run have no gap between them
	float celsius;
	float offset[FITS], theta[FITS][THERMAL_NUMBERS];
};

struct errors { // means, weighted by age
	double weight, absolute, square;
};

struct judged {
	struct errors all;    // of all minutes
	struct errors moving; // of those in which the temperature moved
};

struct thermal_model {
	struct thermal_fit fits[FITS];
	double offset[FITS]; // by which the newest readings differ from the fit
	struct judged minute[FITS];
	struct judged stays; // the same of "it stays as it is"
	struct judged far;   // of the best fit, five minutes ahead
	int best;
	unsigned moving; // minutes in which the temperature moved
	bool ready;
	struct note notes[NOTES]; // the newest at (note_count - 1) % NOTES
	unsigned note_count, run;
	int64_t first_ms, newest_ms, learnt_ms; // of complete readings; 0: none yet
	int64_t any_ms, celsius_ms, watts_ms;   // of any reading, and when each was last there; first_any_ms: the first
	int64_t first_any_ms;
	double celsius, watts[3]; // watts: the newest last
	double coolest, hottest, least_watts, most_watts;
};

struct thermal_model *thermal_model_create(void)
{
	return calloc(1, sizeof(struct thermal_model));
}

void thermal_model_destroy(struct thermal_model **model)
{
	free(*model);
	*model = NULL;
}

static void begin(struct thermal_model *model, const struct thermal_reading *reading)
{
	for (int i = 0; i < FITS; i++)
		thermal_fit_init(&model->fits[i], pairs[i].fast_s, pairs[i].slow_s, reading->watts, reading->celsius);
	model->first_ms = model->newest_ms = model->learnt_ms = reading->at_ms;
	model->celsius = model->coolest = model->hottest = reading->celsius;
	model->watts[0] = model->watts[1] = model->watts[2] = reading->watts;
	model->least_watts = model->most_watts = reading->watts;
}

static void count_error(struct errors *errors, double error, double keep)
{
	errors->weight = errors->weight * keep + 1;
	errors->absolute += (fabs(error) - errors->absolute) / errors->weight;
	errors->square += (error * error - errors->square) / errors->weight;
}

static void judge(struct judged *judged, double error, bool moving)
{
	count_error(&judged->all, error, exp(-(NOTE_MS / 1000.0) / memory_s));
	if (moving)
		count_error(&judged->moving, error, exp(-1 / (memory_moving * MINUTE)));
}

// What a fit said at the time of the note about now, given the power that flowed since.
static double said(const struct thermal_model *model, const struct note *note, int fit)
{
	return (double)note->theta[fit][THERMAL_AMBIENT] +
	       (double)note->theta[fit][THERMAL_FAST] * model->fits[fit].fast +
	       (double)note->theta[fit][THERMAL_SLOW] * model->fits[fit].slow + (double)note->offset[fit];
}

// The note of `back` notes ago, if readings came all the time since.
static const struct note *note_before(const struct thermal_model *model, unsigned back)
{
	if (model->note_count < back)
		return NULL;
	const struct note *note = &model->notes[(model->note_count - back) % NOTES];
	const int64_t age_ms = model->newest_ms - note->at_ms, due_ms = (int64_t)back * NOTE_MS;
	return note->run == model->run && age_ms >= due_ms && age_ms < due_ms + 2 * NOTE_MS ? note : NULL;
}

static void choose(struct thermal_model *model)
{
	int best = model->best;
	for (int i = 0; i < FITS; i++)
		if (model->minute[i].moving.square < model->minute[best].moving.square)
			best = i;
	if (model->minute[best].moving.square < better * model->minute[model->best].moving.square)
		model->best = best;
}

static void judge_notes(struct thermal_model *model)
{
	const struct note *minute = note_before(model, MINUTE), *far = note_before(model, FAR);
	if (minute) {
		const double moved = model->celsius - (double)minute->celsius;
		const bool moving = fabs(moved) >= moves_celsius;
		for (int i = 0; i < FITS; i++)
			judge(&model->minute[i], model->celsius - said(model, minute, i), moving);
		judge(&model->stays, moved, moving);
		model->moving += moving;
		choose(model);
	}
	if (far)
		judge(&model->far, model->celsius - said(model, far, model->best),
		      fabs(model->celsius - (double)far->celsius) >= moves_celsius);
}

static void take_note(struct thermal_model *model)
{
	struct note *note = &model->notes[model->note_count++ % NOTES];
	*note = (struct note){.at_ms = model->newest_ms, .run = model->run, .celsius = (float)model->celsius};
	for (int i = 0; i < FITS; i++) {
		note->offset[i] = (float)model->offset[i];
		for (int j = 0; j < THERMAL_NUMBERS; j++)
			note->theta[i][j] = (float)model->fits[i].theta[j];
	}
}

static bool enough_swing(const struct thermal_model *model)
{
	const double swing = model->most_watts - model->least_watts;
	return swing >= fmax(swing_watts, swing_share * model->most_watts);
}

static bool follows_power(const struct thermal_model *model)
{
	return model->minute[model->best].moving.absolute <= follows * model->stays.moving.absolute;
}

static bool is_odd(const struct thermal_model *model)
{
	return model->moving >= JUDGED_UNSUITABLE && !follows_power(model);
}

// By how much a forecast may be off for what the fit does not know, over the whole range of power that was seen.
static double doubt_celsius(const struct thermal_model *model)
{
	return thermal_fit_doubt(&model->fits[model->best]) * (model->most_watts - model->least_watts);
}

static void judge_ready(struct thermal_model *model)
{
	const struct errors *error = &model->minute[model->best].moving, *stays = &model->stays.moving;
	if (model->ready)
		model->ready = error->absolute <= error_again && error->absolute <= stays->absolute;
	else
		model->ready = model->moving >= JUDGED_LEAST && enough_swing(model) &&
			       model->hottest - model->coolest >= swing_celsius &&
			       doubt_celsius(model) <= error_ready && error->absolute <= error_ready &&
			       follows_power(model);
}

static void take(struct thermal_model *model, const struct thermal_reading *reading)
{
	const int64_t gap_ms = reading->at_ms - model->newest_ms;
	const double s = (double)gap_ms / 1000;
	const bool known = gap_ms <= GAP_MS, learns = reading->at_ms - model->learnt_ms >= LEARN_MS;
	// Most sources tell the mean power since the reading before. Over a gap, the mean of both its ends is as good
	// as any.
	const double watts = known ? reading->watts : (reading->watts + model->watts[2]) / 2;
	model->run += !known;
	for (int i = 0; i < FITS; i++) {
		struct thermal_fit *fit = &model->fits[i];
		thermal_fit_step(fit, watts, s, known);
		if (learns)
			thermal_fit_learn(fit, reading->celsius,
					  known ? (double)(reading->at_ms - model->learnt_ms) / 1000 : 1);
		const double off = reading->celsius - thermal_fit_celsius(fit);
		model->offset[i] += (off - model->offset[i]) * (known ? 1 - exp(-s / offset_s) : 1);
	}
	if (learns)
		model->learnt_ms = reading->at_ms;
	model->newest_ms = reading->at_ms;
	model->celsius = reading->celsius;
	model->watts[0] = model->watts[1];
	model->watts[1] = model->watts[2];
	model->watts[2] = reading->watts;
	model->coolest = fmin(model->coolest, reading->celsius);
	model->hottest = fmax(model->hottest, reading->celsius);
	model->least_watts = fmin(model->least_watts, reading->watts);
	model->most_watts = fmax(model->most_watts, reading->watts);
	const struct note *newest = model->note_count ? &model->notes[(model->note_count - 1) % NOTES] : NULL;
	if (newest && reading->at_ms - newest->at_ms < NOTE_MS)
		return;
	judge_notes(model);
	take_note(model);
	judge_ready(model);
}

void thermal_model_add(struct thermal_model *model, const struct thermal_reading *reading)
{
	if (model->any_ms && reading->at_ms <= model->any_ms)
		return;
	if (!model->any_ms)
		model->first_any_ms = model->celsius_ms = model->watts_ms = reading->at_ms;
	model->any_ms = reading->at_ms;
	if (isfinite(reading->celsius))
		model->celsius_ms = reading->at_ms;
	if (isfinite(reading->watts))
		model->watts_ms = reading->at_ms;
	if (!isfinite(reading->celsius) || !isfinite(reading->watts))
		return;
	if (!model->newest_ms)
		begin(model, reading);
	else
		take(model, reading);
}

static enum thermal_state say(char reason[THERMAL_REASON_BYTES], enum thermal_state state, const char *text)
{
	snprintf(reason, THERMAL_REASON_BYTES, "%s", text);
	return state;
}

static enum thermal_state say_learning(const struct thermal_model *model, char reason[THERMAL_REASON_BYTES])
{
	const double swing = model->most_watts - model->least_watts, moved = model->hottest - model->coolest;
	if (!enough_swing(model) || moved < swing_celsius)
		snprintf(reason, THERMAL_REASON_BYTES,
			 "its load has not changed enough yet: power has moved by %.0f W, temperature by %.0f °C of "
			 "%.0f °C",
			 swing, moved, swing_celsius);
	else if (model->moving < JUDGED_LEAST)
		snprintf(reason, THERMAL_REASON_BYTES, "its temperature has not moved for long enough yet");
	else if (doubt_celsius(model) > error_ready)
		snprintf(reason, THERMAL_REASON_BYTES,
			 "its load has not told enough yet: from %.0f to %.0f W a forecast may be off by %.1f °C",
			 model->least_watts, model->most_watts, doubt_celsius(model));
	else
		snprintf(reason, THERMAL_REASON_BYTES,
			 "what was foreseen was off by %.1f °C on average when the temperature moved",
			 model->minute[model->best].moving.absolute);
	return THERMAL_LEARNING;
}

enum thermal_state thermal_model_state(const struct thermal_model *model, int64_t now_ms,
				       char reason[THERMAL_REASON_BYTES])
{
	const double swing = model->hottest - model->coolest;
	if (!model->any_ms)
		return say(reason, THERMAL_LEARNING, "no readings have come yet");
	if (model->any_ms - model->celsius_ms >= ABSENT_MS)
		return say(reason, THERMAL_UNSUITABLE, "it does not report its temperature");
	if (model->any_ms - model->watts_ms >= ABSENT_MS)
		return say(reason, THERMAL_UNSUITABLE, "it does not report its power");
	if (!model->newest_ms)
		return say(reason, THERMAL_LEARNING, "no reading with temperature and power has come yet");
	if (now_ms - model->newest_ms > STALE_MS) {
		snprintf(reason, THERMAL_REASON_BYTES, "its last reading is %.0f s old",
			 (double)(now_ms - model->newest_ms) / 1000);
		return THERMAL_LEARNING;
	}
	if (model->newest_ms - model->first_ms >= FIXED_MS && enough_swing(model) && swing < fixed_celsius)
		return say(reason, THERMAL_UNSUITABLE, "its temperature stays the same whatever power it draws");
	if (model->ready)
		return say(reason, THERMAL_READY, "");
	if (is_odd(model))
		return say(reason, THERMAL_UNSUITABLE, "its temperature does not follow its power");
	return say_learning(model, reason);
}

double thermal_model_ahead(const struct thermal_model *model, double watts, double s)
{
	if (!model->ready)
		return NAN;
	return thermal_fit_ahead(&model->fits[model->best], watts, s) + model->offset[model->best];
}

double thermal_model_after(const struct thermal_model *model, const double *watts, size_t count, double step_s)
{
	struct thermal_fit fit = model->fits[model->best];
	if (!model->ready)
		return NAN;
	for (size_t i = 0; i < count; i++)
		thermal_fit_step(&fit, watts[i], step_s, true);
	return thermal_fit_celsius(&fit) + model->offset[model->best];
}

double thermal_model_band(const struct thermal_model *model, double watts, double s)
{
	const struct judged *near = &model->minute[model->best], *far = model->far.all.weight > 0 ? &model->far : near;
	const double moves = fabs(thermal_model_ahead(model, watts, s) - model->celsius);
	const double share = fmin(fmax((s - 60) / 240, 0), 1); // of what is known five minutes ahead
	// The errors of all minutes are those of a steady temperature, mostly; one that moves is foreseen less well.
	const double steady = sqrt((1 - share) * near->all.square + share * far->all.square);
	const double moving = sqrt((1 - share) * near->moving.square +
				   share * fmax(far->moving.square, near->moving.square));
	const double how = fmin(moves / moves_full, 1);
	return fmax(within * (steady + how * fmax(moving - steady, 0)) * fmin(1, sqrt(s / 60) + 0.2), least_band);
}

double thermal_model_reaches(const struct thermal_model *model, double celsius, double watts)
{
	double s = 0;
	if (!model->ready)
		return NAN;
	if (model->celsius >= celsius)
		return 0;
	while (s <= THERMAL_SEARCH_S) {
		if (thermal_model_ahead(model, watts, s) >= celsius)
			return s;
		s += s < 120 ? 1 : s < 600 ? 5 : 30;
	}
	return INFINITY;
}

bool thermal_model_warns(const struct thermal_model *model, double celsius)
{
	const double watts = thermal_model_watts(model);
	if (!model->ready)
		return false;
	for (int s = 0; s <= THERMAL_WARN_S; s += 5)
		if (thermal_model_ahead(model, watts, s) +
			    fmin(thermal_model_band(model, watts, s) * warn_band, warn_celsius) >=
		    celsius)
			return true;
	return false;
}

double thermal_model_sustains(const struct thermal_model *model, double celsius)
{
	const struct thermal_fit *fit = &model->fits[model->best];
	const double whole = fit->theta[THERMAL_FAST] + fit->theta[THERMAL_SLOW];
	if (!model->ready || whole <= 0)
		return NAN;
	return fmax((celsius - fit->theta[THERMAL_AMBIENT] - model->offset[model->best]) / whole, 0);
}

double thermal_model_ambient(const struct thermal_model *model)
{
	return model->ready ? model->fits[model->best].theta[THERMAL_AMBIENT] : NAN;
}

double thermal_model_error(const struct thermal_model *model)
{
	return model->ready ? model->minute[model->best].all.absolute : NAN;
}

double thermal_model_watts(const struct thermal_model *model)
{
	const double *watts = model->watts;
	if (!model->newest_ms)
		return NAN;
	return fmax(fmin(watts[0], watts[1]), fmin(fmax(watts[0], watts[1]), watts[2]));
}

double thermal_model_newest_watts(const struct thermal_model *model)
{
	return model->newest_ms ? model->watts[2] : NAN;
}

double thermal_model_least_watts(const struct thermal_model *model)
{
	return model->newest_ms ? model->least_watts : NAN;
}

double thermal_model_most_watts(const struct thermal_model *model)
{
	return model->newest_ms ? model->most_watts : NAN;
}

bool thermal_model_moves(const struct thermal_model *model)
{
	return model->newest_ms && model->hottest - model->coolest >= swing_celsius && !is_odd(model);
}

double thermal_model_celsius(const struct thermal_model *model)
{
	return model->newest_ms ? model->celsius : NAN;
}

struct thermal_poles thermal_model_poles(const struct thermal_model *model)
{
	const struct thermal_fit *fit = &model->fits[model->best];
	const double tau_s[2] = {fit->tau_fast_s, fit->tau_slow_s};
	struct thermal_poles poles = {{0}, {0}};
	for (int i = 0; i < 2 && model->ready; i++) {
		poles.resistance[i] = fit->theta[i ? THERMAL_SLOW : THERMAL_FAST];
		poles.capacitance[i] = poles.resistance[i] > 0 ? tau_s[i] / poles.resistance[i] : 0;
	}
	return poles;
}
