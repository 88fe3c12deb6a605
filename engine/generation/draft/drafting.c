// See drafting.h.
#include "engine/generation/draft/drafting.h"

static const float learning = 0.1f;    // weight of the newest token in a share
static const float smoothing = 0.125f; // of the newest step in a time
static const float least_gain = 1.05f; // that proposals must promise
static const float credit_at_first = 0.5f;
static const float credit_of_step = 0.025f;
static const float most_credit = 8;

enum { ANSWER_LEAST = 64, TRIED = 2 };

static void smooth(float *mean, double seconds)
{
	if (seconds > 0)
		*mean = *mean > 0 ? *mean + ((float)seconds - *mean) * smoothing : (float)seconds;
}

void draft_times_chain(struct draft_times *times, uint32_t rows, double seconds)
{
	if (rows && rows <= PROPOSALS_ROWS)
		smooth(&times->chain[rows - 1], seconds);
}

void draft_times_step(struct draft_times *times, double seconds)
{
	smooth(&times->step, seconds);
}

float draft_times_of(const struct draft_times *times, const struct row_prices *prices, uint32_t base, uint32_t rows)
{
	const float known = times->chain[rows - 1];
	return known > 0 ? known : times->chain[base - 1] * prices->of[rows - 1] / prices->of[base - 1];
}

void drafting_init(struct drafting *drafting, float right)
{
	*drafting = (struct drafting){.right = right, .credit = credit_at_first};
}

void drafting_judge(float *right, bool chosen)
{
	*right += ((chosen ? 1 : 0) - *right) * learning;
}

void drafting_settle(struct drafting *drafting, float price)
{
	const float credit = drafting->credit + credit_of_step - price;
	drafting->credit = credit < most_credit ? credit : most_credit;
}

uint32_t drafting_left(uint32_t tokens, uint32_t most)
{
	const uint32_t left = tokens > ANSWER_LEAST ? tokens : ANSWER_LEAST;
	return left < most ? left : most;
}

struct draft_answer drafting_count(const struct drafting *drafting, const struct draft_question *question)
{
	const struct draft_times *times = question->times;
	const uint32_t rows = question->rows;
	struct draft_answer best = {0}, tried = {0}, none = {0};
	if (!rows || rows >= PROPOSALS_ROWS || !(times->chain[rows - 1] > 0) || !(times->step > 0))
		return none;
	const float plain = times->chain[rows - 1], reading = (float)question->unread * times->read;
	float likely = 1, gives = (float)rows, gain = least_gain;
	for (uint32_t i = 1; i <= question->most && rows + i <= PROPOSALS_ROWS; i++) {
		const float takes = (float)i * times->step + draft_times_of(times, question->prices, rows, rows + i);
		const struct draft_answer answer = {.count = i, .price = takes / plain - 1};
		likely *= drafting->right;
		gives += likely;
		if (gives / (float)rows * plain / takes > gain) {
			gain = gives / (float)rows * plain / takes;
			best = answer;
		}
		if (i <= TRIED)
			tried = answer;
	}
	if (best.count) { // the text is read once, and every later step gains by that
		const float saves = (1 - 1 / gain) * plain * (float)question->left;
		return drafting->credit > 0 && saves > reading ? best : none;
	}
	return tried.count && tried.price + reading / plain <= drafting->credit ? tried : none;
}
