/* The newest log lines, of the server and of warnings from its nodes, as events of the
 * topic `log` and as a list. A node's lines are bounded: LIMIT_NODE_LINES_PER_MIN a
 * minute are taken, the next line counts the dropped ones, and control characters
 * become '?'. LIMIT_LOG_LINES are kept; the oldest are dropped first. Thread: the
 * loop's. */
#pragma once
#include "common/base/log.h"
#include "common/json/json.h"

struct log_lines;
struct events;
struct net_loop;

enum status log_lines_create(struct log_lines **out, struct events *events); // events outlive it
void log_lines_destroy(struct log_lines **lines);
// From here on every line of the log from LOG_INFO on is added, from whatever thread: it is posted to the loop, and
// what could not be posted is counted in the next line. To be ended, and the loop's posts run, before `lines` goes.
void log_lines_listen(struct log_lines *lines, struct net_loop *loop);
void log_lines_unlisten(void);

// A line of the server itself, as log.h has it; dropped: lines before it that could not be taken.
struct log_line {
	enum log_level level;
	const char *area, *text; // copied
	int64_t dropped;
};
void log_lines_add(struct log_lines *lines, const struct log_line *line);
// node.log, checked against the contract; name: the node's. Errors: STATUS_RATE_LIMITED (it is counted, not
// kept), STATUS_INVALID_PARAMS (it says no time).
enum status log_lines_add_node(struct log_lines *lines, const char *node_id, const char *name,
			       const struct json *params);
void log_lines_next_minute(struct log_lines *lines); // for tests: as if the minute were over
// The newest `most`, oldest first: an array of LogLine (schema/api.json).
struct json *log_lines_json(const struct log_lines *lines, size_t most);
