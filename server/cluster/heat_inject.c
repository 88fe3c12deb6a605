/* Readings that a test puts in the place of a device's own, in a debug build alone: EXOGPU_THERMAL_TRACE names a
 * folder, and the lines of its file DEVICE_ID.jsonl, which may grow, are readings one after the other. A line is an
 * object with `after_ms`, the time since the reading before it, and the members of DeviceTelemetry that it replaces:
 *
 *     {"after_ms": 1000, "temperature_celsius": 71.5, "power_watts": 300, "slowdown_celsius": 90}
 *
 * With each reading that the device's node sends, the lines that are new are taken, as if each had come by itself at
 * its time. The last of them stays in the place of what the node says. EXOGPU_THERMAL_CLOCK=readings is needed, too
 * (heat.c). Thread: the loop's. */
#include "server/cluster/state.h"

#ifdef NDEBUG

bool cluster_inject_heat(struct cluster *cluster, struct cluster_device *device)
{
	(void)cluster, (void)device;
	return false;
}

#else

#include "common/base/clock.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1024, PATH_BYTES = 1024 };

static void put_in_place(struct cluster_device *device)
{
	static const char *const replaced[] = {"temperature_celsius", "memory_temperature_celsius", "power_watts",
					       "slowdown_celsius", "memory_slowdown_celsius"};
	char at[CLOCK_TEXT_BYTES];
	json_set_string(device->telemetry, "at", clock_format(device->injected_ms, at));
	for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
		if (json_get(device->injected, replaced[i]))
			json_set(device->telemetry, replaced[i], json_copy(json_get(device->injected, replaced[i])));
}

static void take_line(struct cluster *cluster, struct cluster_device *device, const char *text)
{
	struct error error = {0};
	struct json *line = NULL;
	if (json_parse(&line, text, strlen(text), &error)) {
		log_error("cluster", "a line of the trace of %s is not read: %s", device->device_id, error.message);
		return;
	}
	json_destroy(&device->injected);
	device->injected = line;
	device->injected_ms += json_get_integer(line, "after_ms", 0);
	put_in_place(device);
	cluster_note_heat(device, clock_steady_ms());
	cluster_guard_heat(cluster, device);
}

bool cluster_inject_heat(struct cluster *cluster, struct cluster_device *device)
{
	char path[PATH_BYTES], text[LINE_BYTES];
	const char *folder = getenv("EXOGPU_THERMAL_TRACE");
	if (!folder || strchr(device->device_id, '/'))
		return false;
	snprintf(path, sizeof path, "%s/%s.jsonl", folder, device->device_id);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	if (device->injected)
		put_in_place(device);
	else
		device->injected_ms = clock_wall_ms();
	if (!fseek(file, device->injected_offset, SEEK_SET))
		while (fgets(text, sizeof text, file) &&
		       strchr(text, '\n')) { // a line without its end is still written
			device->injected_offset = ftell(file);
			take_line(cluster, device, text);
		}
	fclose(file);
	return device->injected != NULL;
}

#endif
