/* The inside of channels.h: channels.c owns them and answers the API, channels_outbox.c sends. Thread: the loop's. */
#pragma once
#include "server/alerts/channels.h"
#include "server/alerts/courier.h"

struct delivery {
	struct delivery *next;
	char delivery_id[32], alert_id[STORE_ID_BYTES];
	unsigned severity;
	int64_t created_ms;
	bool stored; // its batch was committed
	char *body;
};

struct channel {
	struct channel *next;
	struct channels *channels;
	char channel_id[32], added_by[STORE_NAME_BYTES];
	enum channel_kind kind;
	char url[CHANNEL_URL_BYTES], secret[CHANNEL_SECRET_BYTES];
	unsigned severities; // bits
	struct channel_quiet quiet;
	int64_t added_ms;
	struct json *last; // what became of the last attempt; NULL: there was none
	struct delivery *first, **end;
	size_t count;
	bool sending, testing;
	bool full;          // the log says that deliveries are left out
	unsigned failures;  // in a row
	int64_t not_before; // steady: the next attempt
	uint64_t delivered, failed, dropped;
};

struct channels {
	struct channels_params params;
	struct courier *courier;
	struct channel *first, **end;
	size_t count, adding; // adding: on their way to the disk
	struct net_timer timer;
};

struct channel *channels_find(const struct channels *channels, const char *channel_id); // NULL: there is none
void channel_destroy(struct channel *channel);
// channels_outbox.c
// A delivery that is to be sent; the body is taken. NULL without memory.
struct delivery *outbox_add(struct channel *channel, const struct store_delivery *row, char *body);
void outbox_remove(struct channel *channel, struct delivery *delivery);
// Send what is due, and look again when the next is.
void outbox_pump(struct channels *channels);
// Send a body once, now. Errors: courier_send's.
struct outbox_attempt {
	struct channels *channels;
	char channel_id[32], delivery_id[32];
	bool test; // it is no delivery of the outbox
	channels_done *done;
	void *context;
};
enum status outbox_send(struct channel *channel, const struct outbox_attempt *attempt, const char *body);
