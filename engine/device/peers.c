/* See peers.h. */
#include "engine/device/peers.h"

#include "common/base/clock.h"
#include "common/base/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct device_peer *find(const struct device_record *record, const char *hardware_key)
{
	for (size_t i = 0; i < record->peer_count; i++)
		if (!strcmp(record->peers[i].hardware_key, hardware_key))
			return &record->peers[i];
	return NULL;
}

// NULL: no memory, or it has as many as a worker can have open.
static struct device_peer *get(struct device_record *record, const char *hardware_key)
{
	struct device_peer *peer = find(record, hardware_key);
	if (peer || record->peer_count == LIMIT_PEERS_OF_DEVICE)
		return peer;
	struct device_peer *peers = realloc(record->peers, (record->peer_count + 1) * sizeof(*peers));
	if (!peers)
		return NULL;
	record->peers = peers;
	peer = &peers[record->peer_count++];
	*peer = (struct device_peer){0};
	text_copy(peer->hardware_key, sizeof(peer->hardware_key), hardware_key);
	return peer;
}

static bool usable(const struct device_record *record)
{
	const struct device_api *api = &record->apis[device_record_backend(record)];
	return api->listed && !api->verifying && api->verification.state == VERIFICATION_PASSED;
}

static bool holds(const struct device_peer *peer, const struct device_info *info)
{
	return peer->bytes_per_s > 0 && !peer->wanted && !strcmp(peer->model, info->model) &&
	       !strcmp(peer->driver_version, info->driver_version);
}

enum need { NEED_NONE, NEED_LATER, NEED_NOW };

static enum need needs(const struct device_record *from, const struct device_record *to, int64_t now_ms)
{
	const enum backend_kind kind = device_record_backend(from);
	const struct device_info *info = &from->apis[kind].info;
	if (from == to || !kind || device_record_backend(to) != kind || !usable(from) || !usable(to) ||
	    !words_have(info->peers, to->apis[kind].info.hardware_key))
		return NEED_NONE;
	const struct device_peer *peer = find(from, to->hardware_key);
	if (peer ? holds(peer, info) || peer->tries >= PEERS_TRIES : from->peer_count == LIMIT_PEERS_OF_DEVICE)
		return NEED_NONE;
	return peer && peer->retry_at_ms > now_ms ? NEED_LATER : NEED_NOW;
}

bool device_peers_next(const struct device_table *table, int64_t now_ms, struct device_pair *pair, bool *later)
{
	*later = false;
	for (size_t i = 0; i < table->count; i++)
		for (size_t j = 0; j < table->count; j++) {
			const enum need need = needs(table->records[i], table->records[j], now_ms);
			*later |= need == NEED_LATER;
			if (need != NEED_NOW)
				continue;
			*pair = (struct device_pair){.a = table->records[i],
						     .b = table->records[j],
						     .kind = device_record_backend(table->records[i])};
			return true;
		}
	return false;
}

bool device_peers_wait(const struct device_table *table, enum backend_kind kind, const char *reason, int64_t now_ms)
{
	bool changed = false;
	for (size_t i = 0; i < table->count; i++)
		for (size_t j = 0; j < table->count; j++) {
			struct device_record *from = table->records[i];
			if (device_record_backend(from) != kind || needs(from, table->records[j], now_ms) != NEED_NOW)
				continue;
			struct device_peer *peer = get(from, table->records[j]->hardware_key);
			if (!peer || !strcmp(peer->reason, reason))
				continue;
			text_copy(peer->reason, sizeof(peer->reason), reason);
			changed = true;
		}
	return changed;
}

void device_peers_measured(struct device_record *from, const struct device_record *to, double bytes_per_s, bool direct)
{
	struct device_peer *peer = get(from, to->hardware_key);
	const struct device_info *info = &from->apis[device_record_backend(from)].info;
	if (!peer)
		return;
	peer->bytes_per_s = bytes_per_s;
	peer->direct = direct;
	peer->at_ms = clock_wall_ms();
	peer->reason[0] = 0;
	peer->wanted = false;
	peer->tries = 0;
	peer->retry_at_ms = 0;
	text_copy(peer->model, sizeof(peer->model), info->model);
	text_copy(peer->driver_version, sizeof(peer->driver_version), info->driver_version);
}

void device_peers_failed(struct device_record *from, const struct device_record *to, const char *reason, int64_t now_ms)
{
	struct device_peer *peer = get(from, to->hardware_key);
	if (!peer)
		return;
	text_copy(peer->reason, sizeof(peer->reason), reason);
	peer->tries++;
	peer->retry_at_ms = now_ms + PEERS_AGAIN_MS;
}

static void again(struct device_peer *peer)
{
	peer->wanted = true;
	peer->tries = 0;
	peer->retry_at_ms = 0;
}

void device_peers_again(const struct device_table *table, struct device_record *record)
{
	for (size_t i = 0; i < record->peer_count; i++)
		again(&record->peers[i]);
	for (size_t i = 0; i < table->count; i++) {
		struct device_peer *peer = find(table->records[i], record->hardware_key);
		if (peer)
			again(peer);
	}
}

static struct json *report(const struct device_record *record)
{
	const struct device_info *info = &record->apis[device_record_backend(record)].info;
	struct json *array = json_new_array();
	for (size_t i = 0; i < record->peer_count; i++) {
		const struct device_peer *peer = &record->peers[i];
		char at[CLOCK_TEXT_BYTES];
		const bool measured = peer->bytes_per_s > 0 && !strcmp(peer->model, info->model) &&
				      !strcmp(peer->driver_version, info->driver_version);
		struct json *json = json_new_object();
		json_set_string(json, "hardware_key", peer->hardware_key);
		if (measured)
			json_set_number(json, "bytes_per_s", peer->bytes_per_s);
		else
			json_set_null(json, "bytes_per_s");
		json_set_bool(json, "direct", peer->direct);
		json_set_string(json, "measured_at", measured ? clock_format(peer->at_ms, at) : NULL);
		json_set_maybe_text(json, "reason", measured ? NULL : peer->reason);
		json_push(array, json);
	}
	return array;
}

struct json *device_peers_report(const struct device_table *table)
{
	struct json *array = json_new_array();
	for (size_t i = 0; i < table->count; i++) {
		const struct device_record *record = table->records[i];
		const enum backend_kind kind = device_record_backend(record);
		if (!kind || (!record->peer_count && !record->apis[kind].info.peers[0]))
			continue;
		struct json *json = json_new_object();
		json_set_string(json, "device_id", record->device_id);
		json_set(json, "peers", report(record));
		json_push(array, json);
	}
	return array;
}

struct json *device_peers_print(const struct device_record *record)
{
	struct json *array = NULL;
	for (size_t i = 0; i < record->peer_count; i++) {
		const struct device_peer *peer = &record->peers[i];
		if (peer->bytes_per_s <= 0)
			continue;
		struct json *json = json_new_object();
		json_set_string(json, "hardware_key", peer->hardware_key);
		json_set_number(json, "bytes_per_s", peer->bytes_per_s);
		json_set_bool(json, "direct", peer->direct);
		json_set_integer(json, "at_ms", peer->at_ms);
		json_set_string(json, "model", peer->model);
		json_set_string(json, "driver_version", peer->driver_version);
		if (!array)
			array = json_new_array();
		json_push(array, json);
	}
	return array;
}

void device_peers_read(struct device_record *record, const struct json *array)
{
	for (const struct json *item = json_first(array); item; item = json_next(item)) {
		const char *key = json_get_string(item, "hardware_key", "");
		const double bytes_per_s = json_get_number(item, "bytes_per_s", 0);
		struct device_peer *peer = key[0] && bytes_per_s > 0 && isfinite(bytes_per_s) ? get(record, key) : NULL;
		if (!peer)
			continue;
		peer->bytes_per_s = bytes_per_s;
		peer->direct = json_get_bool(item, "direct", false);
		peer->at_ms = json_get_integer(item, "at_ms", 0);
		text_copy(peer->model, sizeof(peer->model), json_get_string(item, "model", ""));
		text_copy(peer->driver_version, sizeof(peer->driver_version),
			  json_get_string(item, "driver_version", ""));
	}
}

void device_peers_finish(struct device_record *record)
{
	free(record->peers);
	record->peers = NULL;
	record->peer_count = 0;
}
