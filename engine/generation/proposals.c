// See proposals.h.
#include "engine/generation/proposals.h"

#include <string.h>

// Before anything is known of a text.
static const float right_at_first[PROPOSALS_KINDS] = {0.3f, 0.45f, 0.6f, 0.8f};
static const float learning = 0.1f;     // weight of the newest token in a share
static const float least_gain = 1.05f;  // that proposals must promise
static const float least_price = 0.02f; // of a row beside others
static const float credit_of_step = 0.025f;
static const float most_credit = 8;
static const float usual_price = 0.25f; // where nothing was measured

enum { TRIPS_SMOOTHED = 16 }; // the network time is a mean over so many round trips

// The network time that was measured with the nearest number of rows, rather fewer than more. 0: none was.
static double network_of(const struct row_prices *prices, int i)
{
	int at = i;
	while (at >= 0 && !prices->trips[at])
		at--;
	for (; at < 0 && i < ROW_TIMES; i++)
		at = prices->trips[i] ? i : -1;
	return at < 0 ? 0 : prices->network[at];
}

// Where the computing of one row was not timed, there is nothing to add the network time to, and it does not count.
static void set_prices(struct row_prices *prices)
{
	const double *times = prices->computed, one = times[0] + network_of(prices, 0);
	double computed = 1, known[ROW_TIMES] = {1};
	for (int i = 1; i < ROW_TIMES; i++) {
		const double step = 1 << (i - 1), least = computed + step * (double)least_price;
		computed = times[0] > 0 && times[i] > 0 ? times[i] / times[0] : computed + step * (double)usual_price;
		computed = computed > least ? computed : least;
		known[i] = times[0] > 0 ? (computed * times[0] + network_of(prices, i)) / one : computed;
		known[i] = known[i] > known[i - 1] ? known[i] : known[i - 1];
	}
	for (uint32_t rows = 1; rows <= PROPOSALS_ROWS; rows++) {
		int i = 0;
		while (rows > 1u << (i + 1))
			i++;
		const double share = (double)(rows - (1u << i)) / (double)(1u << i);
		prices->of[rows - 1] = (float)(known[i] + (rows > 1 ? share * (known[i + 1] - known[i]) : 0));
	}
}

void row_prices_set(struct row_prices *prices, const double times[ROW_TIMES])
{
	*prices = (struct row_prices){0};
	memcpy(prices->computed, times, sizeof prices->computed);
	set_prices(prices);
}

void row_prices_trip(struct row_prices *prices, uint32_t rows, double seconds)
{
	int i = 0;
	while (i < ROW_TIMES && rows > 1u << i)
		i++;
	if (!rows || i == ROW_TIMES || !(seconds >= 0))
		return;
	prices->trips[i] += prices->trips[i] < TRIPS_SMOOTHED;
	prices->network[i] += (seconds - prices->network[i]) / prices->trips[i];
	set_prices(prices);
}

// Which share counts for a token that is foreseen by so many.
static unsigned kind_of(uint32_t agreed)
{
	return agreed <= 2 ? 0 : agreed <= 4 ? 1 : agreed <= 8 ? 2 : 3;
}

void proposals_init(struct proposals *proposals)
{
	*proposals = (struct proposals){0};
	for (unsigned i = 0; i < PROPOSALS_KINDS; i++)
		proposals->right[i] = right_at_first[i];
}

float proposals_price(const struct row_prices *prices, uint32_t rows, uint32_t count)
{
	return count ? prices->of[rows + count - 1] / prices->of[rows - 1] - 1 : 0;
}

void proposals_settle(struct proposals *proposals, float price)
{
	const float credit = proposals->credit + credit_of_step - price;
	proposals->credit = credit < most_credit ? credit : most_credit;
}

void proposals_follow(struct proposals *proposals, const uint32_t *tokens, uint32_t count)
{
	if (!proposals->next)
		return;
	const bool right = tokens[proposals->next] == tokens[count - 1];
	float *share = &proposals->right[kind_of(proposals->agreed)];
	*share += ((right ? 1 : 0) - *share) * learning;
	proposals->next = right ? proposals->next + 1 : 0;
	proposals->agreed += proposals->agreed < PROPOSALS_LONG;
}

uint32_t proposals_find(const uint32_t *tokens, uint32_t count, uint32_t *agreed)
{
	uint32_t found = 0;
	*agreed = 0;
	if (count <= PROPOSALS_LEAST)
		return 0;
	const uint32_t last = tokens[count - 1], before = tokens[count - 2];
	const uint32_t first = count > PROPOSALS_BACK ? count - PROPOSALS_BACK : 0;
	for (uint32_t at = count - 1; at >= first + PROPOSALS_LEAST && *agreed < PROPOSALS_LONG; at--) {
		if (tokens[at - 1] != last || tokens[at - 2] != before)
			continue;
		uint32_t same = PROPOSALS_LEAST;
		while (same < PROPOSALS_LONG && same < at - first && tokens[at - 1 - same] == tokens[count - 1 - same])
			same++;
		if (same > *agreed) {
			*agreed = same;
			found = at;
		}
	}
	return found;
}

uint32_t proposals_count(struct proposals *proposals, const uint32_t *tokens, uint32_t count, uint32_t most,
			 uint32_t rows, const struct row_prices *prices)
{
	if (!most || !rows || rows >= PROPOSALS_ROWS)
		return 0;
	if (!proposals->next)
		proposals->next = proposals_find(tokens, count, &proposals->agreed);
	if (!proposals->next)
		return 0;
	uint32_t best = 0;
	float likely = 1, gives = (float)rows, gain = 1;
	for (uint32_t i = 1; i <= most && i <= PROPOSALS_MOST && rows + i <= PROPOSALS_ROWS; i++) {
		likely *= proposals->right[kind_of(proposals->agreed + i - 1)];
		gives += likely;
		if (proposals_price(prices, rows, i) > proposals->credit)
			break;
		const float now = gives / (float)rows * prices->of[rows - 1] / prices->of[rows + i - 1];
		if (now > gain) {
			gain = now;
			best = i;
		}
	}
	return gain > least_gain ? best : 0;
}
