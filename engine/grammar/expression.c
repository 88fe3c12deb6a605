/* See expression.h. */
#include "engine/grammar/expression.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BYTES_MOST = 8 * 1024 * 1024, // of texts and names
	ITEMS_MOST = 4 * GRAMMAR_NODES,
	SHARED_MOST = 64, // beginnings of words in each other
	LAST_CHARACTER = 0x10FFFF,
};

void builder_init(struct builder *builder, struct error *error)
{
	*builder = (struct builder){.error = error};
	buffer_init(&builder->bytes, BYTES_MOST);
	expression_bytes(builder, "", 0); // number 0: returned when memory is short
}

void builder_finish(struct builder *builder)
{
	free(builder->expressions);
	free(builder->rules);
	list_finish(&builder->kids);
	span_list_finish(&builder->ranges);
	buffer_finish(&builder->bytes);
}

enum status builder_fail(struct builder *builder, enum status status, const char *format, ...)
{
	char text[sizeof(builder->error->message)];
	va_list arguments;
	if (builder->status)
		return builder->status;
	builder->status = status;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return error_set(builder->error, status, "%s", text);
}

static enum status too_large(struct builder *builder)
{
	if (!builder->status && builder->error)
		error_hint(builder->error, "use fewer repetitions, or remove optional parts");
	return builder_fail(builder, STATUS_LIMIT_EXCEEDED, "the grammar is too large: at most %d steps",
			    GRAMMAR_NODES);
}

// Room for one more. Returns the memory, which may be another, or NULL and has noted why.
static void *grow(struct builder *builder, void *items, size_t count, size_t *capacity, size_t size, size_t most)
{
	if (count < *capacity)
		return items;
	if (count >= most) {
		too_large(builder);
		return NULL;
	}
	const size_t more = *capacity ? 2 * *capacity : 64;
	void *grown = realloc(items, more * size);
	if (!grown)
		builder_fail(builder, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
	else
		*capacity = more;
	return grown;
}

void list_add(struct builder *builder, struct list *list, uint32_t item)
{
	void *items = grow(builder, list->items, list->count, &list->capacity, sizeof(uint32_t), ITEMS_MOST);
	if (!items)
		return;
	list->items = items;
	list->items[list->count++] = item;
}

void list_finish(struct list *list)
{
	free(list->items);
	*list = (struct list){0};
}

// ---- ranges of characters ----

void span_list_add(struct builder *builder, struct ranges *ranges, uint32_t low, uint32_t high)
{
	void *items = grow(builder, ranges->items, ranges->count, &ranges->capacity, sizeof(struct range), ITEMS_MOST);
	if (!items)
		return;
	ranges->items = items;
	ranges->items[ranges->count++] = (struct range){low, high};
}

void span_list_finish(struct ranges *ranges)
{
	free(ranges->items);
	*ranges = (struct ranges){0};
}

static int compare_ranges(const void *left, const void *right)
{
	const struct range *a = left, *b = right;
	return a->low < b->low ? -1 : a->low > b->low;
}

void span_list_settle(struct ranges *ranges)
{
	size_t kept = 0;
	if (ranges->count)
		qsort(ranges->items, ranges->count, sizeof(struct range), compare_ranges);
	for (size_t i = 0; i < ranges->count; i++) {
		struct range one = ranges->items[i];
		one.low = one.low ? one.low : 1;
		one.high = one.high < LAST_CHARACTER ? one.high : LAST_CHARACTER;
		if (one.low > one.high)
			continue;
		if (kept && one.low <= ranges->items[kept - 1].high + 1) {
			if (one.high > ranges->items[kept - 1].high)
				ranges->items[kept - 1].high = one.high;
		} else {
			ranges->items[kept++] = one;
		}
	}
	ranges->count = kept;
}

void span_list_invert(struct builder *builder, struct ranges *ranges)
{
	struct ranges rest = {0};
	uint32_t next = 1;
	for (size_t i = 0; i < ranges->count; i++) {
		if (ranges->items[i].low > next)
			span_list_add(builder, &rest, next, ranges->items[i].low - 1);
		next = ranges->items[i].high + 1;
	}
	if (next <= LAST_CHARACTER)
		span_list_add(builder, &rest, next, LAST_CHARACTER);
	span_list_finish(ranges);
	*ranges = rest;
}

// ---- expressions ----

static uint32_t add(struct builder *builder, struct expression expression)
{
	void *items = grow(builder, builder->expressions, builder->expression_count, &builder->expression_capacity,
			   sizeof(struct expression), EXPRESSIONS_MOST);
	if (!items)
		return 0;
	builder->expressions = items;
	builder->expressions[builder->expression_count] = expression;
	return (uint32_t)builder->expression_count++;
}

uint32_t expression_bytes(struct builder *builder, const void *bytes, size_t length)
{
	const uint32_t first = (uint32_t)builder->bytes.length;
	if (length && buffer_append(&builder->bytes, bytes, length)) {
		too_large(builder);
		return 0;
	}
	return add(builder, (struct expression){.kind = EXPRESSION_BYTES, .first = first, .count = (uint32_t)length});
}

uint32_t expression_text(struct builder *builder, const char *text)
{
	return expression_bytes(builder, text, strlen(text));
}

uint32_t expression_class(struct builder *builder, const struct ranges *ranges)
{
	const size_t first = builder->ranges.count;
	for (size_t i = 0; i < ranges->count; i++)
		span_list_add(builder, &builder->ranges, ranges->items[i].low, ranges->items[i].high);
	return add(builder, (struct expression){.kind = EXPRESSION_CLASS,
						.first = (uint32_t)first,
						.count = (uint32_t)(builder->ranges.count - first)});
}

uint32_t expression_span(struct builder *builder, uint32_t low, uint32_t high)
{
	struct range range = {low, high};
	return expression_class(builder, &(struct ranges){.items = &range, .count = 1});
}

static uint32_t of_kids(struct builder *builder, enum expression_kind kind, const uint32_t *kids, size_t count)
{
	const size_t first = builder->kids.count;
	if (count == 1)
		return kids[0];
	for (size_t i = 0; i < count; i++)
		list_add(builder, &builder->kids, kids[i]);
	return add(builder, (struct expression){.kind = kind,
						.first = (uint32_t)first,
						.count = (uint32_t)(builder->kids.count - first)});
}

uint32_t expression_sequence(struct builder *builder, const struct list *kids)
{
	return of_kids(builder, EXPRESSION_SEQUENCE, kids->items, kids->count);
}

uint32_t expression_choice(struct builder *builder, const struct list *kids)
{
	return of_kids(builder, EXPRESSION_CHOICE, kids->items, kids->count);
}

uint32_t expression_pair(struct builder *builder, uint32_t first, uint32_t second)
{
	return of_kids(builder, EXPRESSION_SEQUENCE, (uint32_t[]){first, second}, 2);
}

uint32_t expression_either(struct builder *builder, uint32_t first, uint32_t second)
{
	return of_kids(builder, EXPRESSION_CHOICE, (uint32_t[]){first, second}, 2);
}

uint32_t expression_repeat(struct builder *builder, uint32_t what, uint32_t least, uint32_t most)
{
	if (least == 1 && most == 1)
		return what;
	return add(builder,
		   (struct expression){.kind = EXPRESSION_REPEAT, .first = what, .least = least, .most = most});
}

uint32_t expression_rule(struct builder *builder, uint32_t rule)
{
	return add(builder, (struct expression){.kind = EXPRESSION_RULE, .first = rule});
}

// ---- rules ----

uint32_t builder_rule(struct builder *builder, const char *name, size_t length)
{
	void *items = grow(builder, builder->rules, builder->rule_count, &builder->rule_capacity, sizeof(struct rule),
			   EXPRESSIONS_MOST);
	if (!items)
		return 0;
	builder->rules = items;
	const uint32_t at = (uint32_t)builder->bytes.length;
	if (buffer_append(&builder->bytes, name, length) || buffer_append_byte(&builder->bytes, 0))
		too_large(builder);
	builder->rules[builder->rule_count] = (struct rule){.name = at};
	return (uint32_t)builder->rule_count++;
}

void builder_define(struct builder *builder, uint32_t rule, uint32_t body)
{
	if (builder->status || rule >= builder->rule_count)
		return;
	builder->rules[rule].body = body;
	builder->rules[rule].defined = true;
}

const char *builder_name(const struct builder *builder, uint32_t rule)
{
	return rule < builder->rule_count ? buffer_text(&builder->bytes) + builder->rules[rule].name : "";
}

// ---- words ----

static int compare_words(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

// The texts of `words` that begin alike for `skip` bytes. Recurses for each shared beginning, SHARED_MOST deep.
static uint32_t shared(struct builder *builder, const struct words *words, size_t skip, unsigned depth)
{
	struct list choices = {0};
	for (size_t i = 0, end; i < words->count && !builder->status; i = end) {
		const char *first = words->items[i] + skip;
		for (end = i + 1;
		     end < words->count && depth < SHARED_MOST && first[0] && words->items[end][skip] == first[0];
		     end++)
			;
		const char *last = words->items[end - 1] + skip;
		size_t same = 0;
		while (end > i + 1 && first[same] && first[same] == last[same]) // sorted: all between do, too
			same++;
		if (end == i + 1) {
			list_add(builder, &choices, expression_text(builder, first));
			continue;
		}
		const uint32_t start = expression_bytes(builder, first, same);
		const struct words rest = {.items = words->items + i, .count = end - i};
		list_add(builder, &choices,
			 expression_pair(builder, start, shared(builder, &rest, skip + same, depth + 1)));
	}
	const uint32_t out = expression_choice(builder, &choices);
	list_finish(&choices);
	return out;
}

uint32_t expression_words(struct builder *builder, struct words *words)
{
	size_t kept = 0;
	if (words->count)
		qsort(words->items, words->count, sizeof(*words->items), compare_words);
	for (size_t i = 0; i < words->count; i++)
		if (!kept || strcmp(words->items[kept - 1], words->items[i]) != 0)
			words->items[kept++] = words->items[i];
	words->count = kept;
	return shared(builder, words, 0, 0);
}
