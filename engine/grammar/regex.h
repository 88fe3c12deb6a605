/* Regular expressions of ECMAScript, as a grammar's expressions.
 *
 * Known: characters, `.`, classes, \d \w \s and their complements (of ASCII, \s of Unicode's spaces too), \t \n \v \f
 * \r \xHH \uHHHH \u{H}, groups (capturing, (?:) and named), |, * + ? {n} {n,} {n,m} (lazy or not: the texts are the
 * same), and ^ and $ where an alternative of the whole begins and ends. Refused by name: lookaround, back references,
 * \b, \p, and ^ or $ anywhere else. U+0000 is no character. */
#pragma once
#include "engine/grammar/expression.h"

struct regex {
	const char *text; // (length), UTF-8
	size_t length;
	bool search; // without ^ or $ anything may come before or after, as in JSON Schema's pattern
	bool json;   // for the contents of a JSON string: characters that must be escaped are
};
// Read the expression. Errors are noted in the builder.
uint32_t regex_read(struct builder *builder, const struct regex *regex);

// A character of `ranges`, which are settled, as it is written in a JSON string that escapes only what it must.
uint32_t expression_json_class(struct builder *builder, const struct ranges *ranges);
