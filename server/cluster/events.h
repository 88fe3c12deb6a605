/* The event stream: what happened, for all subscribers, in one order. There is one epoch
 * for each start of the server and one seq for all topics. An event is serialised once,
 * however many receive it. Events that must not be missed stay in a bounded ring and are
 * replayed to a client that returns with `since`. Telemetry, readings of links
 * (topology, with a key) and log are not kept: only the newest counts. Thread: the
 * loop's. */
#pragma once
#include "common/net/ws/ws.h"
#include "common/wire/contract.h"

enum event_topic { // bits
	TOPIC_INVENTORY = 1,
	TOPIC_TELEMETRY = 2,
	TOPIC_TOPOLOGY = 4,
	TOPIC_PLACEMENT = 8,
	TOPIC_ALERTS = 16,
	TOPIC_AUDIT = 32,
	TOPIC_LOG = 64,
};
// The bit of a topic's name, 0 if there is none; and the name of a bit.
uint32_t event_topic_parse(const char *name);
const char *event_topic_name(enum event_topic topic);

enum { EVENT_READER_BYTES = 64 };

// Embedded in a connection's state; zero before events_subscribe, but for the reader.
struct event_subscriber {
	struct net_conn *conn;
	bool sees_all;                   // it is an admin's
	char reader[EVENT_READER_BYTES]; // else whose: the id of the token
	uint32_t topics;
	size_t index; // its place in the list of subscribers, plus one; 0: not subscribed
};

struct events;

// `watched` (may be NULL) is called when the first subscriber of telemetry comes and when the last one goes.
enum status events_create(struct events **out, const struct contract *contract,
			  void (*watched)(void *context, bool watched), void *context);
void events_destroy(struct events **events);
const char *events_epoch(const struct events *events);
int64_t events_seq(const struct events *events); // of the newest event
bool events_watched(const struct events *events);

// Number `data` (taken) and send it to the subscribers of `topic`. With key != 0 it replaces an event of the same key
// that still waits in a subscriber's queue. In debug builds data is checked against the contract first.
void events_publish(struct events *events, enum event_topic topic, uint64_t key, struct json *data);

// The same for what not everybody sees alike. `data` is for `view` alone; what it makes of it fits the contract.
struct event_view {
	// How it looks to the holder of a token; NULL: to an admin; "": to whoever it does not concern.
	struct json *(*see)(void *context, const struct json *data, const char *token_id);
	bool (*concerns)(const struct json *data, const char *token_id); // NULL: it concerns no token
	void *context;                                                   // outlives the events
};
void events_publish_seen(struct events *events, enum event_topic topic, uint64_t key, struct json *data,
			 const struct event_view *view);

// Call `heard` after each event of these topics has been sent, whoever subscribed. One listener; NULL: none any more.
void events_listen(struct events *events, uint32_t topics, void (*heard)(void *context), void *context);

// Send from now on; replaces an earlier subscription of this subscriber. topics 0 ends it.
enum status events_subscribe(struct events *events, struct event_subscriber *subscriber, struct net_conn *conn,
			     uint32_t topics);
void events_unsubscribe(struct events *events, struct event_subscriber *subscriber);
// Whether everything after `seq` of `epoch` is still there; and send what of it the subscriber's topics have.
bool events_can_resume(const struct events *events, const char *epoch, int64_t seq);
void events_replay(struct events *events, struct event_subscriber *subscriber, int64_t seq);
// Send one subscriber an event of its own, under the newest seq. `data` is taken.
void events_send_one(struct events *events, struct event_subscriber *subscriber, enum event_topic topic,
		     struct json *data);

// Figures for /metrics.
struct events_stats {
	uint64_t published, delivered, replayed;
	size_t subscribers, ring_events, ring_bytes;
};
void events_read_stats(const struct events *events, struct events_stats *stats);
