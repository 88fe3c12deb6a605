/* Where alerts are sent to, and the outbox of what is to be sent.
 *
 *   alerts.c --put, in the alert's transaction--> outbox (state.db, and here) --one at a time--> courier --> receiver
 *
 * A delivery stays in the outbox until its receiver has answered 2xx, refuses it for good, or it is CHANNEL_KEEP_MS
 * old. So each is delivered at least once, also over a crash, and its id tells a receiver the second from the first. A
 * channel's deliveries go in the order of their alerts, one after the other; what quiet hours hold is passed over, and
 * an alert's own deliveries are all held or none. After a failure the channel waits (channel_wait_ms). An outbox has
 * LIMIT_ALERT_OUTBOX deliveries of a channel at most: then its oldest goes. Thread: the loop's. */
#pragma once
#include "server/alerts/channel.h"
#include "server/security/audit.h"
#include "server/store/store.h"

struct channels;
struct channels_params {
	struct net_loop *loop;
	struct store *store;
	struct audit *audit;
	const char *const *hosts; // that may be private: names or addresses; ends with NULL
	const char *cluster_id, *cluster_name;
};
// With those that the store keeps, and what they have to deliver. Errors: the store's.
enum status channels_create(struct channels **out, const struct channels_params *params, struct error *error);
void channels_destroy(struct channels **channels);

// Put what is to be said of an alert into the batch that raises or clears it. Errors: the batch's.
enum status channels_put(struct channels *channels, struct store_batch *batch, const char *type,
			 const struct json *alert);
// That batch was committed, or was not.
void channels_settle(struct channels *channels, const char *alert_id, bool committed);

// An array of AlertChannel of schema/api.json, oldest first.
struct json *channels_json(const struct channels *channels);
// `done` gets the channel once the change and its audit entry are on disk; the JSON is taken. Errors, and then `done`
// is not called: STATUS_INVALID_PARAMS, STATUS_FORBIDDEN, STATUS_LIMIT_EXCEEDED, STATUS_NOT_FOUND, with a hint; the
// store's.
typedef void channels_done(void *context, enum status status, struct json *result, const struct error *error);
// params: those of alert.channel_add. The answer has the secret if the server has made it.
enum status channels_add(struct channels *channels, const struct json *params, const struct audit_actor *by,
			 channels_done *done, void *context, struct error *error);
enum status channels_remove(struct channels *channels, const char *channel_id, const struct audit_actor *by,
			    channels_done *done, void *context, struct error *error);
// Send a message of type alert.test now, once. `done` gets {delivered, status, message}. Errors also: STATUS_CONFLICT
// (a test of it is under way).
enum status channels_test(struct channels *channels, const char *channel_id, const struct audit_actor *by,
			  channels_done *done, void *context, struct error *error);

// For /metrics.
struct channels_count {
	const char *channel_id, *kind;
	size_t waiting;
	uint64_t delivered, failed, dropped; // since the server started; failed: attempts
};
void channels_each_count(const struct channels *channels,
			 void (*each)(void *context, const struct channels_count *count), void *context);
