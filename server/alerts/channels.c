/* See channels.h: the channels themselves, and what the API does with them. */
#include "server/alerts/channels.h"

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

enum { SEVERITIES_UNASKED = 6 }; // warning and critical

static const char *const severity_names[] = {"info", "warning", "critical"};

// ---- the shape ----

struct channel *channels_find(const struct channels *channels, const char *channel_id)
{
	struct channel *one = channels->first;
	while (one && strcmp(one->channel_id, channel_id) != 0)
		one = one->next;
	return one;
}

static struct json *severities_json(unsigned severities)
{
	struct json *array = json_new_array();
	for (size_t i = 0; i < sizeof severity_names / sizeof *severity_names; i++)
		if (severities & channel_severity(severity_names[i]))
			json_push(array, json_new_string(severity_names[i]));
	return array;
}

static struct json *quiet_json(const struct channel_quiet *quiet)
{
	char text[16];
	if (quiet->from < 0)
		return json_new_null();
	struct json *json = json_new_object();
	snprintf(text, sizeof text, "%02d:%02d", quiet->from / 60, quiet->from % 60);
	json_set_string(json, "from", text);
	snprintf(text, sizeof text, "%02d:%02d", quiet->to / 60, quiet->to % 60);
	json_set_string(json, "to", text);
	return json;
}

static struct json *channel_json(const struct channel *channel)
{
	char at[CLOCK_TEXT_BYTES], url[CHANNEL_URL_BYTES];
	struct json *json = json_new_object();
	channel_mask_url(channel->url, url, sizeof url);
	json_set_string(json, "channel_id", channel->channel_id);
	json_set_string(json, "kind", channel_kind_names[channel->kind]);
	json_set_string(json, "url", url);
	json_set_bool(json, "has_secret", channel->secret[0] != 0);
	json_set_null(json, "secret"); // it is shown once, when the server has made it
	json_set(json, "severities", severities_json(channel->severities));
	json_set(json, "quiet_hours", quiet_json(&channel->quiet));
	json_set_string(json, "added_at", clock_format(channel->added_ms, at));
	json_set_string(json, "added_by", channel->added_by);
	json_set_integer(json, "waiting", (int64_t)channel->count);
	json_set(json, "last", channel->last ? json_copy(channel->last) : json_new_null());
	said_beside((struct json *)json_get(json, "last"), "message");
	return json;
}

struct json *channels_json(const struct channels *channels)
{
	struct json *array = json_new_array();
	for (const struct channel *one = channels->first; one; one = one->next)
		json_push(array, channel_json(one));
	return array;
}

void channels_each_count(const struct channels *channels,
			 void (*each)(void *context, const struct channels_count *count), void *context)
{
	for (const struct channel *one = channels->first; one; one = one->next) {
		const struct channels_count count = {.channel_id = one->channel_id,
						     .kind = channel_kind_names[one->kind],
						     .waiting = one->count,
						     .delivered = one->delivered,
						     .failed = one->failed,
						     .dropped = one->dropped};
		each(context, &count);
	}
}

// ---- life ----

void channel_destroy(struct channel *channel)
{
	while (channel->first)
		outbox_remove(channel, channel->first);
	json_destroy(&channel->last);
	OPENSSL_cleanse(channel->secret, sizeof channel->secret);
	OPENSSL_cleanse(channel->url, sizeof channel->url);
	free(channel);
}

static void push(struct channels *channels, struct channel *channel)
{
	*channels->end = channel;
	channels->end = &channel->next;
	channels->count++;
}

static struct channel *channel_create(struct channels *channels)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	if (!channel)
		return NULL;
	channel->channels = channels;
	channel->end = &channel->first;
	return channel;
}

// What became of the last delivery, as channels_outbox.c wrote it; NULL if there was none, or it is not that. The log
// does not bind it: whoever can write to state.db may have put anything there.
static struct json *read_last(const char *text)
{
	struct error error;
	struct json *told = NULL, *last = NULL;
	int64_t at_ms;
	if (!text || !text[0] || json_parse(&told, text, strlen(text), &error))
		return NULL;
	const char *at = json_get_string(told, "at", ""), *message = json_get_string(told, "message", NULL);
	const int64_t status = json_get_integer(told, "status", 0);
	if (!clock_parse(at, &at_ms)) {
		char time[CLOCK_TEXT_BYTES];
		last = json_new_object();
		json_set_string(last, "at", clock_format(at_ms, time));
		json_set_bool(last, "delivered", json_get_bool(told, "delivered", false));
		json_set(last, "status", status > 0 && status < 1000 ? json_new_integer(status) : json_new_null());
		json_set_string(last, "message", message);
	}
	json_destroy(&told);
	return last;
}

static void load_channel(void *context, const struct store_channel *row)
{
	struct channels *channels = context;
	struct channel *channel = channel_create(channels);
	const enum channel_kind kind = channel_kind_find(row->kind);
	if (!channel || kind == CHANNEL_KINDS || strlen(row->url) >= sizeof channel->url || !row->secret ||
	    strlen(row->secret) >= sizeof channel->secret || !row->added_by) {
		log_warning("alerts", "the channel %.32s cannot be read and is not used", row->channel_id);
		free(channel);
		return;
	}
	channel->kind = kind;
	snprintf(channel->channel_id, sizeof channel->channel_id, "%s", row->channel_id);
	snprintf(channel->url, sizeof channel->url, "%s", row->url);
	snprintf(channel->secret, sizeof channel->secret, "%s", row->secret);
	snprintf(channel->added_by, sizeof channel->added_by, "%s", row->added_by);
	channel->severities = (unsigned)row->severities;
	channel->quiet = (struct channel_quiet){(int)row->quiet_from, (int)row->quiet_to};
	channel->added_ms = row->added_ms;
	channel->last = read_last(row->last_result);
	push(channels, channel);
}

static void load_delivery(void *context, const struct store_delivery *row)
{
	struct channel *channel = channels_find(context, row->channel_id);
	struct delivery *delivery = channel ? outbox_add(channel, row, strdup(row->body)) : NULL;
	if (delivery)
		delivery->stored = true;
}

static enum status create_courier(struct channels *channels, struct error *error)
{
	char urls[16][300];
	const char *hosts[16];
	size_t count = 0;
	for (; channels->params.hosts[count] && count < sizeof hosts / sizeof *hosts; count++) {
		snprintf(urls[count], sizeof urls[count], "http://%s", channels->params.hosts[count]);
		hosts[count] = urls[count];
	}
	return courier_create(&channels->courier, channels->params.loop, hosts, count, error);
}

enum status channels_create(struct channels **out, const struct channels_params *params, struct error *error)
{
	struct channels *channels = calloc(1, sizeof(*channels));
	*out = channels;
	if (!channels)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for channels of alerts");
	channels->params = *params;
	channels->end = &channels->first;
	enum status status = create_courier(channels, error);
	if (!status)
		status = store_load_channels(params->store, load_channel, channels, error);
	if (!status)
		status = store_load_deliveries(params->store, load_delivery, channels, error);
	if (!status)
		outbox_pump(channels);
	return status;
}

void channels_destroy(struct channels **pointer)
{
	struct channels *channels = *pointer;
	if (!channels)
		return;
	*pointer = NULL;
	courier_destroy(&channels->courier);
	net_timer_stop(channels->params.loop, &channels->timer);
	for (struct channel *next, *one = channels->first; one; one = next) {
		next = one->next;
		channel_destroy(one);
	}
	free(channels);
}

// ---- changes ----

struct change {
	struct channels *channels;
	struct channel *channel; // that is added
	char channel_id[32];     // that is removed
	char made[CHANNEL_MADE_BYTES];
	channels_done *done;
	void *context;
};

static void change_free(struct change *change)
{
	OPENSSL_cleanse(change->made, sizeof change->made);
	free(change);
}

static void added(void *context, enum status status, const struct error *error)
{
	struct change *change = context;
	struct json *json = NULL;
	change->channels->adding--;
	if (status) {
		channel_destroy(change->channel);
	} else {
		push(change->channels, change->channel);
		json = channel_json(change->channel);
		if (change->made[0])
			json_set_string(json, "secret", change->made);
	}
	change->done(change->context, status, json, error);
	change_free(change);
}

static enum status read_quiet(struct channel_quiet *quiet, const struct json *given, struct error *error)
{
	*quiet = (struct channel_quiet){-1, -1};
	if (json_type(given) != JSON_OBJECT)
		return STATUS_OK;
	quiet->from = channel_read_minute(json_get_string(given, "from", ""));
	quiet->to = channel_read_minute(json_get_string(given, "to", ""));
	if (quiet->from >= 0 && quiet->to >= 0 && quiet->from != quiet->to)
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS, "these cannot be quiet hours");
	error_hint(error, "give two different times of the day, such as 22:00 and 07:00");
	return STATUS_INVALID_PARAMS;
}

static enum status read_params(struct channel *channel, const struct json *params, struct error *error)
{
	const char *secret = json_get_string(params, "secret", ""), *url = json_get_string(params, "url", "");
	channel->kind = channel_kind_find(json_get_string(params, "kind", ""));
	if (channel->kind == CHANNEL_KINDS || strlen(url) >= sizeof channel->url)
		return error_set(error, STATUS_INVALID_PARAMS, "kind must be webhook or ntfy, and url a URL");
	snprintf(channel->url, sizeof channel->url, "%s", url);
	enum status status = courier_check(channel->channels->courier, channel->url, sizeof channel->url, error);
	if (!status && channel->kind == CHANNEL_NTFY && !channel_topic(channel->url)) {
		status = error_set(error, STATUS_INVALID_PARAMS, "this URL has no topic of ntfy");
		error_hint(error, "give one such as https://ntfy.sh/TOPIC");
	}
	if (!status && secret[0])
		status = channel_check_secret(channel->kind, secret, error);
	if (!status)
		status = read_quiet(&channel->quiet, json_get(params, "quiet_hours"), error);
	if (status)
		return status;
	snprintf(channel->secret, sizeof channel->secret, "%s", secret);
	for (const struct json *one = json_first(json_get(params, "severities")); one; one = json_next(one))
		channel->severities |= channel_severity(json_string(one, ""));
	if (!channel->severities)
		channel->severities = SEVERITIES_UNASKED;
	return STATUS_OK;
}

// What the audit log has of a channel: neither the secret nor the whole URL.
static struct json *detail_json(const struct channel *channel)
{
	char url[CHANNEL_URL_BYTES], severities[64] = "";
	struct json *json = json_new_object();
	channel_mask_url(channel->url, url, sizeof url);
	for (size_t i = 0; i < sizeof severity_names / sizeof *severity_names; i++)
		if (channel->severities & channel_severity(severity_names[i]))
			snprintf(severities + strlen(severities), sizeof severities - strlen(severities), "%s%s",
				 severities[0] ? "," : "", severity_names[i]);
	json_set_string(json, "kind", channel_kind_names[channel->kind]);
	json_set_string(json, "url", url);
	json_set_string(json, "severities", severities);
	json_set_bool(json, "quiet_hours", channel->quiet.from >= 0);
	return json;
}

static enum status put_channel(const struct channel *channel, const struct audit_actor *by, struct store_batch *batch)
{
	struct buffer text;
	struct json *detail = detail_json(channel);
	const struct store_channel row = {.channel_id = channel->channel_id,
					  .kind = channel_kind_names[channel->kind],
					  .url = channel->url,
					  .secret = channel->secret,
					  .added_by = channel->added_by,
					  .last_result = "",
					  .severities = channel->severities,
					  .quiet_from = channel->quiet.from,
					  .quiet_to = channel->quiet.to,
					  .added_ms = channel->added_ms};
	buffer_init(&text, ENTRY_TEXT_BYTES);
	enum status status = json_print(detail, &text);
	json_destroy(&detail);
	const struct audit_event event = {
		.by = by, .action = "alert.channel_add", .target = channel->channel_id, .detail = buffer_text(&text)};
	if (!status)
		status = store_put_channel(batch, &row);
	if (!status)
		status = audit_put(channel->channels->params.audit, batch, &event);
	buffer_finish(&text);
	return status;
}

static enum status commit(struct change *change, enum status status, struct store_batch **batch,
			  void (*done)(void *context, enum status status, const struct error *error),
			  struct error *error)
{
	if (status)
		store_batch_destroy(batch);
	else
		status = store_commit(change->channels->params.store, batch, done, change);
	return status ? error_set(error, status, "the channels cannot be changed now") : STATUS_OK;
}

enum status channels_add(struct channels *channels, const struct json *params, const struct audit_actor *by,
			 channels_done *done, void *context, struct error *error)
{
	struct store_batch *batch = NULL;
	if (channels->count + channels->adding >= LIMIT_ALERT_CHANNELS) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "there are %d channels already", LIMIT_ALERT_CHANNELS);
		error_hint(error, "remove one: exogpu alerts channels remove ID");
		return STATUS_LIMIT_EXCEEDED;
	}
	struct change *change = calloc(1, sizeof(*change));
	struct channel *channel = channel_create(channels);
	enum status status = change && channel && !store_batch_create(&batch)
				     ? STATUS_OK
				     : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a channel");
	if (!status)
		status = read_params(channel, params, error);
	if (status)
		goto out;
	*change = (struct change){.channels = channels, .channel = channel, .done = done, .context = context};
	channel->added_ms = clock_wall_ms();
	snprintf(channel->added_by, sizeof channel->added_by, "%s", by->name[0] ? by->name : by->actor);
	if (random_id("chn_", channel->channel_id, sizeof channel->channel_id)) {
		status = error_set(error, STATUS_UNAVAILABLE, "the system gives no random numbers");
		goto out;
	}
	if (channel->kind == CHANNEL_WEBHOOK && !channel->secret[0]) {
		status = channel_make_secret(change->made);
		snprintf(channel->secret, sizeof channel->secret, "%s", change->made);
	}
	if (!status)
		status = put_channel(channel, by, batch);
	status = commit(change, status, &batch, added, error);
	if (status)
		goto out;
	channels->adding++;
	return STATUS_OK;
out:
	store_batch_destroy(&batch);
	if (channel)
		channel_destroy(channel);
	if (change)
		change_free(change);
	return status;
}

static enum status not_found(const char *channel_id, struct error *error)
{
	error_set(error, STATUS_NOT_FOUND, "there is no channel %.64s", channel_id);
	error_hint(error, "exogpu alerts channels lists them");
	return STATUS_NOT_FOUND;
}

static void removed(void *context, enum status status, const struct error *error)
{
	struct change *change = context;
	struct channels *channels = change->channels;
	struct json *json = NULL;
	for (struct channel **at = &channels->first; !status && *at; at = &(*at)->next) {
		struct channel *one = *at;
		if (strcmp(one->channel_id, change->channel_id) != 0)
			continue;
		*at = one->next;
		if (!*at)
			channels->end = at;
		channels->count--;
		channel_destroy(one);
		break;
	}
	if (!status) {
		json = json_new_object();
		json_set_string(json, "channel_id", change->channel_id);
	}
	change->done(change->context, status, json, error);
	change_free(change);
}

enum status channels_remove(struct channels *channels, const char *channel_id, const struct audit_actor *by,
			    channels_done *done, void *context, struct error *error)
{
	struct store_batch *batch = NULL;
	const struct audit_event event = {.by = by, .action = "alert.channel_remove", .target = channel_id};
	if (!channels_find(channels, channel_id))
		return not_found(channel_id, error);
	struct change *change = calloc(1, sizeof(*change));
	if (!change || store_batch_create(&batch)) {
		free(change);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to remove a channel");
	}
	*change = (struct change){.channels = channels, .done = done, .context = context};
	snprintf(change->channel_id, sizeof change->channel_id, "%s", channel_id);
	enum status status = store_remove_channel(batch, channel_id);
	if (!status)
		status = audit_put(channels->params.audit, batch, &event);
	status = commit(change, status, &batch, removed, error);
	if (status)
		change_free(change);
	return status;
}

enum status channels_test(struct channels *channels, const char *channel_id, const struct audit_actor *by,
			  channels_done *done, void *context, struct error *error)
{
	struct channel *channel = channels_find(channels, channel_id);
	struct outbox_attempt attempt = {.channels = channels, .test = true, .done = done, .context = context};
	if (!channel)
		return not_found(channel_id, error);
	if (channel->testing) {
		error_set(error, STATUS_CONFLICT, "a test of this channel is under way");
		error_hint(error, "it ends within %d s", COURIER_MS / 1000);
		return STATUS_CONFLICT;
	}
	snprintf(attempt.channel_id, sizeof attempt.channel_id, "%s", channel_id);
	if (random_id("dlv_", attempt.delivery_id, sizeof attempt.delivery_id))
		return error_set(error, STATUS_UNAVAILABLE, "the system gives no random numbers");
	const struct channel_message message = {.kind = channel->kind,
						.delivery_id = attempt.delivery_id,
						.topic = channel_topic(channel->url),
						.type = "alert.test",
						.at_ms = clock_wall_ms(),
						.cluster_id = channels->params.cluster_id,
						.cluster_name = channels->params.cluster_name};
	char *body = channel_body(&message);
	const enum status status = body ? outbox_send(channel, &attempt, body) : STATUS_OUT_OF_MEMORY;
	free(body);
	if (status)
		return error_set(error, status, "no memory to test a channel");
	channel->testing = true;
	audit_tell(channels->params.audit,
		   &(struct audit_tally){.by = by, .action = "alert.channel_test", .target = channel_id});
	return STATUS_OK;
}
