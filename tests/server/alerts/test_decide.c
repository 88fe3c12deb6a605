/* When an alert is raised and cleared: the decision about one subject by tables, and what may be a rule. */
#include "server/alerts/decide.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

// 90 and over for 10 s raises, 80 and under clears.
static const struct alert_rule percent = {
	.rule_id = "percent", .threshold = 90, .clear_threshold = 80, .for_s = 10, .enabled = true};
static const struct alert_rule days = {
	.rule_id = "days", .threshold = 7, .clear_threshold = 8, .below = true, .enabled = true};
static const struct alert_rule at_once = {.rule_id = "at once", .threshold = 1, .clear_threshold = 0, .enabled = true};

enum { STEPS_MOST = 12 };
struct step {
	int64_t at_s;
	double value; // NaN: not known
	enum alert_turn turn;
};
struct row {
	const char *name;
	const struct alert_rule *rule;
	struct step steps[STEPS_MOST]; // to the first at 0 s
};

static const struct row rows[] = {
	{"a single sample raises nothing",
	 &at_once,
	 {{1, 1, ALERT_STAYS}, {2, 0, ALERT_STAYS}, {3, 1, ALERT_STAYS}, {4, 0, ALERT_STAYS}}},
	{"two samples do, without a time", &at_once, {{1, 1, ALERT_STAYS}, {2, 1, ALERT_RAISES}, {3, 1, ALERT_STAYS}}},
	{"the same sample twice is one", &at_once, {{1, 1, ALERT_STAYS}, {1, 1, ALERT_STAYS}, {2, 1, ALERT_RAISES}}},
	{"and two clear it, once",
	 &at_once,
	 {{1, 1, ALERT_STAYS}, {2, 1, ALERT_RAISES}, {3, 0, ALERT_STAYS}, {4, 0, ALERT_CLEARS}, {5, 0, ALERT_STAYS}}},
	{"the time must pass",
	 &percent,
	 {{1, 95, ALERT_STAYS}, {6, 95, ALERT_STAYS}, {10, 95, ALERT_STAYS}, {11, 95, ALERT_RAISES}}},
	{"one sample under it begins anew",
	 &percent,
	 {{1, 95, ALERT_STAYS},
	  {9, 89, ALERT_STAYS},
	  {10, 95, ALERT_STAYS},
	  {19, 95, ALERT_STAYS},
	  {20, 95, ALERT_RAISES}}},
	{"the threshold itself counts",
	 &percent,
	 {{1, 90, ALERT_STAYS}, {11, 90, ALERT_RAISES}, {12, 80, ALERT_STAYS}, {22, 80, ALERT_CLEARS}}},
	{"between the two it stays",
	 &percent,
	 {{1, 95, ALERT_STAYS},
	  {11, 95, ALERT_RAISES},
	  {20, 85, ALERT_STAYS},
	  {40, 85, ALERT_STAYS},
	  {50, 81, ALERT_STAYS},
	  {60, 95, ALERT_STAYS}}},
	{"and it does not come back between them",
	 &percent,
	 {{1, 95, ALERT_STAYS},
	  {11, 95, ALERT_RAISES},
	  {12, 70, ALERT_STAYS},
	  {22, 70, ALERT_CLEARS},
	  {30, 85, ALERT_STAYS},
	  {50, 89.9, ALERT_STAYS}}},
	{"what is not known begins anew",
	 &percent,
	 {{1, 95, ALERT_STAYS},
	  {9, NAN, ALERT_STAYS},
	  {10, 95, ALERT_STAYS},
	  {19, 95, ALERT_STAYS},
	  {20, 95, ALERT_RAISES}}},
	{"and clears nothing",
	 &percent,
	 {{1, 95, ALERT_STAYS},
	  {11, 95, ALERT_RAISES},
	  {20, NAN, ALERT_STAYS},
	  {40, NAN, ALERT_STAYS},
	  {41, 70, ALERT_STAYS},
	  {51, 70, ALERT_CLEARS}}},
	{"a pause of a minute begins anew",
	 &percent,
	 {{1, 95, ALERT_STAYS}, {61, 95, ALERT_STAYS}, {71, 95, ALERT_RAISES}}},
	{"below: under the threshold",
	 &days,
	 {{1, 8, ALERT_STAYS},
	  {2, 7.1, ALERT_STAYS},
	  {3, 7, ALERT_STAYS},
	  {4, -1, ALERT_RAISES},
	  {5, 7.5, ALERT_STAYS},
	  {6, 90, ALERT_STAYS},
	  {7, 90, ALERT_CLEARS}}},
};

static void test_tables(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct alert_state memory = {0};
		for (size_t j = 0; j < STEPS_MOST && rows[i].steps[j].at_s; j++) {
			const struct step *step = &rows[i].steps[j];
			const struct alert_sample sample = {
				.at_ms = step->at_s * 1000, .known = !isnan(step->value), .value = step->value};
			const enum alert_turn turn = alert_decide(rows[i].rule, &memory, &sample);
			if (turn != step->turn)
				fail_msg("%s: at %lld s it is %d, not %d", rows[i].name, (long long)step->at_s, turn,
					 step->turn);
		}
	}
}

static void test_disabled(void **state)
{
	struct alert_rule rule = at_once;
	struct alert_state memory = {.stands = true};
	(void)state;
	rule.enabled = false;
	assert_int_equal(alert_decide(&rule, &memory, &(struct alert_sample){1000, true, 1}), ALERT_CLEARS);
	for (int i = 2; i < 10; i++)
		assert_int_equal(alert_decide(&rule, &memory, &(struct alert_sample){i * 1000, true, 1}), ALERT_STAYS);
}

// docs/alerts.md has each rule as it is.
static void test_document(void **state)
{
	static char text[65536];
	FILE *file = fopen(TESTS_DIR "/../docs/alerts.md", "r");
	(void)state;
	assert_non_null(file);
	text[fread(text, 1, sizeof text - 1, file)] = 0;
	fclose(file);
	for (int i = 0; i < ALERT_RULES; i++) {
		char row[256];
		const struct alert_rule *rule = &alert_default_rules[i];
		snprintf(row, sizeof row, "| `%s` | %s | %s | %g%s%s | %lld s | %g |", rule->rule_id,
			 rule->subject_type, rule->severity, rule->threshold, rule->unit[0] ? " " : "", rule->unit,
			 (long long)rule->for_s, rule->clear_threshold);
		if (!strstr(text, row))
			fail_msg("docs/alerts.md lacks the row %s", row);
	}
}

static void test_rules(void **state)
{
	struct error error = {0};
	(void)state;
	for (int i = 0; i < ALERT_RULES; i++) {
		const struct alert_rule *rule = &alert_default_rules[i];
		assert_non_null(rule->rule_id);
		assert_int_equal(alert_rule_find(rule->rule_id), i);
		assert_int_equal(alert_rule_check(rule, &error), STATUS_OK);
		assert_true(rule->enabled);
	}
	assert_int_equal(alert_rule_find("no such rule"), ALERT_RULES);
	struct alert_rule rule = percent;
	rule.clear_threshold = 90;
	error = (struct error){0};
	assert_int_equal(alert_rule_check(&rule, &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "under"));
	rule = days;
	rule.clear_threshold = 6;
	error = (struct error){0};
	assert_int_equal(alert_rule_check(&rule, &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "over"));
	rule = percent;
	rule.threshold = NAN;
	error = (struct error){0};
	assert_int_equal(alert_rule_check(&rule, &error), STATUS_INVALID_PARAMS);
	rule = percent;
	rule.for_s = -1;
	error = (struct error){0};
	assert_int_equal(alert_rule_check(&rule, &error), STATUS_INVALID_PARAMS);
	rule.for_s = ALERT_FOR_MOST_S + 1;
	error = (struct error){0};
	assert_int_equal(alert_rule_check(&rule, &error), STATUS_INVALID_PARAMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_disabled),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_document),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
