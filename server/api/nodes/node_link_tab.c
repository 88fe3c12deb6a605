/* What a browser tab may and may not, once it is let in (tab.c). A tab has no certificate, and whoever holds the phone
 * can run any page in it, so everything that it says of itself is written anew or checked here, and it is asked only
 * for work that a session or a model wants there: it is told neither of other nodes, nor of model files, nor of the
 * audit log. Its hops go by way of the server. See
 * node_link_inside.h. Thread: the loop's. */
#include "server/api/nodes/node_link_inside.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 64, FACT_BYTES = 128, MOST_LIBRARIES = 4 };

bool node_tab_may_hear(const char *method, const struct json *params)
{
	static const char *const heard[] = {"tenant.open", "tenant.device", "tenant.close", "device.verify",
					    "hop.connect"};
	const bool model = json_get(params, "model_path") || json_get(params, "model_id");
	for (size_t i = 0; i < sizeof heard / sizeof *heard; i++)
		if (!strcmp(heard[i], method))
			return !model;
	return false;
}

// As many whole characters as fit.
static void set_cut(struct json *object, const char *name, const struct json *from, size_t bytes)
{
	char text[FACT_BYTES + 1];
	const char *told = json_get_string(from, name, NULL);
	size_t length = told ? strlen(told) : 0;
	if (length > bytes)
		for (length = bytes; length && (told[length] & 0xc0) == 0x80;)
			length--;
	snprintf(text, sizeof text, "%.*s", (int)length, told ? told : "");
	json_set_string(object, name, told ? text : NULL);
}

struct json *node_tab_record(const struct node_link *link, const struct json *told)
{
	static const char *const facts[] = {"os", "arch", "cpu_model"};
	static const char *const counts[] = {"cpu_cores", "cpu_threads", "memory_bytes"};
	struct json *record = json_new_object(), *backends = json_new_array(), *addresses = json_new_array();
	json_set_string(record, "kind", "browser");
	json_set_integer(record, "link_port", 0);
	json_set_string(record, "node_id", link->proven);
	set_cut(record, "name", told, NAME_BYTES);
	set_cut(record, "host_name", told, NAME_BYTES);
	set_cut(record, "version", told, NAME_BYTES);
	for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
		set_cut(record, facts[i], told, FACT_BYTES);
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		json_set(record, counts[i], json_copy(json_get(told, counts[i])));
	json_set_null(record, "kernel");
	for (const struct json *one = json_first(json_get(told, "backends")); one; one = json_next(one))
		if (!strcmp(json_get_string(one, "backend", ""), "webgpu") && !json_count(backends))
			json_push(backends, json_copy(one));
	json_set(record, "backends", backends);
	json_set(record, "libraries", json_new_array());
	json_set(record, "capabilities", json_new_array());
	json_push(addresses, json_new_string(link->peer));
	json_set(record, "addresses", addresses);
	return record;
}

// dev_ and what follows in its node's id, alone or with _0 to _9: no tab can take an id of another node's device before
// that is known.
static bool has_own_id(const struct node_link *link, const struct json *device)
{
	const char *device_id = json_get_string(device, "device_id", ""), *own = strchr(link->proven, '_');
	if (!own || strncmp(device_id, "dev", 3) != 0 || strncmp(device_id + 3, own, strlen(own)) != 0)
		return false;
	const char *number = device_id + 3 + strlen(own);
	return !number[0] || (number[0] == '_' && number[1] >= '0' && number[1] <= '9' && !number[2]);
}

enum status node_tab_check_devices(const struct node_link *link, const struct json *params, struct error *error)
{
	const struct json *devices = json_get(params, "devices");
	if (json_count(devices) > LIMIT_TAB_DEVICES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a browser tab has %d devices at most",
				 LIMIT_TAB_DEVICES);
	if (json_get(params, "peer_speeds"))
		return error_set(error, STATUS_INVALID_PARAMS, "devices of a browser tab have no peers");
	for (const struct json *one = json_first(devices); one; one = json_next(one)) {
		const struct json *apis = json_get(one, "apis");
		bool webgpu = !strcmp(json_get_string(one, "backend", ""), "webgpu");
		for (const struct json *api = json_first(apis); api; api = json_next(api))
			webgpu = webgpu && !strcmp(json_get_string(api, "backend", ""), "webgpu");
		if (!webgpu)
			return error_set(error, STATUS_INVALID_PARAMS, "a browser tab lends by WebGPU only");
		if (!has_own_id(link, one))
			return error_set(error, STATUS_INVALID_PARAMS,
					 "a device_id of a browser tab must be dev%.40s, alone or with _0 to _9",
					 link->proven + strcspn(link->proven, "_"));
		if (json_count(json_get(one, "peers")) || json_get_string(one, "pci_address", NULL))
			return error_set(error, STATUS_INVALID_PARAMS,
					 "a device of a browser tab has no peers and no PCI address");
	}
	return STATUS_OK;
}

struct json *node_tab_links(const struct node_link *link, const struct json *params)
{
	struct json *cleaned = json_new_object(), *links = json_new_array();
	for (const struct json *one = json_first(json_get(params, "links")); one; one = json_next(one))
		if (!strcmp(json_get_string(one, "peer_id", ""), "server") && !json_count(links)) {
			struct json *record = json_copy(one);
			json_set_string(record, "address", link->link.reached[0] ? link->link.reached : NULL);
			json_set_null(record, "interface");
			set_cut(record, "reason", one, FACT_BYTES);
			json_push(links, record);
		}
	json_set(cleaned, "links", links);
	return cleaned;
}
