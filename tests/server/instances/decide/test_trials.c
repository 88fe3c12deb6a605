/* Which device is to blame where starts of a model lead to different results: starts one after the other, what the next
 * one may do, and who is named; and random faults of one device, which never is believed once others show it. */
#include "server/instances/decide/trials.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 4, CASES = 2000 };

// Devices by letters: the same letter is the same device, a capital one the same, verified anew.
static unsigned make_devices(struct trial_device *devices, const char *letters)
{
	unsigned count = 0;
	for (; letters[count]; count++) {
		devices[count] = (struct trial_device){.key = (uint64_t)letters[count]};
		snprintf(devices[count].name, sizeof devices[count].name, "%c", letters[count] | 32);
	}
	return count;
}

// A start that leads to `token` with a logit of 10 times that; every other token would have half of it.
static struct trial_verdict judge(struct trials *trials, const char *letters, uint32_t token, double rounding)
{
	struct trial_device devices[MOST];
	struct trial_verdict verdict;
	uint32_t expected;
	struct trial start = {.devices = devices,
			      .device_count = make_devices(devices, letters),
			      .token = token,
			      .logit = 10.0 * token + rounding,
			      .spread = 1,
			      .expected_logit = NAN};
	if (trials_expected(trials, &expected))
		start.expected_logit = expected == token ? start.logit : 5.0 * expected;
	trials_judge(trials, &start, &verdict);
	return verdict;
}

static void test_starts(void **context)
{
	static const struct {
		struct {
			const char *devices;
			uint32_t token;
			bool agrees;
			const char *suspect, *others; // letters, "": nobody
		} starts[6];
	} cases[] = {
		// What came first runs, and so does who agrees.
		{{{"ab", 1, true, "", ""}, {"ab", 1, true, "", ""}, {"cd", 1, true, "", ""}}},
		// A wrong first start is found out by two others; then only it fails.
		{{{"ab", 2, true, "", ""},
		  {"cb", 1, false, "c", "a"},
		  {"db", 1, true, "", ""},
		  {"ab", 2, false, "a", ""},
		  {"cb", 1, true, "", ""}}},
		// The same where it was right, and the second is wrong.
		{{{"ab", 1, true, "", ""},
		  {"cb", 2, false, "c", "a"},
		  {"ab", 1, true, "", ""},
		  {"ac", 2, false, "c", ""},
		  {"ad", 1, true, "", ""}}},
		// A device that is verified anew is another one; by its name it is the same.
		{{{"ab", 1, true, "", ""}, {"Ab", 2, false, "A", ""}, {"ab", 1, true, "", ""}}},
		{{{"ab", 2, true, "", ""},
		  {"Ab", 1, false, "A", ""},
		  {"Ac", 1, true, "", ""},
		  {"ab", 2, false, "a", ""}}},
		// Another result each time: nobody alone explains it, and the first counts.
		{{{"ab", 1, true, "", ""},
		  {"ab", 2, false, "", ""},
		  {"ab", 3, false, "", ""},
		  {"ab", 1, true, "", ""}}},
		// Two that are wrong: the result of most placements counts.
		{{{"ab", 1, true, "", ""},
		  {"cd", 1, true, "", ""},
		  {"ac", 1, true, "", ""},
		  {"eb", 2, false, "e", ""},
		  {"fb", 3, false, "", ""},
		  {"bd", 1, true, "", ""}}},
	};
	(void)context;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct trials *trials = trials_create();
		for (unsigned k = 0; k < 6 && cases[i].starts[k].devices; k++) {
			const char *devices = cases[i].starts[k].devices, *suspect = cases[i].starts[k].suspect;
			const struct trial_verdict verdict = judge(trials, devices, cases[i].starts[k].token, 0.01 * k);
			char others[TRIAL_SUSPECTS + 1] = "";
			for (unsigned j = 0; j < verdict.other_count; j++)
				others[j] = verdict.others[j][0];
			print_message("case %zu, start %u: %s\n", i, k, devices);
			assert_int_equal(verdict.agrees, cases[i].starts[k].agrees);
			assert_int_equal(verdict.suspect < 0 ? 0 : devices[verdict.suspect], suspect[0]);
			assert_string_equal(others, cases[i].starts[k].others);
		}
		trials_destroy(&trials);
	}
}

// Back ends round differently; whose largest logit is another one's second largest agrees, too.
static void test_rounding(void **context)
{
	static const struct {
		double logit, expected;
		uint32_t token;
		bool agrees;
	} cases[] = {{10.1, 10.1, 1, true},
		     {9.7, 9.7, 1, false},
		     {10.2, 9.9, 2, true},
		     {10.9, 9.7, 2, false},
		     {99, NAN, 2, true}};
	struct trial_device devices[MOST];
	(void)context;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct trials *trials = trials_create();
		struct trial_verdict verdict = judge(trials, "ab", 1, 0);
		const struct trial start = {.devices = devices,
					    .device_count = make_devices(devices, "cd"),
					    .token = cases[i].token,
					    .logit = cases[i].logit,
					    .spread = 1,
					    .expected_logit = cases[i].expected};
		trials_judge(trials, &start, &verdict);
		assert_int_equal(verdict.agrees, cases[i].agrees);
		if (!verdict.agrees)
			assert_true(verdict.token == 1 && fabs(verdict.logit - 10) < 1e-9);
		trials_destroy(&trials);
	}
}

static uint64_t state = 88172645463325252u;
static unsigned draw(unsigned below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state % below);
}

static char letter(void)
{
	return "abcde"[draw(5)];
}

// One of five devices is wrong, in the same way or in another one each time. Whatever the order: once starts on three
// devices have shown what is right, no start with the wrong one runs, and each without it does. Who is named alone is
// the wrong one, but that it may have to be found out first.
static void test_one_is_wrong(void **context)
{
	unsigned named = 0;
	(void)context;
	for (unsigned i = 0; i < CASES; i++) {
		struct trials *trials = trials_create();
		const char wrong = letter();
		const bool same = draw(2);
		bool right[5] = {false};
		for (unsigned k = 0; k < 40; k++) {
			char devices[3] = {letter(), letter(), 0};
			while (devices[1] == devices[0])
				devices[1] = letter();
			const bool faulty = devices[0] == wrong || devices[1] == wrong;
			const int rights = right[0] + right[1] + right[2] + right[3] + right[4];
			const struct trial_verdict verdict = judge(trials, devices, faulty ? (same ? 2 : 2 + k) : 1, 0);
			if (rights >= 3 && k >= 20) {
				assert_int_equal(verdict.agrees, !faulty);
				if (verdict.suspect >= 0 && !verdict.other_count) {
					assert_int_equal(devices[verdict.suspect], wrong);
					named++;
				}
			}
			for (unsigned j = 0; j < 2; j++)
				right[devices[j] - 'a'] |= !faulty;
		}
		trials_destroy(&trials);
	}
	assert_true(named > CASES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_starts),
		cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_one_is_wrong),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
