/* Where the prompt of a request is computed: situations, and what holds in all of them. */
#include "server/instances/decide/phases.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

enum { CASES = 200000, PAGE = 32 };

// The pair of docs/notes/performance-cluster.md: 1.47 and 5.57 s for a prompt of 8,192, 128 KiB a token, 10 Gbit/s.
static const struct phases_side desk = {.name = "desk", .token_s = 1.47 / 8192, .bytes_per_s = 1.25e9, .rtt_ms = 0.2};
static const struct phases_side attic = {.name = "attic", .token_s = 5.57 / 8192};

static struct phases_decision decide(uint64_t tokens, const struct phases_side *home, const struct phases_side *other)
{
	struct phases_decision out;
	const struct phases_seen seen = {.prompt_tokens = tokens,
					 .page_tokens = PAGE,
					 .token_bytes = 131072,
					 .home = *home,
					 .others = other,
					 .count = other != NULL};
	phases_decide(&out, &seen);
	return out;
}

static void test_situations(void **context)
{
	(void)context;
	struct phases_side side = desk;
	struct phases_decision out = decide(8192, &attic, &desk);
	assert_int_equal(out.other, 0);
	assert_true(out.home_s > 5.5 && out.home_s < 5.6 && out.other_s > 1.47 && out.other_s < 1.65);
	assert_string_equal(out.reason, "prompt on desk, 1.55 s instead of 5.57; answer on attic");
	assert_int_equal(decide(8192, &desk, &attic).other, -1); // it is the faster one itself
	assert_int_equal(decide(8192, &attic, NULL).other, -1);
	assert_int_equal(decide(100, &attic, &desk).other, -1); // nothing to gain
	side.bytes_per_s = 1e6;                                 // the way takes longer than the computing saves
	assert_int_equal(decide(8192, &attic, &side).other, -1);
	side = desk;
	side.busy = 4;
	assert_int_equal(decide(8192, &attic, &side).other, -1);
	side = desk;
	side.token_s = -1;
	assert_int_equal(decide(8192, &attic, &side).other, -1);
	assert_non_null(strstr(decide(8192, &attic, &side).reason, "no other way is measured"));
	struct phases_side home = attic;
	home.cached_tokens = 8000; // a conversation goes on where it was
	assert_int_equal(decide(8192, &home, &desk).other, -1);
	side = attic; // as slow, but it has the prompt
	side.bytes_per_s = 1.25e9;
	side.rtt_ms = 0.2;
	side.cached_tokens = 8160;
	assert_int_equal(decide(8192, &attic, &side).other, 0);
	home = attic;
	home.token_s = -1;
	assert_non_null(strstr(decide(8192, &home, &desk).reason, "not measured yet"));
}

static uint64_t seed = 1;
static double draw(double most)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (double)(seed >> 33) / (double)(1u << 31) * most;
}

// It goes elsewhere only where that is known to be sooner by what it must; and the reason has the figures.
static void test_invariants(void **context)
{
	(void)context;
	unsigned elsewhere = 0;
	for (int i = 0; i < CASES; i++) {
		struct phases_side home = {
			.name = "home", .token_s = draw(1) < 0.1 ? -1 : draw(0.002), .busy = (unsigned)draw(3)};
		struct phases_side other = {.name = "other",
					    .token_s = draw(1) < 0.1 ? -1 : draw(0.002),
					    .busy = (unsigned)draw(3),
					    .bytes_per_s = draw(1) < 0.1 ? -1 : draw(2e9),
					    .rtt_ms = draw(1) < 0.1 ? -1 : draw(50)};
		const uint64_t tokens = 1 + (uint64_t)draw(20000);
		home.cached_tokens = draw(1) < 0.5 ? 0 : (uint64_t)draw((double)tokens);
		other.cached_tokens = draw(1) < 0.5 ? 0 : (uint64_t)draw((double)tokens);
		const struct phases_decision out = decide(tokens, &home, &other);
		assert_true(out.reason[0] && out.other <= 0);
		if (out.other < 0)
			continue;
		elsewhere++;
		assert_true(tokens >= PHASES_TOKENS_LEAST && home.token_s > 0 && other.token_s > 0 &&
			    other.bytes_per_s > 0 && other.rtt_ms >= 0);
		assert_true(out.home_s - out.other_s >= PHASES_GAIN_MS / 1000.0 * 0.999 &&
			    out.home_s - out.other_s >= out.home_s * PHASES_GAIN_PERCENT / 100.0 * 0.999);
		struct phases_side better = other; // what is better there stays there
		better.bytes_per_s *= 2;
		better.token_s /= 2;
		assert_int_equal(decide(tokens, &home, &better).other, 0);
	}
	assert_true(elsewhere > CASES / 20);
	print_message("%u of %d prompts were computed elsewhere\n", elsewhere, CASES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_situations), cmocka_unit_test(test_invariants)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
