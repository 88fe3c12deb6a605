/* See log_lines.h. A ring of LogLine objects, as log.list answers with them, each with when it came and whose it is. */
#include "server/cluster/log_lines.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "server/cluster/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MINUTE_MS = 60 * 1000, ID_BYTES = 65, TEXT_BYTES = 513 };

struct kept_line {
	struct json *json;
	int64_t came_ms;        // steady clock
	char node_id[ID_BYTES]; // "": the server's own
};

// What of a node was not taken since its last line that was.
struct lost_lines {
	char node_id[ID_BYTES];
	int64_t count;
};

struct log_lines {
	struct events *events;
	struct kept_line ring[LIMIT_LOG_LINES];
	size_t first, count;
	struct lost_lines lost[LIMIT_LOG_LINES]; // (lost_count): each of its nodes has lines in the ring
	size_t lost_count;
};

enum status log_lines_create(struct log_lines **out, struct events *events)
{
	struct log_lines *lines = *out = calloc(1, sizeof(*lines));
	if (!lines)
		return STATUS_OUT_OF_MEMORY;
	lines->events = events;
	return STATUS_OK;
}

void log_lines_destroy(struct log_lines **pointer)
{
	struct log_lines *lines = *pointer;
	*pointer = NULL;
	if (!lines)
		return;
	for (size_t i = 0; i < lines->count; i++)
		json_destroy(&lines->ring[(lines->first + i) % LIMIT_LOG_LINES].json);
	free(lines);
}

static const struct kept_line *line_at(const struct log_lines *lines, size_t i)
{
	return &lines->ring[(lines->first + i) % LIMIT_LOG_LINES];
}

// `event` is taken.
static void publish(struct log_lines *lines, const char *node_id, struct json *event)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *kept = json_copy(event);
	events_publish(lines->events, TOPIC_LOG, 0, event);
	if (!kept)
		return;
	json_set_integer(kept, "seq", events_seq(lines->events));
	json_set_string(kept, "at", clock_format(clock_wall_ms(), at));
	if (lines->count == LIMIT_LOG_LINES) {
		json_destroy(&lines->ring[lines->first].json);
		lines->first = (lines->first + 1) % LIMIT_LOG_LINES;
		lines->count--;
	}
	struct kept_line *line = &lines->ring[(lines->first + lines->count++) % LIMIT_LOG_LINES];
	*line = (struct kept_line){.json = kept, .came_ms = clock_steady_ms()};
	snprintf(line->node_id, sizeof line->node_id, "%s", node_id);
}

static struct json *new_event(const char *level, const char *area, const char *text, int64_t dropped)
{
	struct json *event = json_new_object();
	json_set_string(event, "level", level);
	json_set_string(event, "area", area);
	json_set_string(event, "text", text);
	json_set_integer(event, "dropped", dropped);
	return event;
}

void log_lines_add(struct log_lines *lines, const struct log_line *line)
{
	struct json *event = new_event(log_level_name(line->level), line->area, line->text, line->dropped);
	json_set_null(event, "node_id");
	json_set_null(event, "node_name");
	json_set_null(event, "said_at");
	publish(lines, "", event);
}

static struct lost_lines *lost_of(struct log_lines *lines, const char *node_id)
{
	for (size_t i = 0; i < lines->lost_count; i++)
		if (!strcmp(lines->lost[i].node_id, node_id))
			return &lines->lost[i];
	return NULL;
}

// It has said enough for this minute.
static bool says_too_much(const struct log_lines *lines, const char *node_id)
{
	const int64_t now_ms = clock_steady_ms();
	unsigned said = 0;
	for (size_t i = lines->count; i-- && now_ms - line_at(lines, i)->came_ms < MINUTE_MS;)
		said += !strcmp(line_at(lines, i)->node_id, node_id);
	return said >= LIMIT_NODE_LINES_PER_MIN;
}

static void count_lost(struct log_lines *lines, const char *node_id, int64_t count)
{
	struct lost_lines *lost = lost_of(lines, node_id);
	if (!lost && lines->lost_count < LIMIT_LOG_LINES) {
		lost = &lines->lost[lines->lost_count++];
		*lost = (struct lost_lines){.count = 0};
		snprintf(lost->node_id, sizeof lost->node_id, "%s", node_id);
	}
	if (lost && lost->count < INT32_MAX)
		lost->count += count;
}

// How many of it were lost until now, which is forgotten.
static int64_t take_lost(struct log_lines *lines, const char *node_id)
{
	struct lost_lines *lost = lost_of(lines, node_id);
	const int64_t count = lost ? lost->count : 0;
	if (lost)
		*lost = lines->lost[--lines->lost_count];
	return count;
}

enum status log_lines_add_node(struct log_lines *lines, const char *node_id, const char *name,
			       const struct json *params)
{
	char area[32], text[TEXT_BYTES], shown[TEXT_BYTES], at[CLOCK_TEXT_BYTES];
	int64_t said_ms;
	const int64_t dropped = json_get_integer(params, "dropped", 0);
	if (clock_parse(json_get_string(params, "at", ""), &said_ms))
		return STATUS_INVALID_PARAMS;
	if (says_too_much(lines, node_id)) {
		count_lost(lines, node_id, dropped + 1);
		return STATUS_RATE_LIMITED;
	}
	snprintf(area, sizeof area, "%s", json_get_string(params, "area", ""));
	snprintf(text, sizeof text, "%s", json_get_string(params, "text", ""));
	snprintf(shown, sizeof shown, "%s", name);
	log_plain(area);
	log_plain(text);
	log_plain(shown);
	struct json *event = new_event(json_get_string(params, "level", "warning"), area, text,
				       dropped + take_lost(lines, node_id));
	json_set_string(event, "node_id", node_id);
	json_set_string(event, "node_name", shown);
	json_set_string(event, "said_at", clock_format(said_ms, at));
	publish(lines, node_id, event);
	return STATUS_OK;
}

struct json *log_lines_json(const struct log_lines *lines, size_t most)
{
	struct json *list = json_new_array();
	for (size_t i = lines->count > most ? lines->count - most : 0; i < lines->count; i++)
		json_push(list, json_copy(line_at(lines, i)->json));
	return list;
}
