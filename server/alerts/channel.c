/* See channel.h. */
#include "server/alerts/channel.h"

#include "common/base/clock.h"
#include "common/text/base64.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { KEY_LEAST = 24, KEY_MOST = 64, TEXT_LEAST = 16, BODY_BYTES = 16384 };

static const char secret_prefix[] = "whsec_";

const char *const channel_kind_names[CHANNEL_KINDS] = {[CHANNEL_WEBHOOK] = "webhook", [CHANNEL_NTFY] = "ntfy"};

enum channel_kind channel_kind_find(const char *name)
{
	int kind = 0;
	while (kind < CHANNEL_KINDS && strcmp(channel_kind_names[kind], name) != 0)
		kind++;
	return (enum channel_kind)kind;
}

unsigned channel_severity(const char *name)
{
	return !strcmp(name, "info") ? 1 : !strcmp(name, "warning") ? 2 : !strcmp(name, "critical") ? 4 : 0;
}

// ---- when ----

int channel_read_minute(const char *text)
{
	if (strlen(text) != 5 || text[2] != ':')
		return -1;
	for (size_t i = 0; i < 5; i++)
		if (i != 2 && (text[i] < '0' || text[i] > '9'))
			return -1;
	const int hour = (text[0] - '0') * 10 + text[1] - '0', minute = (text[3] - '0') * 10 + text[4] - '0';
	return hour < 24 && minute < 60 ? hour * 60 + minute : -1;
}

bool channel_holds(const struct channel_quiet *quiet, unsigned severity, int minute)
{
	if (quiet->from < 0 || severity == channel_severity("critical"))
		return false;
	if (quiet->from <= quiet->to)
		return minute >= quiet->from && minute < quiet->to;
	return minute >= quiet->from || minute < quiet->to;
}

int channel_minute(int64_t wall_ms)
{
	const time_t at = (time_t)(wall_ms / 1000);
	struct tm local;
	return localtime_r(&at, &local) ? local.tm_hour * 60 + local.tm_min : 0;
}

int64_t channel_wait_ms(unsigned failures, int64_t asked_s)
{
	int64_t wait_s = failures > 10 ? CHANNEL_WAIT_MOST_S : (int64_t)1 << (failures ? failures - 1 : 0);
	if (asked_s > wait_s)
		wait_s = asked_s;
	return (wait_s > CHANNEL_WAIT_MOST_S ? CHANNEL_WAIT_MOST_S : wait_s) * 1000;
}

bool channel_refuses(long http_status)
{
	return http_status == 400 || http_status == 410 || http_status == 413 || http_status == 422;
}

// ---- secrets ----

// The key that a secret stands for, into key[KEY_MOST]; its length, or 0: it is no Base64, or has another length.
static size_t read_key(const char *secret, uint8_t key[KEY_MOST])
{
	const char *text = secret + strlen(secret_prefix);
	const size_t length = strlen(text), padding = length - strcspn(text, "=");
	const size_t count = padding <= 2 && length >= 4 ? length / 4 * 3 - padding : 0;
	const bool good = count >= KEY_LEAST && count <= KEY_MOST && base64_decode(text, length, key, count);
	return good ? count : 0;
}

enum status channel_check_secret(enum channel_kind kind, const char *secret, struct error *error)
{
	uint8_t key[KEY_MOST];
	const size_t length = strlen(secret), least = kind == CHANNEL_WEBHOOK ? TEXT_LEAST : 1;
	bool good = length >= least && length < CHANNEL_SECRET_BYTES;
	for (size_t i = 0; i < length; i++)
		good = good && secret[i] > ' ' && secret[i] < 127;
	if (good && kind == CHANNEL_WEBHOOK && !strncmp(secret, secret_prefix, strlen(secret_prefix))) {
		good = read_key(secret, key) > 0;
		OPENSSL_cleanse(key, sizeof key);
	}
	if (good)
		return STATUS_OK;
	if (kind == CHANNEL_NTFY) {
		error_set(error, STATUS_INVALID_PARAMS, "this cannot be an access token of ntfy");
		error_hint(error, "give it as ntfy shows it, such as tk_..., with nothing before or behind it");
	} else {
		error_set(error, STATUS_INVALID_PARAMS, "this cannot be the secret of a webhook");
		error_hint(error, "whsec_ and 24 to 64 bytes in Base64, or 16 to 256 visible ASCII characters; without "
				  "one the server makes it");
	}
	return STATUS_INVALID_PARAMS;
}

enum status channel_make_secret(char out[CHANNEL_MADE_BYTES])
{
	uint8_t bytes[32];
	if (RAND_bytes(bytes, sizeof bytes) != 1)
		return STATUS_UNAVAILABLE;
	const int length = snprintf(out, CHANNEL_MADE_BYTES, "%s", secret_prefix);
	base64_encode(bytes, sizeof bytes, out + length);
	OPENSSL_cleanse(bytes, sizeof bytes);
	return STATUS_OK;
}

enum status channel_sign(const char *secret, const struct channel_signed *what, char out[CHANNEL_SIGNATURE_BYTES])
{
	uint8_t key[CHANNEL_SECRET_BYTES], digest[EVP_MAX_MD_SIZE];
	unsigned length = 0;
	struct buffer text;
	size_t key_length = 0;
	if (!strncmp(secret, secret_prefix, strlen(secret_prefix)))
		key_length = read_key(secret, key);
	if (!key_length) {
		key_length = strnlen(secret, sizeof key);
		memcpy(key, secret, key_length);
	}
	buffer_init(&text, BODY_BYTES + 256);
	buffer_printf(&text, "%s.%lld.", what->delivery_id, (long long)what->at_s);
	buffer_append_text(&text, what->body);
	const bool made = !text.failed &&
			  HMAC(EVP_sha256(), key, (int)key_length, text.data, text.length, digest, &length);
	memcpy(out, "v1,", 4);
	if (made)
		base64_encode(digest, length, out + 3);
	OPENSSL_cleanse(key, sizeof key);
	buffer_finish(&text);
	return made ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

// ---- where ----

// Where the path begins; its end if there is none.
static const char *path_of(const char *url)
{
	const char *host = strstr(url, "://");
	host = host ? host + 3 : url;
	return host + strcspn(host, "/?#");
}

const char *channel_topic(const char *url)
{
	static const char may[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
	const char *path = path_of(url);
	const size_t length = *path == '/' ? strlen(path + 1) : 0;
	return length && length <= 64 && strspn(path + 1, may) == length ? path + 1 : NULL;
}

void channel_mask_url(const char *url, char *out, size_t size)
{
	const char *path = path_of(url);
	snprintf(out, size, "%.*s%s", (int)(path - url), url, *path && strcmp(path, "/") != 0 ? "/\u2026" : path);
}

// ---- what ----

static struct json *webhook_json(const struct channel_message *message)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object(), *data = json_new_object(), *cluster = json_new_object();
	json_set_string(json, "type", message->type);
	json_set_string(json, "timestamp", clock_format(message->at_ms, at));
	json_set_string(json, "id", message->delivery_id);
	json_set_string(cluster, "id", message->cluster_id);
	json_set_string(cluster, "name", message->cluster_name);
	json_set(data, "cluster", cluster);
	json_set(data, "alert", message->alert ? json_copy(message->alert) : json_new_null());
	json_set(json, "data", data);
	return json;
}

// Priorities are ntfy's: 5 the highest, 3 the usual one.
static struct json *ntfy_json(const struct channel_message *message)
{
	char title[400], text[800];
	const bool raised = !strcmp(message->type, "alert.raised");
	const char *severity = json_get_string(message->alert, "severity", "");
	const unsigned bit = channel_severity(severity);
	struct json *json = json_new_object(), *tags = json_new_array();
	if (message->alert && raised)
		snprintf(title, sizeof title, "%.200s: %s", message->cluster_name, severity);
	else
		snprintf(title, sizeof title, "%.200s: %s", message->cluster_name,
			 message->alert ? "resolved" : "this is a test");
	if (message->alert)
		snprintf(text, sizeof text, "%.400s%s%.390s", json_get_string(message->alert, "message", ""),
			 raised ? "\n" : "", raised ? json_get_string(message->alert, "hint", "") : "");
	else
		snprintf(text, sizeof text, "Alerts of exogpu arrive here.");
	json_set_string(json, "topic", message->topic);
	json_set_string(json, "title", title);
	json_set_string(json, "message", text);
	json_set_integer(json, "priority", !raised ? 3 : bit == 4 ? 5 : bit == 2 ? 4 : 3);
	json_push(tags, json_new_string(!message->alert ? "test_tube" : raised ? "warning" : "white_check_mark"));
	json_set(json, "tags", tags);
	return json;
}

char *channel_body(const struct channel_message *message)
{
	struct buffer text;
	struct json *json = message->kind == CHANNEL_NTFY ? ntfy_json(message) : webhook_json(message);
	buffer_init(&text, BODY_BYTES);
	const enum status status = json_print(json, &text);
	char *body = status ? NULL : buffer_copy_text(text.data, text.length);
	buffer_finish(&text);
	json_destroy(&json);
	return body;
}
