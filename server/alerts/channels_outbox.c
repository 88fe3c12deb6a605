/* See channels.h: what is to be delivered, and what became of it. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/wire/said.h"
#include "server/alerts/channels_inside.h"
#include "server/security/random_id.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 20000 }; // while quiet hours hold something

// ---- the list ----

struct delivery *outbox_add(struct channel *channel, const struct store_delivery *row, char *body)
{
	struct delivery *delivery = calloc(1, sizeof(*delivery));
	if (!delivery || !body) {
		free(delivery);
		free(body);
		return NULL;
	}
	snprintf(delivery->delivery_id, sizeof delivery->delivery_id, "%s", row->delivery_id);
	snprintf(delivery->alert_id, sizeof delivery->alert_id, "%s", row->alert_id);
	delivery->severity = channel_severity(row->severity);
	delivery->created_ms = row->created_ms;
	delivery->body = body;
	*channel->end = delivery;
	channel->end = &delivery->next;
	channel->count++;
	return delivery;
}

void outbox_remove(struct channel *channel, struct delivery *delivery)
{
	struct delivery **at = &channel->first;
	while (*at != delivery)
		at = &(*at)->next;
	*at = delivery->next;
	if (!*at)
		channel->end = at;
	channel->count--;
	free(delivery->body);
	free(delivery);
}

// ---- what is put ----

// Room for one more: the oldest goes, except that one may be under way.
static enum status make_room(struct channel *channel, struct store_batch *batch)
{
	struct delivery *oldest = channel->first;
	if (channel->count < LIMIT_ALERT_OUTBOX || !oldest)
		return STATUS_OK;
	if (channel->sending && oldest->next)
		oldest = oldest->next;
	if (!channel->full)
		log_warning("alerts",
			    "channel %s has %d alerts to deliver: for each further one, the oldest is left out",
			    channel->channel_id, LIMIT_ALERT_OUTBOX);
	channel->full = true;
	channel->dropped++;
	const enum status status = store_remove_delivery(batch, oldest->delivery_id);
	outbox_remove(channel, oldest);
	return status;
}

static enum status put(struct channel *channel, struct store_batch *batch, const char *type, const struct json *alert)
{
	char id[32];
	const int64_t now_ms = clock_wall_ms();
	const struct channels_params *params = &channel->channels->params;
	enum status status = random_id("dlv_", id, sizeof id);
	if (status)
		return status;
	const struct channel_message message = {.kind = channel->kind,
						.delivery_id = id,
						.topic = channel_topic(channel->url),
						.type = type,
						.at_ms = now_ms,
						.cluster_id = params->cluster_id,
						.cluster_name = params->cluster_name,
						.alert = alert};
	char *body = channel_body(&message);
	const struct store_delivery row = {.delivery_id = id,
					   .channel_id = channel->channel_id,
					   .alert_id = json_get_string(alert, "alert_id", ""),
					   .severity = json_get_string(alert, "severity", ""),
					   .body = body,
					   .created_ms = now_ms};
	if (body)
		status = make_room(channel, batch);
	if (body && !status)
		status = store_put_delivery(batch, &row);
	if (status) {
		free(body);
		return status;
	}
	return outbox_add(channel, &row, body) ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

// Channels are told of an alert as a whole: of one that was raised before there was the channel, not that it is
// cleared.
static bool wants(const struct channel *channel, const char *type, const struct json *alert)
{
	int64_t raised_ms = 0;
	if (!(channel->severities & channel_severity(json_get_string(alert, "severity", ""))))
		return false;
	return strcmp(type, "alert.cleared") != 0 ||
	       (!clock_parse(json_get_string(alert, "raised_at", ""), &raised_ms) && raised_ms >= channel->added_ms);
}

enum status channels_put(struct channels *channels, struct store_batch *batch, const char *type,
			 const struct json *alert)
{
	enum status status = STATUS_OK;
	for (struct channel *one = channels->first; one && !status; one = one->next)
		if (wants(one, type, alert))
			status = put(one, batch, type, alert);
	return status;
}

void channels_settle(struct channels *channels, const char *alert_id, bool committed)
{
	for (struct channel *channel = channels->first; channel; channel = channel->next)
		for (struct delivery *next, *one = channel->first; one; one = next) {
			next = one->next;
			if (one->stored || strcmp(one->alert_id, alert_id) != 0)
				continue;
			one->stored = committed;
			if (!committed)
				outbox_remove(channel, one);
		}
	outbox_pump(channels);
}

// ---- what became of it ----

static void note_result(struct channel *channel, const struct courier_result *result)
{
	char at[CLOCK_TEXT_BYTES];
	json_destroy(&channel->last);
	channel->last = json_new_object();
	json_set_string(channel->last, "at", clock_format(clock_wall_ms(), at));
	json_set_bool(channel->last, "delivered", result->delivered);
	if (result->http_status)
		json_set_integer(channel->last, "status", result->http_status);
	else
		json_set_null(channel->last, "status");
	json_set_string(channel->last, "message", result->message[0] ? result->message : NULL);
}

// A delivery is over: it leaves the outbox. If that cannot be stored it is delivered again after the next start.
static void end_delivery(struct channel *channel, struct delivery *delivery)
{
	struct buffer text;
	struct store_batch *batch = NULL;
	buffer_init(&text, 1024);
	if (!store_batch_create(&batch)) {
		const struct store_channel row = {.channel_id = channel->channel_id,
						  .last_ms = clock_wall_ms(),
						  .last_result = json_print(channel->last, &text) ? ""
												  : buffer_text(&text)};
		enum status status = store_remove_delivery(batch, delivery->delivery_id);
		if (!status)
			status = store_put_channel_result(batch, &row);
		if (status)
			store_batch_destroy(&batch);
		else
			store_commit(channel->channels->params.store, &batch, NULL, NULL);
	}
	buffer_finish(&text);
	outbox_remove(channel, delivery);
	if (!channel->first)
		channel->full = false;
}

static void take_result(struct channel *channel, struct delivery *delivery, const struct courier_result *result)
{
	note_result(channel, result);
	if (result->delivered) {
		if (channel->failures > 1)
			log_info("alerts", "channel %s delivers again", channel->channel_id);
		channel->delivered++;
		channel->failures = 0;
		end_delivery(channel, delivery);
		return;
	}
	channel->failed++;
	if (channel_refuses(result->http_status)) {
		log_warning("alerts", "channel %s: an alert was not delivered: %s, which is final", channel->channel_id,
			    result->message);
		channel->dropped++;
		end_delivery(channel, delivery);
		return;
	}
	channel->failures++;
	channel->not_before = clock_steady_ms() + channel_wait_ms(channel->failures, result->retry_after_s);
	if (channel->failures == 2)
		log_warning("alerts", "channel %s: alerts are not delivered, and tried again: %s", channel->channel_id,
			    result->message);
}

static void answer_test(const struct outbox_attempt *attempt, const struct courier_result *result)
{
	struct json *json = json_new_object();
	json_set_bool(json, "delivered", result->delivered);
	if (result->http_status)
		json_set_integer(json, "status", result->http_status);
	else
		json_set_null(json, "status");
	said_set(json, "message", result->message[0] ? result->message : NULL);
	attempt->done(attempt->context, STATUS_OK, json, NULL);
}

static void attempted(void *context, const struct courier_result *result)
{
	struct outbox_attempt *attempt = context;
	struct channels *channels = attempt->channels;
	struct channel *channel = channels_find(channels, attempt->channel_id); // it may have been removed
	if (attempt->test) {
		if (channel) {
			channel->testing = false;
			note_result(channel, result);
		}
		answer_test(attempt, result);
	} else if (channel) {
		struct delivery *delivery = channel->first;
		while (delivery && strcmp(delivery->delivery_id, attempt->delivery_id) != 0)
			delivery = delivery->next;
		channel->sending = false;
		if (delivery)
			take_result(channel, delivery, result);
		outbox_pump(channels);
	}
	free(attempt);
}

static void dropped(void *context)
{
	struct outbox_attempt *attempt = context;
	const struct error error = {.status = STATUS_UNAVAILABLE, .message = "the server stops"};
	if (attempt->test)
		attempt->done(attempt->context, STATUS_UNAVAILABLE, NULL, &error);
	free(attempt);
}

// ---- sending ----

enum status outbox_send(struct channel *channel, const struct outbox_attempt *given, const char *body)
{
	char id[64], time[64], signature[CHANNEL_SIGNATURE_BYTES], signed_field[96], token[CHANNEL_SECRET_BYTES + 32];
	const char *fields[5] = {"Content-Type: application/json", id};
	size_t count = 2;
	const struct channel_signed what = {given->delivery_id, body, clock_wall_ms() / 1000};
	struct outbox_attempt *attempt = malloc(sizeof(*attempt));
	if (!attempt)
		return STATUS_OUT_OF_MEMORY;
	*attempt = *given;
	snprintf(id, sizeof id, "webhook-id: %s", given->delivery_id);
	enum status status = STATUS_OK;
	if (channel->kind == CHANNEL_WEBHOOK) {
		status = channel_sign(channel->secret, &what, signature);
		snprintf(time, sizeof time, "webhook-timestamp: %lld", (long long)what.at_s);
		snprintf(signed_field, sizeof signed_field, "webhook-signature: %s", signature);
		fields[count++] = time;
		fields[count++] = signed_field;
	} else if (channel->secret[0]) {
		snprintf(token, sizeof token, "Authorization: Bearer %s", channel->secret);
		fields[count++] = token;
	}
	// ntfy takes JSON at its root; the topic stands in it.
	char url[CHANNEL_URL_BYTES];
	const char *topic = channel->kind == CHANNEL_NTFY ? channel_topic(channel->url) : NULL;
	snprintf(url, sizeof url, "%.*s", (int)(topic ? (size_t)(topic - channel->url) : strlen(channel->url)),
		 channel->url);
	const struct courier_letter letter = {.url = url,
					      .body = body,
					      .fields = fields,
					      .field_count = count,
					      .done = attempted,
					      .drop = dropped,
					      .context = attempt};
	if (!status)
		status = courier_send(channel->channels->courier, &letter);
	OPENSSL_cleanse(token, sizeof token);
	OPENSSL_cleanse(url, sizeof url);
	if (status)
		free(attempt);
	return status;
}

// What is too old is not sent any more.
static void drop_old(struct channel *channel, int64_t wall_ms)
{
	while (channel->first && channel->first->stored && wall_ms - channel->first->created_ms > CHANNEL_KEEP_MS) {
		const struct courier_result result = {.message = "it was not delivered for three days"};
		if (channel->sending)
			return;
		log_warning("alerts", "channel %s: an alert was not delivered for three days and is left out",
			    channel->channel_id);
		channel->dropped++;
		note_result(channel, &result);
		end_delivery(channel, channel->first);
	}
}

// When the channel wants to be looked at again, in ms; -1: not before something is put.
static int64_t pump(struct channel *channel, int64_t now_ms, int64_t wall_ms)
{
	const int minute = channel_minute(wall_ms);
	drop_old(channel, wall_ms);
	if (channel->sending || !channel->first)
		return -1;
	if (channel->not_before > now_ms)
		return channel->not_before - now_ms;
	struct delivery *one = channel->first;
	while (one && (!one->stored || channel_holds(&channel->quiet, one->severity, minute)))
		one = one->next;
	if (!one)
		return LOOK_MS;
	struct outbox_attempt attempt = {.channels = channel->channels};
	snprintf(attempt.channel_id, sizeof attempt.channel_id, "%s", channel->channel_id);
	snprintf(attempt.delivery_id, sizeof attempt.delivery_id, "%s", one->delivery_id);
	channel->sending = !outbox_send(channel, &attempt, one->body);
	return channel->sending ? -1 : LOOK_MS;
}

static void look(void *arg)
{
	outbox_pump(arg);
}

void outbox_pump(struct channels *channels)
{
	int64_t wait_ms = -1;
	const int64_t now_ms = clock_steady_ms(), wall_ms = clock_wall_ms();
	for (struct channel *one = channels->first; one; one = one->next) {
		const int64_t wanted_ms = pump(one, now_ms, wall_ms);
		if (wanted_ms >= 0 && (wait_ms < 0 || wanted_ms < wait_ms))
			wait_ms = wanted_ms;
	}
	net_timer_stop(channels->params.loop, &channels->timer);
	if (wait_ms >= 0)
		net_timer_start(channels->params.loop, &channels->timer, wait_ms, look, channels);
}
