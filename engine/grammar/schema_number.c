/* Numbers of a schema, within their bounds. See schema.h.
 *
 * A bound is checked digit by digit. The numbers between two bounds of the same length are: those that begin like the
 * lower bound and continue above it, those that begin like the upper bound and continue below it, and all whose first
 * digit lies between. */
#include "engine/grammar/schema_inside.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WHOLE_DIGITS = 18, POINT_DIGITS = 15 }; // of integers; before the point

struct bounds {
	double low, high;  // infinite: none
	bool above, below; // these themselves are out
};

static uint32_t digits(struct builder *builder, unsigned least, unsigned most)
{
	return expression_repeat(builder, expression_span(builder, '0', '9'), least, most);
}

// `length` digits from `low` to `high`.
static uint32_t same_length(struct builder *builder, const char *low, const char *high, unsigned length)
{
	static const char nines[] = "999999999999999999", zeros[] = "000000000000000000";
	const bool all_low = !memcmp(low, zeros, length), all_high = !memcmp(high, nines, length);
	if (all_low && all_high)
		return digits(builder, length, length);
	if (low[0] == high[0])
		return expression_pair(builder, expression_bytes(builder, low, 1),
				       same_length(builder, low + 1, high + 1, length - 1));
	struct list choices = {0};
	char first = low[0], last = high[0];
	if (memcmp(low + 1, zeros, length - 1) != 0)
		list_add(builder, &choices,
			 expression_pair(builder, expression_bytes(builder, &first, 1),
					 same_length(builder, low + 1, nines, length - 1)));
	first = (char)(memcmp(low + 1, zeros, length - 1) ? first + 1 : first);
	if (memcmp(high + 1, nines, length - 1) != 0)
		list_add(builder, &choices,
			 expression_pair(builder, expression_bytes(builder, &last, 1),
					 same_length(builder, zeros, high + 1, length - 1)));
	last = (char)(memcmp(high + 1, nines, length - 1) ? last - 1 : last);
	if (first <= last)
		list_add(builder, &choices,
			 expression_pair(builder, expression_span(builder, (uint8_t)first, (uint8_t)last),
					 digits(builder, length - 1, length - 1)));
	const uint32_t out = expression_choice(builder, &choices);
	list_finish(&choices);
	return out;
}

// Integers from `low` to `high` without a sign; nothing if there are none.
static uint32_t between(struct builder *builder, int64_t low, int64_t high)
{
	struct list choices = {0};
	char from[24], to[24];
	for (int64_t least = 0, most = 9, length = 1; length <= WHOLE_DIGITS; length++) {
		const int64_t first = low > least ? low : least, last = high < most ? high : most;
		if (first <= last) {
			snprintf(from, sizeof(from), "%" PRId64, first);
			snprintf(to, sizeof(to), "%" PRId64, last);
			list_add(builder, &choices, same_length(builder, from, to, (unsigned)length));
		}
		least = most + 1;
		most = length < WHOLE_DIGITS ? most * 10 + 9 : most;
	}
	const uint32_t out = expression_choice(builder, &choices);
	list_finish(&choices);
	return out;
}

static uint32_t negative(struct builder *builder, uint32_t magnitude)
{
	return expression_pair(builder, expression_text(builder, "-"), magnitude);
}

static uint32_t integers(struct schema *schema, const struct bounds *bounds)
{
	struct builder *builder = schema->builder;
	const int64_t most = 999999999999999999;
	double low = ceil(bounds->low), high = floor(bounds->high);
	low += bounds->above && low == bounds->low;
	high -= bounds->below && high == bounds->high;
	const int64_t from = low > -(double)most ? (int64_t)fmin(low, 1e18) : -most;
	const int64_t to = high < (double)most ? (int64_t)fmax(high, -1e18) : most;
	uint32_t out = between(builder, from > 0 ? from : 0, to);
	if (from < 0)
		out = expression_either(builder, out, negative(builder, between(builder, to < 0 ? -to : 1, -from)));
	return out;
}

// ---- with a point ----

static uint32_t point(struct builder *builder, uint32_t after)
{
	return expression_pair(builder, expression_text(builder, "."), after);
}

// Without a sign, from `low` to `high`, both whole; `above`, `below`: these themselves are out.
static uint32_t fractions(struct builder *builder, int64_t low, int64_t high, bool above, bool below)
{
	const uint32_t zeros = point(builder, expression_repeat(builder, expression_text(builder, "0"), 1, 15));
	const uint32_t any = expression_repeat(builder, point(builder, digits(builder, 1, 15)), 0, 1);
	const uint32_t some = point(
		builder, expression_pair(builder, digits(builder, 0, 14), expression_span(builder, '1', '9')));
	const uint32_t whole = expression_repeat(builder, zeros, 0, 1);
	struct list choices = {0};
	if (low < high) {
		list_add(builder, &choices, expression_pair(builder, between(builder, low, low), above ? some : any));
		if (low + 1 < high)
			list_add(builder, &choices, expression_pair(builder, between(builder, low + 1, high - 1), any));
	}
	if (low <= high && !below && (low < high || !above))
		list_add(builder, &choices, expression_pair(builder, between(builder, high, high), whole));
	const uint32_t out = expression_choice(builder, &choices);
	list_finish(&choices);
	return out;
}

static uint32_t numbers(struct schema *schema, const struct bounds *bounds)
{
	struct builder *builder = schema->builder;
	const double most = 999999999999999;
	const double low = fmax(bounds->low, -most), high = fmin(bounds->high, most);
	if (low != floor(low) || high != floor(high))
		return schema_refuse(schema, low != floor(low) ? "minimum" : "maximum",
				     "is supported for integers only");
	uint32_t out = high >= 0 ? fractions(builder, low > 0 ? (int64_t)low : 0, (int64_t)high,
					     bounds->above && low == bounds->low && low >= 0,
					     bounds->below && high == bounds->high)
				 : expression_choice(builder, &(struct list){0});
	if (low < 0)
		out = expression_either(
			builder, out,
			negative(builder, fractions(builder, high < 0 ? (int64_t)-high : 0, (int64_t)-low,
						    high >= 0 || (bounds->below && high == bounds->high),
						    bounds->above && low == bounds->low)));
	return out;
}

// ---- keywords ----

static void take_bound(struct schema *schema, const struct json *json, const char *keyword, double *bound)
{
	const struct json *value = json_get(json, keyword);
	const double number = json_number(value, NAN);
	if (value && (!(fabs(number) <= 1e15) || json_type(value) != JSON_NUMBER))
		schema_refuse(schema, keyword, "is kept as a number of 15 digits at most");
	if (value)
		*bound = number;
}

uint32_t schema_number(struct schema *schema, const struct json *json, bool whole)
{
	struct bounds bounds = {.low = -INFINITY, .high = INFINITY};
	double above = -INFINITY, below = INFINITY;
	const double step = json_get_number(json, "multipleOf", 1);
	take_bound(schema, json, "minimum", &bounds.low);
	take_bound(schema, json, "maximum", &bounds.high);
	take_bound(schema, json, "exclusiveMinimum", &above);
	take_bound(schema, json, "exclusiveMaximum", &below);
	bounds.above = above >= bounds.low && isfinite(above);
	bounds.below = below <= bounds.high && isfinite(below);
	bounds.low = bounds.above ? above : bounds.low;
	bounds.high = bounds.below ? below : bounds.high;
	if (json_get(json, "multipleOf") && step != 1)
		return schema_refuse(schema, "multipleOf", "cannot be enforced while an answer is generated");
	if (schema->builder->status)
		return 0;
	if (json_get(json, "multipleOf"))
		whole = true;
	if (bounds.low == -INFINITY && bounds.high == INFINITY)
		return schema_common(schema, whole ? COMMON_INTEGER : COMMON_NUMBER);
	return whole ? integers(schema, &bounds) : numbers(schema, &bounds);
}
