/* See registry.h. */
#include "engine/device/registry.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/device/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { REGISTRY_VERSION = 1, REGISTRY_PATH_BYTES = 4096 };

static void print_bandwidth(const struct device_record *record, struct json *json)
{
	const struct bandwidth *bandwidth = &record->bandwidth;
	if (bandwidth->bytes_per_s <= 0)
		return;
	struct json *object = json_new_object();
	json_set_number(object, "bytes_per_s", bandwidth->bytes_per_s);
	json_set_string(object, "backend", backend_kind_name(bandwidth->backend));
	json_set_string(object, "model", bandwidth->model);
	json_set_string(object, "driver_version", bandwidth->driver_version);
	json_set(json, "bandwidth", object);
}

enum status registry_print(const struct device_table *table, struct buffer *out)
{
	struct json *root = json_new_object(), *devices = json_new_array();
	json_set_integer(root, "version", REGISTRY_VERSION);
	json_set_string(root, "node_id", table->node_id);
	for (size_t i = 0; i < table->count; i++) {
		const struct device_record *record = table->records[i];
		struct json *device = json_new_object(), *apis = json_new_array();
		json_set_string(device, "device_id", record->device_id);
		json_set_string(device, "hardware_key", record->hardware_key);
		for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++) {
			if (!record->apis[kind].known)
				continue;
			struct json *api = device_info_to_json(&record->apis[kind].info);
			json_set_bool(api, "listed", record->apis[kind].listed);
			json_push(apis, api);
		}
		json_set(device, "apis", apis);
		print_bandwidth(record, device);
		struct json *peers = device_peers_print(record);
		if (peers)
			json_set(device, "peers", peers);
		json_push(devices, device);
	}
	json_set(root, "devices", devices);
	enum status status = json_print(root, out);
	json_destroy(&root);
	return status ? status : buffer_append_byte(out, '\n');
}

static void read_device(struct device_table *table, const struct json *json)
{
	const char *key = json_get_string(json, "hardware_key", "");
	struct device_record *record;
	if (!key[0] || device_table_add(table, key, &record))
		return;
	const struct json *apis = json_get(json, "apis"), *bandwidth = json_get(json, "bandwidth");
	for (const struct json *item = json_first(apis); item; item = json_next(item)) {
		enum backend_kind kind = backend_kind_parse(json_get_string(item, "backend", ""));
		if (!kind)
			continue;
		struct device_api *api = &record->apis[kind];
		device_info_from_json(&api->info, item);
		api->known = true;
		api->listed = json_get_bool(item, "listed", false);
		api->verification = (struct verification){.state = VERIFICATION_PENDING, .duration_ms = -1};
	}
	record->bandwidth = (struct bandwidth){
		.bytes_per_s = json_get_number(bandwidth, "bytes_per_s", 0),
		.backend = backend_kind_parse(json_get_string(bandwidth, "backend", "")),
	};
	text_copy(record->bandwidth.model, sizeof(record->bandwidth.model), json_get_string(bandwidth, "model", ""));
	text_copy(record->bandwidth.driver_version, sizeof(record->bandwidth.driver_version),
		  json_get_string(bandwidth, "driver_version", ""));
	device_peers_read(record, json_get(json, "peers"));
}

static bool valid(const struct json *root, struct error *error)
{
	const char *node_id = json_get_string(root, "node_id", "");
	if (json_get_integer(root, "version", 0) != REGISTRY_VERSION)
		error_set(error, STATUS_PARSE_ERROR, "its version is not %d", REGISTRY_VERSION);
	else if (strncmp(node_id, "node_", 5) || strlen(node_id) >= IDENTITY_ID_BYTES)
		error_set(error, STATUS_PARSE_ERROR, "it has no node_id");
	else if (json_type(json_get(root, "devices")) != JSON_ARRAY)
		error_set(error, STATUS_PARSE_ERROR, "it has no list of devices");
	return !error->message[0];
}

// Keep a file that cannot be parsed beside the new one, so that a person can look at it.
static void set_aside(const char *path, const struct error *fault)
{
	char aside[REGISTRY_PATH_BYTES];
	snprintf(aside, sizeof(aside), "%.4000s.damaged", path);
	if (rename(path, aside))
		log_error("node", "%s is damaged (%s) and cannot be set aside: %s", path, fault->message,
			  strerror(errno));
	else
		log_warning("node", "%s is damaged (%s): set aside as %s; devices get new ids", path, fault->message,
			    aside);
}

static enum status read_file(const char *path, struct buffer *text, bool *exists, struct error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	*exists = fd >= 0;
	if (fd < 0)
		return errno == ENOENT ? STATUS_OK
				       : error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s cannot be read", path);
	enum status status = STATUS_OK;
	char bytes[16384];
	ssize_t got;
	while (!status && ((got = read(fd, bytes, sizeof(bytes))) > 0 || (got < 0 && errno == EINTR)))
		status = got > 0 ? buffer_append(text, bytes, (size_t)got) : STATUS_OK;
	if (!status && got < 0)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s cannot be read", path);
	close(fd);
	return status;
}

enum status registry_load(struct device_table **out, const char *path, struct error *error)
{
	struct buffer text;
	struct json *root = NULL;
	struct error fault = {0};
	bool exists = false;
	char node_id[IDENTITY_ID_BYTES] = "";
	*out = NULL;
	buffer_init(&text, LIMIT_REGISTRY_BYTES);
	enum status status = read_file(path, &text, &exists, error);
	if (status == STATUS_LIMIT_EXCEEDED)
		status = error_set(&fault, STATUS_OK, "it is over %d bytes", LIMIT_REGISTRY_BYTES);
	else if (!status && exists && !json_parse(&root, buffer_text(&text), text.length, &fault) &&
		 valid(root, &fault))
		text_copy(node_id, sizeof(node_id), json_get_string(root, "node_id", ""));
	if (!status && fault.message[0])
		set_aside(path, &fault);
	if (!status && !node_id[0])
		status = identity_new_node_id(node_id, error);
	if (!status)
		status = device_table_create(out, node_id);
	if (!status && !fault.message[0]) {
		const struct json *devices = json_get(root, "devices");
		for (const struct json *item = json_first(devices); item; item = json_next(item))
			read_device(*out, item);
	}
	json_destroy(&root);
	buffer_finish(&text);
	return status;
}

static enum status write_all(int fd, const uint8_t *bytes, size_t length)
{
	for (size_t sent = 0; sent < length;) {
		ssize_t wrote = write(fd, bytes + sent, length - sent);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return STATUS_UNAVAILABLE;
		sent += (size_t)wrote;
	}
	return STATUS_OK;
}

static void sync_folder(const char *path)
{
	char folder[REGISTRY_PATH_BYTES];
	const char *slash = strrchr(path, '/');
	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
}

enum status registry_write(const char *path, const void *bytes, size_t length, struct error *error)
{
	char temporary[REGISTRY_PATH_BYTES];
	snprintf(temporary, sizeof(temporary), "%.4000s.new", path);
	int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), number = errno;
	enum status status = fd < 0 ? STATUS_UNAVAILABLE : write_all(fd, bytes, length);
	if (!status && fsync(fd))
		status = STATUS_UNAVAILABLE;
	if (fd >= 0) {
		number = status ? errno : 0;
		if (close(fd) && !status) {
			number = errno;
			status = STATUS_UNAVAILABLE;
		}
	}
	if (!status && rename(temporary, path)) {
		number = errno;
		status = STATUS_UNAVAILABLE;
	}
	if (status) {
		unlink(temporary);
		error_hint(error, "free space, or make the folder writable for this user");
		return error_errno(error, status, number, "%.200s cannot be written", path);
	}
	sync_folder(path);
	return STATUS_OK;
}
