/* See trials.h. */
#include "server/instances/decide/trials.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The allowed difference of logits: back ends round differently, by far less; another token's logit differs by far
// more.
static const double tolerance = 0.2;

struct seen {
	unsigned result; // equal ones have the same number
	uint32_t token;
	double logit, spread;
	unsigned device_count;
	struct trial_device devices[];
};

struct trials {
	struct seen *seen[TRIALS_SEEN]; // (count), the oldest first
	unsigned count, next_result;
};

struct trials *trials_create(void)
{
	return calloc(1, sizeof(struct trials));
}

void trials_destroy(struct trials **trials)
{
	for (unsigned i = 0; *trials && i < (*trials)->count; i++)
		free((*trials)->seen[i]);
	free(*trials);
	*trials = NULL;
}

// ---- results ----

// The first start that has the result of most placements; of several such results the one that came first. NULL: none.
static const struct seen *leading(const struct trials *trials)
{
	const struct seen *best = NULL;
	unsigned most = 0;
	for (unsigned i = 0; i < trials->count; i++) {
		unsigned equal = 0;
		for (unsigned k = 0; k < trials->count; k++)
			equal += trials->seen[k]->result == trials->seen[i]->result;
		if (equal > most) {
			most = equal;
			best = trials->seen[i];
		}
	}
	return best;
}

bool trials_expected(const struct trials *trials, uint32_t *token)
{
	const struct seen *lead = leading(trials);
	if (lead)
		*token = lead->token;
	return lead;
}

// The logit that a start gives the token of `one`; NAN: it has not told.
static double logit_of(const struct trials *trials, const struct trial *start, const struct seen *one)
{
	uint32_t expected;
	if (start->token == one->token)
		return start->logit;
	return trials_expected(trials, &expected) && expected == one->token ? start->expected_logit : NAN;
}

static bool is_equal(const struct trials *trials, const struct trial *start, const struct seen *one)
{
	const double logit = logit_of(trials, start, one);
	return !isnan(logit) && fabs(logit - one->logit) <= tolerance * one->spread;
}

// ---- devices ----

static bool has(const struct seen *one, uint64_t key)
{
	for (unsigned i = 0; i < one->device_count; i++)
		if (one->devices[i].key == key)
			return true;
	return false;
}

static bool same_devices(const struct seen *one, const struct seen *other)
{
	for (unsigned i = 0; i < one->device_count; i++)
		if (!has(other, one->devices[i].key))
			return false;
	return one->device_count == other->device_count;
}

// Whether this device alone explains all results: those without it are one, which none with it has. `right`: that one.
static bool explains(const struct trials *trials, uint64_t key, unsigned *right)
{
	const struct seen *without = NULL;
	for (unsigned i = 0; i < trials->count; i++) {
		const struct seen *one = trials->seen[i];
		if (has(one, key))
			continue;
		if (without && without->result != one->result)
			return false;
		without = one;
	}
	for (unsigned i = 0; without && i < trials->count; i++)
		if (has(trials->seen[i], key) && trials->seen[i]->result == without->result)
			return false;
	*right = without ? without->result : 0;
	return without;
}

// ---- judging ----

static void forget(struct trials *trials, unsigned index)
{
	free(trials->seen[index]);
	memmove(trials->seen + index, trials->seen + index + 1, (--trials->count - index) * sizeof *trials->seen);
}

// The last one kept; NULL: out of memory.
static struct seen *keep(struct trials *trials, const struct trial *start, unsigned result)
{
	struct seen *one = calloc(1, sizeof *one + start->device_count * sizeof *one->devices);
	if (!one)
		return NULL;
	*one = (struct seen){.result = result,
			     .token = start->token,
			     .logit = start->logit,
			     .spread = start->spread,
			     .device_count = start->device_count};
	memcpy(one->devices, start->devices, start->device_count * sizeof *one->devices);
	for (unsigned i = 0; i < trials->count; i++) // the same again says nothing new
		if (trials->seen[i]->result == result && same_devices(trials->seen[i], one)) {
			free(trials->seen[i]);
			return trials->seen[i] = one;
		}
	const struct seen *lead = leading(trials);
	for (unsigned i = 0; trials->count == TRIALS_SEEN; i++) // a result that is not of the most is kept longer
		if (trials->seen[i]->result == lead->result || i + 1 == trials->count)
			forget(trials, i);
	return trials->seen[trials->count++] = one;
}

static void add_other(struct trial_verdict *out, const char *name)
{
	for (unsigned i = 0; i < out->other_count && i < TRIAL_SUSPECTS; i++)
		if (!strcmp(out->others[i], name))
			return;
	if (out->other_count < TRIAL_SUSPECTS)
		snprintf(out->others[out->other_count], TRIAL_NAME_BYTES, "%s", name);
	out->other_count++;
}

// The devices that may be to blame, `most` at most. `right`: the result without them, if all have the same.
static unsigned find_suspects(const struct trials *trials, const struct trial_device **suspects, unsigned most,
			      unsigned *right, bool *one_right)
{
	unsigned count = 0;
	*one_right = true;
	for (unsigned i = 0; i < trials->count; i++)
		for (unsigned k = 0; k < trials->seen[i]->device_count; k++) {
			const struct trial_device *device = &trials->seen[i]->devices[k];
			unsigned result;
			bool known = false;
			for (unsigned j = 0; j < i; j++)
				known = known || has(trials->seen[j], device->key);
			if (known || count == most || !explains(trials, device->key, &result))
				continue;
			*one_right = *one_right && (!count || result == *right);
			*right = result;
			suspects[count++] = device;
		}
	return count;
}

static void blame(const struct seen *one, const struct trial_device *const *suspects, unsigned count,
		  struct trial_verdict *out)
{
	for (unsigned i = 0; i < one->device_count && out->suspect < 0; i++)
		for (unsigned k = 0; k < count; k++)
			if (suspects[k]->key == one->devices[i].key)
				out->suspect = (int)i;
	for (unsigned k = 0; k < count; k++)
		if (out->suspect < 0 || strcmp(suspects[k]->name, one->devices[out->suspect].name) != 0)
			add_other(out, suspects[k]->name);
}

static const struct seen *first_with(const struct trials *trials, unsigned result)
{
	for (unsigned i = 0; i < trials->count; i++)
		if (trials->seen[i]->result == result)
			return trials->seen[i];
	return NULL;
}

void trials_judge(struct trials *trials, const struct trial *start, struct trial_verdict *out)
{
	enum { MOST = 256 };
	const struct trial_device *suspects[MOST];
	unsigned result = 0, right = 0;
	bool known = false, one_right = false;
	uint32_t expected;
	*out = (struct trial_verdict){.agrees = true, .suspect = -1};
	if (!(start->spread > 0))
		return;
	// Two began at once, and neither knew what to ask for.
	if (trials_expected(trials, &expected) && expected != start->token && isnan(start->expected_logit))
		return;
	for (unsigned i = 0; i < trials->count && !known; i++) {
		known = is_equal(trials, start, trials->seen[i]);
		result = trials->seen[i]->result;
	}
	const struct seen *one = keep(trials, start, known ? result : trials->next_result++), *wanted;
	if (!one)
		return;
	const unsigned count = find_suspects(trials, suspects, MOST, &right, &one_right);
	wanted = count && one_right ? first_with(trials, right) : leading(trials);
	if (wanted->result == one->result)
		return;
	out->agrees = false;
	out->token = wanted->token;
	out->logit = wanted->logit;
	blame(one, suspects, count, out);
}
