/* events.*: subscribing; and log.list, the newest of what the topic log told. The answer goes out first, then what is
 * replayed, so that a client never sees an event before it knows where the stream stands. Thread: the loop's. */
#include "server/api/call.h"
#include "server/cluster/log_lines.h"

#include <stdio.h>

enum { LINES_UNLESS_SAID = 100 };

static enum status wanted_topics(struct api_call *call, const struct json *params, uint32_t *topics,
				 struct error *error)
{
	*topics = 0;
	for (const struct json *one = json_first(json_get(params, "topics")); one; one = json_next(one)) {
		const char *name = json_string(one, "");
		const char *scope = contract_topic_scope(call->api->params.contract, name);
		if (!(api_scopes(call->client) & (token_scope_parse(scope ? scope : "admin") | SCOPE_ADMIN))) {
			error_set(error, STATUS_FORBIDDEN, "the topic %s needs the scope %s", name,
				  scope ? scope : "admin");
			error_hint(error, "leave it out, or log in with a token that has the scope");
			return STATUS_FORBIDDEN;
		}
		*topics |= event_topic_parse(name);
	}
	return STATUS_OK;
}

static enum status events_subscribe_call(struct api_call *call, const struct json *params, struct json **result,
					 struct error *error)
{
	struct api_client *client = call->client;
	struct events *events = call->api->params.events;
	struct cluster *cluster = call->api->params.cluster;
	const struct topology *topology = call->api->params.topology; // the call is gone before these are asked
	const struct discovery *discovery = call->api->params.discovery;
	const struct json *since = json_get(params, "since");
	uint32_t topics;
	int64_t seq = json_get_integer(since, "seq", -1);
	enum status status = wanted_topics(call, params, &topics, error);
	client->subscriber.sees_all = (api_scopes(client) & SCOPE_ADMIN) != 0;
	snprintf(client->subscriber.reader, sizeof client->subscriber.reader, "%s",
		 client->session->token ? client->session->token->token_id : "");
	if (!status)
		status = events_subscribe(events, &client->subscriber, client->conn, topics);
	if (status)
		return error_set(error, status, "not subscribed");
	bool resumed = since && events_can_resume(events, json_get_string(since, "epoch", ""), seq);
	struct json *snapshot = resumed || !topics ? json_new_null() : api_snapshot(client);
	struct json *answer = json_new_object();
	json_set_string(answer, "epoch", events_epoch(events));
	json_set_integer(answer, "seq", events_seq(events));
	json_set_bool(answer, "resumed", resumed);
	json_set(answer, "snapshot", snapshot);
	*result = answer;
	if (!resumed)
		return STATUS_OK;
	client->calls++; // it must outlive its own answer
	api_finish(call, STATUS_OK, answer, NULL);
	if (client->conn) {
		events_replay(events, &client->subscriber, seq);
		if (topics & TOPIC_TELEMETRY)
			events_send_one(events, &client->subscriber, TOPIC_TELEMETRY, cluster_telemetry(cluster));
		if (topics & TOPIC_TOPOLOGY) {
			struct json *found = discovery_json(discovery);
			topology_send_all(topology, json_get(found, "heard"), &client->subscriber);
			json_destroy(&found);
		}
	}
	client->calls--;
	return STATUS_PENDING;
}

static enum status log_list(struct api_call *call, const struct json *params, struct json **result, struct error *error)
{
	(void)error;
	const size_t limit = (size_t)json_get_integer(params, "limit", LINES_UNLESS_SAID);
	*result = json_new_object();
	json_set(*result, "lines", log_lines_json(call->api->params.log_lines, limit));
	return STATUS_OK;
}

const struct api_handler events_handlers[] = {
	{"events.subscribe", .run = events_subscribe_call},
	{"log.list", .run = log_list},
	{0},
};
