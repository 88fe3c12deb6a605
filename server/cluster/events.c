/* See events.h. The ring is an array of shared frames, oldest first, bounded in number and bytes. Subscribers are in
 * one dense array, so that a broadcast reads memory in order. */
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
	int64_t seq, at_ms;
	uint32_t topic;
	struct net_frame *frame;
	// In place of the frame, of what not everybody sees alike: its data as text, and how it looks.
	char *text;
	size_t bytes; // of either
	const struct event_view *view;
};

// The fields that a broadcast needs of a subscriber, side by side.
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
	uint32_t listened; // the listener's topics
	void (*heard)(void *context);
	void *listener;
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

static void drop_oldest(struct events *events)
{
	struct kept *oldest = &events->ring[events->ring_first];
	events->lost_seq = oldest->seq;
	events->ring_bytes -= oldest->bytes;
	net_frame_unref(&oldest->frame);
	free(oldest->text);
	events->ring_first = (events->ring_first + 1) % LIMIT_REPLAY_EVENTS;
	events->ring_count--;
}

void events_destroy(struct events **pointer)
{
	struct events *events = *pointer;
	if (!events)
		return;
	*pointer = NULL;
	while (events->ring_count)
		drop_oldest(events);
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

struct event_head {
	enum event_topic topic;
	int64_t seq, at_ms;
};

// Serialise an event; NULL if memory is short. `data` is taken.
static struct net_frame *make_frame(struct events *events, const struct event_head *head, struct json *data)
{
	char at[CLOCK_TEXT_BYTES];
	const enum event_topic topic = head->topic;
	check_in_debug(events, topic, data);
	buffer_clear(&events->text);
	buffer_printf(
		&events->text,
		"{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"topic\":\"%s\",\"epoch\":\"%s\",\"seq\":%lld,"
		"\"at\":\"%s\",\"data\":",
		event_topic_name(topic), events->epoch, (long long)head->seq, clock_format(head->at_ms, at));
	enum status status = json_print(data, &events->text);
	json_destroy(&data);
	buffer_append_text(&events->text, "}}");
	if (status || events->text.failed) {
		log_error("events", "an event could not be serialised and is lost: %s", event_topic_name(topic));
		return NULL;
	}
	return net_frame_create(events->text.data, events->text.length, true);
}

// The newest event; what it holds is taken.
static void keep(struct events *events, struct kept *event)
{
	while (events->ring_count &&
	       (events->ring_count == LIMIT_REPLAY_EVENTS || events->ring_bytes + event->bytes > LIMIT_REPLAY_BYTES))
		drop_oldest(events);
	if (event->bytes > LIMIT_REPLAY_BYTES) {
		events->lost_seq = events->seq;
		net_frame_unref(&event->frame);
		free(event->text);
		return;
	}
	events->ring[(events->ring_first + events->ring_count++) % LIMIT_REPLAY_EVENTS] = *event;
	events->ring_bytes += event->bytes;
}

void events_listen(struct events *events, uint32_t topics, void (*heard)(void *context), void *context)
{
	events->listened = heard ? topics : 0;
	events->heard = heard;
	events->listener = context;
}

static void tell_listener(struct events *events, enum event_topic topic)
{
	if (events->listened & topic)
		events->heard(events->listener);
}

static struct event_head next_head(struct events *events, enum event_topic topic)
{
	return (struct event_head){.topic = topic, .seq = ++events->seq, .at_ms = clock_wall_ms()};
}

void events_publish(struct events *events, enum event_topic topic, uint64_t key, struct json *data)
{
	const struct event_head head = next_head(events, topic);
	struct net_frame *frame = make_frame(events, &head, data);
	if (!frame) {
		events->lost_seq = events->seq; // who asks for it later gets a snapshot
		return;
	}
	const bool reading = topic == TOPIC_TELEMETRY || topic == TOPIC_LOG || (topic == TOPIC_TOPOLOGY && key);
	if (!reading)
		keep(events, &(struct kept){.seq = head.seq,
					    .topic = topic,
					    .frame = net_frame_ref(frame),
					    .bytes = net_frame_bytes(frame)});
	events->stats.published++;
	for (size_t i = 0; i < events->subscriber_count; i++) {
		const struct listed *listed = &events->subscribers[i];
		if (i + PREFETCH < events->subscriber_count)
			__builtin_prefetch(listed[PREFETCH].conn);
		if ((listed->topics & topic) && !net_conn_send(listed->conn, frame, key))
			events->stats.delivered++;
	}
	net_frame_unref(&frame);
	tell_listener(events, topic);
}

// The event as this subscriber may see it. NULL: out of memory.
static struct net_frame *seen_by(struct events *events, const struct event_head *head, const struct event_view *view,
				 const struct json *data, const char *reader)
{
	struct json *form = view->see(view->context, data, reader);
	return form ? make_frame(events, head, form) : NULL;
}

static void keep_seen(struct events *events, const struct event_head *head, const struct event_view *view,
		      const struct json *data)
{
	buffer_clear(&events->text);
	char *text = json_print(data, &events->text) || events->text.failed ? NULL : strdup(buffer_text(&events->text));
	if (text)
		keep(events, &(struct kept){.seq = head->seq,
					    .at_ms = head->at_ms,
					    .topic = head->topic,
					    .text = text,
					    .bytes = events->text.length + 1,
					    .view = view});
	else
		events->lost_seq = head->seq;
}

void events_publish_seen(struct events *events, enum event_topic topic, uint64_t key, struct json *data,
			 const struct event_view *view)
{
	const struct event_head head = next_head(events, topic);
	struct net_frame *whole = NULL, *strangers = NULL; // made when somebody wants them
	keep_seen(events, &head, view, data);
	events->stats.published++;
	for (size_t i = 0; i < events->subscriber_count; i++) {
		const struct listed *listed = &events->subscribers[i];
		const struct event_subscriber *to = listed->subscriber;
		if (!(listed->topics & topic))
			continue;
		struct net_frame *own = NULL, **frame = to->sees_all ? &whole : &strangers;
		if (!to->sees_all && view->concerns && view->concerns(data, to->reader))
			frame = &own;
		if (!*frame)
			*frame = seen_by(events, &head, view, data,
					 to->sees_all    ? NULL
					 : frame == &own ? to->reader
							 : "");
		if (*frame && !net_conn_send(listed->conn, *frame, key))
			events->stats.delivered++;
		net_frame_unref(&own);
	}
	net_frame_unref(&whole);
	net_frame_unref(&strangers);
	json_destroy(&data);
	tell_listener(events, topic);
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

static struct net_frame *seen_again(struct events *events, const struct kept *kept,
				    const struct event_subscriber *subscriber)
{
	struct json *data = NULL;
	const struct event_head head = {.topic = kept->topic, .seq = kept->seq, .at_ms = kept->at_ms};
	if (json_parse(&data, kept->text, kept->bytes - 1, NULL))
		return NULL;
	struct net_frame *frame = seen_by(events, &head, kept->view, data,
					  subscriber->sees_all ? NULL : subscriber->reader);
	json_destroy(&data);
	return frame;
}

void events_replay(struct events *events, struct event_subscriber *subscriber, int64_t seq)
{
	for (size_t i = 0; i < events->ring_count; i++) {
		struct kept *kept = &events->ring[(events->ring_first + i) % LIMIT_REPLAY_EVENTS];
		if (kept->seq <= seq || !(kept->topic & subscriber->topics))
			continue;
		struct net_frame *frame = kept->view ? seen_again(events, kept, subscriber)
						     : net_frame_ref(kept->frame);
		bool slow = !frame || net_conn_send(subscriber->conn, frame, 0);
		net_frame_unref(&frame);
		if (slow)
			return; // too slow even for this: it was closed, and told so
		events->stats.replayed++;
	}
}

void events_send_one(struct events *events, struct event_subscriber *subscriber, enum event_topic topic,
		     struct json *data)
{
	const struct event_head head = {.topic = topic, .seq = events->seq, .at_ms = clock_wall_ms()};
	struct net_frame *frame = make_frame(events, &head, data);
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
