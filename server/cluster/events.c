/* See events.h. The ring is an array of shared frames, oldest first, bounded in number and bytes. Subscribers stand in
 * one dense array, so that a broadcast walks memory in order. */
#include "server/cluster/events.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const topic_names[] = {"inventory", "telemetry", "topology", "placement", "alerts", "audit", "log"};
enum {
	TOPICS = sizeof topic_names / sizeof *topic_names,
	PREFETCH = 4, // subscribers ahead: their connections lie all over memory
};

struct kept {
	int64_t seq;
	uint32_t topic;
	struct net_frame *frame;
};

// What a broadcast needs of a subscriber, side by side.
struct listed {
	uint32_t topics;
	struct net_conn *conn;
	struct event_subscriber *subscriber;
};

struct events {
	char epoch[24];
	int64_t seq, lost_seq; // lost_seq: the newest seq that should be replayed but has left the ring
	const struct contract *contract;
	void (*watched)(void *context, bool watched);
	void *context;
	struct listed *subscribers; // (subscriber_count)
	size_t subscriber_count, subscriber_capacity, telemetry_count;
	struct kept ring[LIMIT_REPLAY_EVENTS];
	size_t ring_first, ring_count, ring_bytes;
	struct buffer text; // the event being serialised
	struct events_stats stats;
};

uint32_t event_topic_parse(const char *name)
{
	for (unsigned i = 0; i < TOPICS; i++)
		if (!strcmp(name, topic_names[i]))
			return 1u << i;
	return 0;
}

const char *event_topic_name(enum event_topic topic)
{
	for (unsigned i = 0; i < TOPICS; i++)
		if ((unsigned)topic == 1u << i)
			return topic_names[i];
	return "";
}

enum status events_create(struct events **out, const struct contract *contract,
			  void (*watched)(void *context, bool watched), void *context)
{
	struct events *events = calloc(1, sizeof(*events));
	*out = events;
	if (!events)
		return STATUS_OUT_OF_MEMORY;
	snprintf(events->epoch, sizeof events->epoch, "%llx", (unsigned long long)clock_wall_ms());
	events->contract = contract;
	events->watched = watched;
	events->context = context;
	buffer_init(&events->text, LIMIT_BODY_BYTES);
	return STATUS_OK;
}

void events_destroy(struct events **pointer)
{
	struct events *events = *pointer;
	if (!events)
		return;
	*pointer = NULL;
	for (size_t i = 0; i < events->ring_count; i++)
		net_frame_unref(&events->ring[(events->ring_first + i) % LIMIT_REPLAY_EVENTS].frame);
	for (size_t i = 0; i < events->subscriber_count; i++)
		events->subscribers[i].subscriber->index = 0;
	free(events->subscribers);
	buffer_finish(&events->text);
	free(events);
}

const char *events_epoch(const struct events *events)
{
	return events->epoch;
}

int64_t events_seq(const struct events *events)
{
	return events->seq;
}

bool events_watched(const struct events *events)
{
	return events->telemetry_count > 0;
}

static void check_in_debug(const struct events *events, enum event_topic topic, const struct json *data)
{
#ifndef NDEBUG
	struct error error = {0};
	if (contract_check_event(events->contract, event_topic_name(topic), data, &error)) {
		log_error("events", "an event of topic %s breaks the contract: %s", event_topic_name(topic),
			  error.message);
		abort();
	}
#else
	(void)events, (void)topic, (void)data;
#endif
}

// Serialise an event; NULL if memory is short. `data` is taken.
static struct net_frame *make_frame(struct events *events, enum event_topic topic, struct json *data)
{
	char at[CLOCK_TEXT_BYTES];
	check_in_debug(events, topic, data);
	buffer_clear(&events->text);
	buffer_printf(
		&events->text,
		"{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"topic\":\"%s\",\"epoch\":\"%s\",\"seq\":%lld,"
		"\"at\":\"%s\",\"data\":",
		event_topic_name(topic), events->epoch, (long long)events->seq, clock_format(clock_wall_ms(), at));
	enum status status = json_print(data, &events->text);
	json_destroy(&data);
	buffer_append_text(&events->text, "}}");
	if (status || events->text.failed) {
		log_error("events", "an event could not be serialised and is lost: %s", event_topic_name(topic));
		return NULL;
	}
	return net_frame_create(events->text.data, events->text.length, true);
}

static void drop_oldest(struct events *events)
{
	struct kept *oldest = &events->ring[events->ring_first];
	events->lost_seq = oldest->seq;
	events->ring_bytes -= net_frame_bytes(oldest->frame);
	net_frame_unref(&oldest->frame);
	events->ring_first = (events->ring_first + 1) % LIMIT_REPLAY_EVENTS;
	events->ring_count--;
}

static void keep(struct events *events, enum event_topic topic, struct net_frame *frame)
{
	size_t bytes = net_frame_bytes(frame);
	while (events->ring_count &&
	       (events->ring_count == LIMIT_REPLAY_EVENTS || events->ring_bytes + bytes > LIMIT_REPLAY_BYTES))
		drop_oldest(events);
	if (bytes > LIMIT_REPLAY_BYTES) {
		events->lost_seq = events->seq;
		return;
	}
	size_t place = (events->ring_first + events->ring_count++) % LIMIT_REPLAY_EVENTS;
	events->ring[place] = (struct kept){.seq = events->seq, .topic = topic, .frame = net_frame_ref(frame)};
	events->ring_bytes += bytes;
}

void events_publish(struct events *events, enum event_topic topic, uint64_t key, struct json *data)
{
	events->seq++;
	struct net_frame *frame = make_frame(events, topic, data);
	if (!frame) {
		events->lost_seq = events->seq; // who asks for it later gets a snapshot
		return;
	}
	const bool reading = topic == TOPIC_TELEMETRY || topic == TOPIC_LOG || (topic == TOPIC_TOPOLOGY && key);
	if (!reading)
		keep(events, topic, frame);
	events->stats.published++;
	for (size_t i = 0; i < events->subscriber_count; i++) {
		const struct listed *listed = &events->subscribers[i];
		if (i + PREFETCH < events->subscriber_count)
			__builtin_prefetch(listed[PREFETCH].conn);
		if ((listed->topics & topic) && !net_conn_send(listed->conn, frame, key))
			events->stats.delivered++;
	}
	net_frame_unref(&frame);
}

static void count_telemetry(struct events *events, uint32_t before, uint32_t after)
{
	size_t was = events->telemetry_count;
	events->telemetry_count += ((after & TOPIC_TELEMETRY) != 0);
	events->telemetry_count -= ((before & TOPIC_TELEMETRY) != 0);
	if (events->watched && (was == 0) != (events->telemetry_count == 0))
		events->watched(events->context, events->telemetry_count > 0);
}

enum status events_subscribe(struct events *events, struct event_subscriber *subscriber, struct net_conn *conn,
			     uint32_t topics)
{
	if (!topics) {
		events_unsubscribe(events, subscriber);
		return STATUS_OK;
	}
	if (!subscriber->index) {
		if (events->subscriber_count == events->subscriber_capacity) {
			size_t capacity = events->subscriber_capacity ? events->subscriber_capacity * 2 : 16;
			void *grown = realloc(events->subscribers, capacity * sizeof(*events->subscribers));
			if (!grown)
				return STATUS_OUT_OF_MEMORY;
			events->subscribers = grown;
			events->subscriber_capacity = capacity;
		}
		subscriber->index = ++events->subscriber_count;
		subscriber->topics = 0;
	}
	subscriber->conn = conn;
	uint32_t before = subscriber->topics;
	subscriber->topics = topics;
	events->subscribers[subscriber->index - 1] = (struct listed){
		.topics = topics, .conn = conn, .subscriber = subscriber};
	count_telemetry(events, before, topics);
	return STATUS_OK;
}

void events_unsubscribe(struct events *events, struct event_subscriber *subscriber)
{
	if (!subscriber->index)
		return;
	struct listed last = events->subscribers[--events->subscriber_count];
	events->subscribers[subscriber->index - 1] = last;
	last.subscriber->index = subscriber->index;
	subscriber->index = 0;
	count_telemetry(events, subscriber->topics, 0);
	subscriber->topics = 0;
}

bool events_can_resume(const struct events *events, const char *epoch, int64_t seq)
{
	return !strcmp(epoch, events->epoch) && seq >= events->lost_seq && seq <= events->seq;
}

void events_replay(struct events *events, struct event_subscriber *subscriber, int64_t seq)
{
	for (size_t i = 0; i < events->ring_count; i++) {
		struct kept *kept = &events->ring[(events->ring_first + i) % LIMIT_REPLAY_EVENTS];
		if (kept->seq <= seq || !(kept->topic & subscriber->topics))
			continue;
		if (net_conn_send(subscriber->conn, kept->frame, 0))
			return; // too slow even for this: it was closed, and told so
		events->stats.replayed++;
	}
}

void events_send_one(struct events *events, struct event_subscriber *subscriber, enum event_topic topic,
		     struct json *data)
{
	struct net_frame *frame = make_frame(events, topic, data);
	if (!frame)
		return;
	net_conn_send(subscriber->conn, frame, 0);
	net_frame_unref(&frame);
}

void events_read_stats(const struct events *events, struct events_stats *stats)
{
	*stats = events->stats;
	stats->subscribers = events->subscriber_count;
	stats->ring_events = events->ring_count;
	stats->ring_bytes = events->ring_bytes;
}
