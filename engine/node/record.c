/* See record.h. */
#include "engine/node/record.h"

#include "engine/device/host.h"
#include "engine/node/uplink/addresses.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

// PRETTY_NAME of /etc/os-release, without its quotes: "Debian GNU/Linux 12 (bookworm)".
static bool read_os(char *name, size_t size)
{
	static const char *const files[] = {"/etc/os-release", "/usr/lib/os-release"};
	static const char key[] = "PRETTY_NAME=";
	char text[4096];
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (!host_read_file(files[i], text, sizeof(text)))
			continue;
		for (char *line = text; line; line = strchr(line, '\n')) {
			line += *line == '\n';
			if (strncmp(line, key, sizeof(key) - 1))
				continue;
			line += sizeof(key) - 1;
			line += *line == '"' || *line == '\'';
			line[strcspn(line, "\"'\n")] = 0;
			text_copy(name, size, line);
			return name[0] != 0;
		}
	}
	return false;
}

struct json *record_build(const struct record_params *params)
{
	struct host_cpu host;
	struct utsname system = {0};
	char os[256] = "";
	uname(&system);
	host_cpu_read(&host);
	read_os(os, sizeof(os));
	const char *host_name = system.nodename[0] ? system.nodename : "unnamed";
	struct json *json = json_new_object();
	json_set_string(json, "node_id", params->node_id);
	json_set_string(json, "name", params->name && params->name[0] ? params->name : host_name);
	json_set_string(json, "host_name", host_name);
	json_set_maybe_text(json, "os", os);
	json_set_maybe_text(json, "kernel", system.release);
	json_set_maybe_text(json, "arch", system.machine);
	json_set_maybe_text(json, "cpu_model", host.model);
	json_set_maybe_count(json, "cpu_cores", host.cores);
	json_set_maybe_count(json, "cpu_threads", host.threads);
	json_set_maybe_count(json, "memory_bytes", host.memory_bytes);
	json_set_string(json, "version", EXOGPU_VERSION);
	json_set_integer(json, "link_port", params->link_port);
	json_set(json, "addresses", addresses_list());
	json_set(json, "backends", params->backends);
	json_set(json, "libraries", params->libraries);
	json_set(json, "capabilities", words_to_json(host.features));
	return json;
}
