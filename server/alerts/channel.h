/* What is sent to a channel of alerts, and when. A channel is a webhook, signed as the Standard Webhooks specification
 * says (https://www.standardwebhooks.com, version 1), or a topic of an ntfy server (https://docs.ntfy.sh/publish,
 * "Publish as JSON").
 *
 * Pure: times are given, nothing is stored or sent. Thread: any. */
#pragma once
#include "common/json/json.h"

enum {
	CHANNEL_URL_BYTES = 2049,
	CHANNEL_SECRET_BYTES = 257,
	CHANNEL_SIGNATURE_BYTES = 48, // "v1," and 44 characters of Base64
	CHANNEL_MADE_BYTES = 64,      // a secret that the server makes
	CHANNEL_WAIT_MOST_S = 900,
	CHANNEL_KEEP_MS = 3 * 86400000, // so long a delivery is tried
};

enum channel_kind { CHANNEL_WEBHOOK, CHANNEL_NTFY, CHANNEL_KINDS };
extern const char *const channel_kind_names[CHANNEL_KINDS];
enum channel_kind channel_kind_find(const char *name); // CHANNEL_KINDS: there is none

// As bits: 1 info, 2 warning, 4 critical. 0: unknown.
unsigned channel_severity(const char *name);

// Minutes of a day; from -1: there are none. They begin at `from` and end before `to`, perhaps on the next day.
struct channel_quiet {
	int from, to;
};
// "22:00". -1: it is no time of day.
int channel_read_minute(const char *text);
// Whether an alert of this severity has to wait at this minute of the day. Critical ones never do.
bool channel_holds(const struct channel_quiet *quiet, unsigned severity, int minute);
// The minute of the day in the server's local time.
int channel_minute(int64_t wall_ms);

// How long to wait after so many failures in a row (1 or more), in ms: 1 s, 2 s, 4 s and so on, CHANNEL_WAIT_MOST_S at
// most; and at least what the receiver asked for (asked_s).
int64_t channel_wait_ms(unsigned failures, int64_t asked_s);
// Whether a receiver that answers this does not want this delivery, however often it comes.
bool channel_refuses(long http_status);

// What may be a secret: for a webhook "whsec_" and Base64 of 24 to 64 bytes, or any text of 16 characters and more; for
// ntfy an access token. Errors: STATUS_INVALID_PARAMS, with a hint, and never with the secret.
enum status channel_check_secret(enum channel_kind kind, const char *secret, struct error *error);
// A secret for a webhook: "whsec_" and 32 random bytes. Errors: STATUS_UNAVAILABLE.
enum status channel_make_secret(char out[CHANNEL_MADE_BYTES]);
// The signature of a delivery that is sent at_s (Unix time): "v1," and HMAC-SHA256 of "ID.TIME.BODY" in Base64.
struct channel_signed {
	const char *delivery_id, *body; // body: text
	int64_t at_s;
};
enum status channel_sign(const char *secret, const struct channel_signed *what, char out[CHANNEL_SIGNATURE_BYTES]);

// The topic of an ntfy URL, which is the whole of its path; NULL: it has none that ntfy takes.
const char *channel_topic(const char *url);
// A URL without what must not be shown: "https://host/…". It may be NULL-terminated earlier, never later, than size.
void channel_mask_url(const char *url, char *out, size_t size);

// What a delivery says. The same text is sent at each attempt.
struct channel_message {
	enum channel_kind kind;
	const char *delivery_id, *topic; // topic: ntfy's
	const char *type;                // alert.raised, alert.cleared, alert.test
	int64_t at_ms;
	const char *cluster_id, *cluster_name;
	const struct json *alert; // Alert of schema/api.json; NULL for a test
};
// The text of its body, to be freed; NULL without memory.
char *channel_body(const struct channel_message *message);
