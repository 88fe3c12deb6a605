/* Which devices spares are wanted for, by what was measured and by time that passes here at will. */
#include "engine/node/workers/spares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

enum { MINUTE_MS = 60 * 1000 };

static struct spares spares;
static struct tenant *const somebody = (struct tenant *)&spares; // only whether there is one counts

static void use(const char *device_id, bool processor, double took_ms, int64_t now_ms)
{
	spares_used(&spares, &(struct spare_use){.backend = BACKEND_VULKAN,
						 .device_id = device_id,
						 .processor = processor,
						 .took_ms = took_ms,
						 .now_ms = now_ms});
}

static struct spare_place *place_of(const char *device_id)
{
	return spares_find(&spares, BACKEND_VULKAN, device_id);
}

static int begin(void **state)
{
	(void)state;
	spares = (struct spares){0};
	return 0;
}

static void slow_devices_get_one(void **state)
{
	(void)state;
	use("slow", false, 300, 1000);
	use("quick", false, 20, 1000);
	use("processor", true, 300, 1000);
	assert_non_null(place_of("slow"));
	assert_null(place_of("quick"));
	assert_null(place_of("processor"));
	assert_null(spares_find(&spares, BACKEND_CUDA, "slow"));
	assert_null(spares_due(&spares, 1001)); // the session has work now
	assert_ptr_equal(spares_due(&spares, 2000), place_of("slow"));
	place_of("slow")->worker = somebody;
	assert_null(spares_due(&spares, 2000));
	assert_int_equal(spares_count(&spares), 1);
}

static void a_threshold_holds_for_processors_too(void **state)
{
	(void)state;
	spares.setting = 10;
	use("processor", true, 20, 1000);
	use("quick", false, 5, 1000);
	assert_non_null(place_of("processor"));
	assert_null(place_of("quick"));
	spares = (struct spares){.setting = SPARES_OFF};
	use("slow", false, 100000, 1000);
	assert_int_equal(spares_places(&spares), 0);
}

static void what_nobody_uses_is_forgotten(void **state)
{
	(void)state;
	use("slow", false, 300, 0);
	use("slow", false, -1, 4 * MINUTE_MS);
	place_of("slow")->worker = somebody;
	assert_false(spares_is_idle(place_of("slow"), 8 * MINUTE_MS));
	assert_true(spares_is_idle(place_of("slow"), 9 * MINUTE_MS));
	assert_null(spares_due(&spares, 9 * MINUTE_MS));
	assert_int_equal(spares_places(&spares), 1); // its worker is to be ended first
	place_of("slow")->worker = NULL;
	assert_null(spares_due(&spares, 9 * MINUTE_MS));
	assert_int_equal(spares_places(&spares), 0);
}

static void failures_come_ever_more_slowly(void **state)
{
	int64_t pause_ms = 0, last_ms = 0, now_ms = 1000;
	(void)state;
	use("slow", false, 300, 0);
	struct spare_place *place = place_of("slow");
	for (int i = 0; i < 12; i++, last_ms = pause_ms, now_ms += pause_ms) {
		pause_ms = spares_failed(place, now_ms);
		assert_true(pause_ms >= last_ms);
		place->used_ms = now_ms;
		assert_null(spares_due(&spares, now_ms + pause_ms - 1));
		assert_ptr_equal(spares_due(&spares, now_ms + pause_ms), place);
	}
	print_message("after twelve failures: every %.0f s\n", (double)pause_ms / 1000);
	assert_int_equal(pause_ms, MINUTE_MS);
	use("slow", false, -1, now_ms); // one that was of use
	assert_true(spares_failed(place, now_ms) < 1000);
}

static void memory_goes_to_those_who_use_it(void **state)
{
	const uint64_t mib = 1 << 20;
	(void)state;
	assert_false(spares_is_short(8192 * mib, 81920 * mib));
	assert_true(spares_is_short(2048 * mib, 81920 * mib));
	assert_true(spares_is_short(400 * mib, 2048 * mib));
	use("slow", false, 300, 0);
	spares_postpone(place_of("slow"), 1000);
	assert_null(spares_due(&spares, 60000));
	assert_non_null(spares_due(&spares, 61000));
}

static void there_are_only_so_many(void **state)
{
	char id[16];
	(void)state;
	for (int i = 0; i < 2 * LIMIT_SPARES; i++) {
		snprintf(id, sizeof(id), "dev_%d", i);
		use(id, false, 300, 0);
	}
	assert_int_equal(spares_places(&spares), LIMIT_SPARES);
}

static void settings_are_read(void **state)
{
	static const char *const wrong[] = {"", "on", "0", "-1", "60001", "5ms", " 5", "99999999999999999999"};
	struct error error = {0};
	int setting = 7;
	(void)state;
	assert_int_equal(spares_parse("off", &setting, &error), STATUS_OK);
	assert_int_equal(setting, SPARES_OFF);
	assert_int_equal(spares_parse("60000", &setting, &error), STATUS_OK);
	assert_int_equal(setting, 60000);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (spares_parse(wrong[i], &setting, &error) != STATUS_INVALID_PARAMS)
			fail_msg("\"%s\" was taken as %d", wrong[i], setting);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(slow_devices_get_one, begin),
		cmocka_unit_test_setup(a_threshold_holds_for_processors_too, begin),
		cmocka_unit_test_setup(what_nobody_uses_is_forgotten, begin),
		cmocka_unit_test_setup(failures_come_ever_more_slowly, begin),
		cmocka_unit_test_setup(memory_goes_to_those_who_use_it, begin),
		cmocka_unit_test_setup(there_are_only_so_many, begin),
		cmocka_unit_test_setup(settings_are_read, begin),
	};
	return cmocka_run_group_tests_name("node/spares", tests, NULL, NULL);
}
