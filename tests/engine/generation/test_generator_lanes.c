/* How many lanes are chosen, by a clock that only runs in here: the faster number, whichever it is, at a bounded price,
 * also when it changes, and when requests come and go. */
#include "engine/generation/generator_lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

// What is measured: a round of all requests takes so long, by how many lanes there are.
struct plant {
	struct lanes_choice choice;
	double round_ms[65];          // by lanes
	double noise;                 // of a step, up to this share more
	uint32_t sent[65], under_way; // by how many lanes, those under way, the oldest first
	uint64_t random;
	int64_t now_ns;
	int64_t spent_ns[65]; // by lanes
};

static void begin(struct plant *plant, uint32_t most)
{
	*plant = (struct plant){.now_ns = 1, .random = 9};
	lanes_init(&plant->choice, most);
}

// As many as may be are sent, and one comes back.
static uint32_t turn(struct plant *plant, uint32_t generating)
{
	const uint32_t lanes = lanes_now(&plant->choice, generating, plant->under_way);
	assert_in_range(lanes, 1, plant->choice.most);
	while (plant->under_way < lanes)
		plant->sent[plant->under_way++] = lanes;
	const uint32_t of = plant->sent[0];
	memmove(plant->sent, plant->sent + 1, --plant->under_way * sizeof(uint32_t));
	plant->random = plant->random * 6364136223846793005U + 1442695040888963407U;
	const double more = 1 + plant->noise * (double)(plant->random >> 40) / (double)(1 << 24);
	const int64_t step_ns = (int64_t)(plant->round_ms[of] * 1e6 / of * more);
	plant->now_ns += step_ns;
	plant->spent_ns[of] += step_ns;
	lanes_back(&plant->choice, (generating + of - 1) / of, plant->under_way, plant->now_ns);
	return lanes;
}

static void spend(struct plant *plant, uint32_t generating, double seconds)
{
	const int64_t until_ns = plant->now_ns + (int64_t)(seconds * 1e9);
	while (plant->now_ns < until_ns)
		turn(plant, generating);
}

static double share_of(const struct plant *plant, uint32_t lanes)
{
	int64_t all_ns = 0;
	for (unsigned i = 0; i <= 64; i++)
		all_ns += plant->spent_ns[i];
	return (double)plant->spent_ns[lanes] / (double)all_ns;
}

static void forget_spent(struct plant *plant)
{
	for (unsigned i = 0; i <= 64; i++)
		plant->spent_ns[i] = 0;
}

// Either way round; after the beginning the other gets a hundredth of the time, as it is asked after now and then.
static void the_better_of_two(void **state)
{
	(void)state;
	for (uint32_t better = 1; better <= 2; better++)
		for (double ms = 0.5; ms < 400; ms *= 8) {
			struct plant plant;
			begin(&plant, 2);
			plant.noise = 0.02;
			plant.round_ms[better] = ms;
			plant.round_ms[3 - better] = ms * 1.4;
			spend(&plant, 8, 5 + ms / 5);
			forget_spent(&plant);
			spend(&plant, 8, 1000);
			assert_true(share_of(&plant, 3 - better) < 0.012);
			assert_true(plant.spent_ns[3 - better] > 0);
		}
}

static void the_best_of_many(void **state)
{
	(void)state;
	for (uint32_t best = 1; best <= 16; best *= 2) {
		struct plant plant;
		begin(&plant, 12);
		for (uint32_t lanes = 1; lanes <= 12; lanes++)
			plant.round_ms[lanes] = 100 + 20 * (lanes > best ? lanes - best : best - lanes);
		const uint32_t wanted = best < 12 ? best : 12;
		spend(&plant, 40, 1000);
		forget_spent(&plant);
		spend(&plant, 40, 1000);
		assert_true(share_of(&plant, wanted) > 0.985);
	}
}

// What is far slower is left after a round: nobody's tokens stay away for long.
static void the_hopeless_is_left(void **state)
{
	(void)state;
	struct plant plant;
	begin(&plant, 2);
	plant.round_ms[1] = 5000;
	plant.round_ms[2] = 50;
	spend(&plant, 8, 20);
	assert_true(plant.spent_ns[1] > 0 && plant.spent_ns[1] <= 5000000000);
}

// The machine changes: the other becomes the better one.
static void a_change_is_followed(void **state)
{
	(void)state;
	struct plant plant;
	begin(&plant, 2);
	plant.noise = 0.02;
	plant.round_ms[1] = 30;
	plant.round_ms[2] = 40;
	spend(&plant, 8, 20);
	plant.round_ms[1] = 60;
	spend(&plant, 8, 60);
	forget_spent(&plant);
	spend(&plant, 8, 500);
	assert_true(share_of(&plant, 2) > 0.98);
	plant.round_ms[1] = 20;
	spend(&plant, 8, 60);
	forget_spent(&plant);
	spend(&plant, 8, 500);
	assert_true(share_of(&plant, 1) > 0.98);
}

// Two that are as good as each other: after the beginning it stays with one.
static void equals_do_not_alternate(void **state)
{
	(void)state;
	struct plant plant;
	uint32_t before = 0;
	unsigned changes = 0;
	begin(&plant, 2);
	plant.noise = 0.02;
	plant.round_ms[1] = 30;
	plant.round_ms[2] = 30.5;
	spend(&plant, 8, 5);
	const int64_t until_ns = plant.now_ns + 500 * (int64_t)1000000000;
	while (plant.now_ns < until_ns) {
		const uint32_t now = turn(&plant, 8);
		changes += now != before;
		before = now;
	}
	assert_true(changes < 120); // 16000 rounds; a trial is two
	assert_true(share_of(&plant, 1) < 0.03 || share_of(&plant, 2) < 0.03);
}

static void nothing_to_choose(void **state)
{
	(void)state;
	struct plant plant;
	begin(&plant, 1);
	plant.round_ms[1] = 10;
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(turn(&plant, 1 + i % 100), 1);
	begin(&plant, 64);
	for (uint32_t lanes = 1; lanes <= 64; lanes++)
		plant.round_ms[lanes] = 10;
	for (uint32_t i = 0; i < 1000; i++) // one request has no use for two
		assert_int_equal(turn(&plant, 1), 1);
	assert_int_equal(lanes_now(&plant.choice, 0, 0), 64); // prompts get all
}

// One comes or leaves every few steps, and prompts go in between: it is known all the same, for all of them.
static void requests_come_and_go(void **state)
{
	(void)state;
	struct plant plant;
	uint32_t generating = 12;
	begin(&plant, 2);
	plant.noise = 0.05;
	plant.round_ms[1] = 30;
	plant.round_ms[2] = 45;
	for (unsigned i = 0; i < 40000; i++) {
		if (i == 8000)
			forget_spent(&plant);
		if (i % 10 == 9)
			generating += plant.random >> 63 ? generating < 15 : -(uint32_t)(generating > 8);
		if (i % 40 == 39) {
			assert_int_equal(lanes_now(&plant.choice, 0, plant.under_way), 2);
			plant.under_way = 0;
			plant.now_ns += 500000000; // is no round
			lanes_back(&plant.choice, 128, 0, plant.now_ns);
		}
		turn(&plant, generating);
	}
	assert_true(share_of(&plant, 2) < 0.03);
}

// As many as never were before: what was learnt of fewer holds, until it is known better.
static void the_nearest_is_asked(void **state)
{
	(void)state;
	struct plant plant;
	begin(&plant, 4);
	plant.round_ms[1] = 10;
	plant.round_ms[2] = plant.round_ms[4] = 20;
	spend(&plant, 8, 5);
	assert_int_equal(turn(&plant, 16), 1);
	assert_int_equal(turn(&plant, 200), 1);
	assert_int_equal(turn(&plant, 3), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_better_of_two),       cmocka_unit_test(the_best_of_many),
		cmocka_unit_test(the_hopeless_is_left),    cmocka_unit_test(a_change_is_followed),
		cmocka_unit_test(equals_do_not_alternate), cmocka_unit_test(nothing_to_choose),
		cmocka_unit_test(requests_come_and_go),    cmocka_unit_test(the_nearest_is_asked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
