/* See holders.h. */
#include "server/library/holders.h"

#include "common/base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct holder {
	struct holder *next;
	char model_id[65], node_id[65];
	struct json *ranges;
};

struct holders {
	struct holder *first; // the latest
	size_t count;
};

struct holders *holders_create(void)
{
	return calloc(1, sizeof(struct holders));
}

static void take_out(struct holders *holders, struct holder **at)
{
	struct holder *holder = *at;
	*at = holder->next;
	holders->count--;
	json_destroy(&holder->ranges);
	free(holder);
}

void holders_destroy(struct holders **pointer)
{
	struct holders *holders = *pointer;
	*pointer = NULL;
	if (!holders)
		return;
	while (holders->first)
		take_out(holders, &holders->first);
	free(holders);
}

void holders_remove(struct holders *holders, const char *model_id, const char *node_id)
{
	for (struct holder **at = &holders->first; *at; at = &(*at)->next)
		if (!strcmp((*at)->model_id, model_id) && !strcmp((*at)->node_id, node_id)) {
			take_out(holders, at);
			return;
		}
}

void holders_add(struct holders *holders, const char *model_id, const char *node_id, struct json *ranges)
{
	struct holder *holder = json_count(ranges) <= LIMIT_MODEL_PEER_RANGES ? calloc(1, sizeof(*holder)) : NULL;
	holders_remove(holders, model_id, node_id);
	if (!holder) {
		json_destroy(&ranges);
		return;
	}
	snprintf(holder->model_id, sizeof holder->model_id, "%s", model_id);
	snprintf(holder->node_id, sizeof holder->node_id, "%s", node_id);
	holder->ranges = ranges;
	holder->next = holders->first;
	holders->first = holder;
	if (++holders->count <= LIMIT_MODEL_HOLDERS)
		return;
	struct holder **last = &holders->first;
	while ((*last)->next)
		last = &(*last)->next;
	take_out(holders, last);
}

static int64_t begin_of(const struct json *range)
{
	int64_t value = 0;
	json_integer(json_first(range), &value);
	return value;
}

static int64_t end_of(const struct json *range)
{
	int64_t value = 0;
	json_integer(json_next(json_first(range)), &value);
	return begin_of(range) + value;
}

// Both in the order of the file.
static bool overlap(const struct json *some, const struct json *others)
{
	const struct json *one = json_first(some), *other = json_first(others);
	while (one && other) {
		if (end_of(one) <= begin_of(other))
			one = json_next(one);
		else if (end_of(other) <= begin_of(one))
			other = json_next(other);
		else
			return true;
	}
	return false;
}

struct json *holders_json(const struct holders *holders, const char *model_id, const char *node_id,
			  const struct json *ranges)
{
	struct json *peers = NULL;
	size_t left = LIMIT_MODEL_PEER_RANGES;
	for (const struct holder *one = holders->first; one && json_count(peers) < LIMIT_MODEL_PEERS; one = one->next) {
		if (strcmp(one->model_id, model_id) != 0 || !strcmp(one->node_id, node_id) ||
		    json_count(one->ranges) > left || !overlap(one->ranges, ranges))
			continue;
		struct json *peer = json_new_object();
		if (!peers)
			peers = json_new_array();
		json_set_string(peer, "node_id", one->node_id);
		json_set(peer, "ranges", json_copy(one->ranges));
		json_push(peers, peer);
		left -= json_count(one->ranges);
	}
	return peers;
}
