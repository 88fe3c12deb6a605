/* See log_lines.h. A ring of LogLine objects, the form of log.list, and for each node the time of its latest line. */
#include "server/cluster/log_lines.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/loop.h"
#include "server/cluster/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MINUTE_MS = 60 * 1000, ID_BYTES = 65, TEXT_BYTES = 513, LOST_MOST = INT32_MAX };

// The times of one node's latest lines.
struct said_lines {
	char node_id[ID_BYTES];
	int64_t came_ms[LIMIT_NODE_LINES_PER_MIN]; // steady clock, of the latest that were taken; 0: none
	size_t next;                               // of these, the oldest
	int64_t lost;                              // not taken since; at most LOST_MOST
};

struct log_lines {
	struct events *events;
	struct net_loop *loop; // that lines of the log are posted to
	unsigned unposted;     // of these, since the last one; by the log's thread, which is one at a time
	struct json *ring[LIMIT_LOG_LINES];
	size_t first, count;
	struct said_lines said[LIMIT_NODES]; // (said_count)
	size_t said_count;
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
		json_destroy(&lines->ring[(lines->first + i) % LIMIT_LOG_LINES]);
	free(lines);
}

// `event` is taken.
static void publish(struct log_lines *lines, struct json *event)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *kept = json_copy(event);
	events_publish(lines->events, TOPIC_LOG, 0, event);
	if (!kept)
		return;
	json_set_integer(kept, "seq", events_seq(lines->events));
	json_set_string(kept, "at", clock_format(clock_wall_ms(), at));
	if (lines->count == LIMIT_LOG_LINES) {
		json_destroy(&lines->ring[lines->first]);
		lines->first = (lines->first + 1) % LIMIT_LOG_LINES;
		lines->count--;
	}
	lines->ring[(lines->first + lines->count++) % LIMIT_LOG_LINES] = kept;
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
	publish(lines, event);
}

struct posted_line {
	struct log_lines *lines;
	unsigned dropped; // lines before this one
	enum log_level level;
	char area[24], text[LIMIT_LOG_LINE_BYTES];
};

static void add_posted(void *arg)
{
	struct posted_line *line = arg;
	log_lines_add(line->lines,
		      &(struct log_line){
			      .level = line->level, .area = line->area, .text = line->text, .dropped = line->dropped});
	free(line);
}

static void post(void *context, enum log_level level, const char *area, const char *text)
{
	struct log_lines *lines = context;
	if (level == LOG_DEBUG)
		return;
	struct posted_line *line = malloc(sizeof(*line));
	if (line) {
		*line = (struct posted_line){.lines = lines, .dropped = lines->unposted, .level = level};
		snprintf(line->area, sizeof line->area, "%s", area);
		snprintf(line->text, sizeof line->text, "%s", text);
	}
	if (line && !net_loop_post(lines->loop, add_posted, line)) {
		lines->unposted = 0;
		return;
	}
	lines->unposted++;
	free(line);
}

void log_lines_listen(struct log_lines *lines, struct net_loop *loop)
{
	lines->loop = loop;
	log_listen(post, lines);
}

void log_lines_unlisten(void)
{
	log_listen(NULL, NULL);
}

static int64_t latest_ms(const struct said_lines *said)
{
	return said->came_ms[(said->next + LIMIT_NODE_LINES_PER_MIN - 1) % LIMIT_NODE_LINES_PER_MIN];
}

// If there are too many, the node that was silent the longest is forgotten.
static struct said_lines *said_of(struct log_lines *lines, const char *node_id)
{
	struct said_lines *silent = lines->said;
	for (size_t i = 0; i < lines->said_count; i++) {
		if (!strcmp(lines->said[i].node_id, node_id))
			return &lines->said[i];
		if (latest_ms(&lines->said[i]) < latest_ms(silent))
			silent = &lines->said[i];
	}
	struct said_lines *said = lines->said_count < LIMIT_NODES ? &lines->said[lines->said_count++] : silent;
	*said = (struct said_lines){.lost = 0};
	snprintf(said->node_id, sizeof said->node_id, "%s", node_id);
	return said;
}

// It has said enough for this minute; if not, this line counts.
static bool says_too_much(struct said_lines *said)
{
	const int64_t now_ms = clock_steady_ms(), oldest_ms = said->came_ms[said->next];
	if (oldest_ms && now_ms - oldest_ms < MINUTE_MS)
		return true;
	said->came_ms[said->next] = now_ms;
	said->next = (said->next + 1) % LIMIT_NODE_LINES_PER_MIN;
	return false;
}

static void add_lost(struct said_lines *said, int64_t count)
{
	said->lost = count < LOST_MOST - said->lost ? said->lost + count : LOST_MOST;
}

enum status log_lines_add_node(struct log_lines *lines, const char *node_id, const char *name,
			       const struct json *params)
{
	char area[32], text[TEXT_BYTES], shown[TEXT_BYTES], at[CLOCK_TEXT_BYTES];
	int64_t said_ms;
	const int64_t dropped = json_get_integer(params, "dropped", 0);
	if (clock_parse(json_get_string(params, "at", ""), &said_ms))
		return STATUS_INVALID_PARAMS;
	struct said_lines *said = said_of(lines, node_id);
	add_lost(said, dropped);
	if (says_too_much(said)) {
		add_lost(said, 1);
		return STATUS_RATE_LIMITED;
	}
	snprintf(area, sizeof area, "%s", json_get_string(params, "area", ""));
	snprintf(text, sizeof text, "%s", json_get_string(params, "text", ""));
	snprintf(shown, sizeof shown, "%s", name);
	log_plain(area);
	log_plain(text);
	log_plain(shown);
	struct json *event = new_event(json_get_string(params, "level", "warning"), area, text, said->lost);
	said->lost = 0;
	json_set_string(event, "node_id", node_id);
	json_set_string(event, "node_name", shown);
	json_set_string(event, "said_at", clock_format(said_ms, at));
	publish(lines, event);
	return STATUS_OK;
}

void log_lines_next_minute(struct log_lines *lines)
{
	for (size_t i = 0; i < lines->said_count; i++)
		memset(lines->said[i].came_ms, 0, sizeof lines->said[i].came_ms);
}

struct json *log_lines_json(const struct log_lines *lines, size_t most)
{
	struct json *list = json_new_array();
	for (size_t i = lines->count > most ? lines->count - most : 0; i < lines->count; i++)
		json_push(list, json_copy(lines->ring[(lines->first + i) % LIMIT_LOG_LINES]));
	return list;
}
