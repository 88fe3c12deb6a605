/* Figures that rules for alerts compare: those of nodes and devices, as their newest readings give them. A figure that
 * a reading lacks is NaN. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/cluster/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double percent(double part, double whole)
{
	return part >= 0 && whole > 0 ? 100 * part / whole : NAN;
}

void cluster_each_node_figures(const struct cluster *cluster,
			       void (*each)(void *context, const struct cluster_node_figures *figures), void *context)
{
	for (size_t i = 0; i < cluster->node_count; i++) {
		const struct cluster_node *node = cluster->nodes[i];
		const double total = json_get_number(node->telemetry, "memory_total_bytes", -1);
		const double available = json_get_number(node->telemetry, "memory_available_bytes", -1);
		const struct cluster_node_figures figures = {
			.node_id = node->node_id,
			.name = json_get_string(node->record, "name", node->node_id),
			.version = json_get_string(node->record, "version", ""),
			.reason = node->state_reason[0] ? node->state_reason : NULL,
			.libraries = json_get(node->record, "libraries"),
			.online = node->link != NULL,
			.left = node->left,
			.memory_percent = available >= 0 ? percent(total - available, total) : NAN,
			.reading_ms = node->reading_ms};
		each(context, &figures);
	}
}

static double throttled(const struct json *telemetry)
{
	const char *state = json_get_string(telemetry, "thermal_state", NULL);
	if (!state)
		return NAN;
	return !strcmp(state, "throttled") || !strcmp(state, "critical");
}

// Heat that throttles already is another alert.
static double throttles_soon(const struct cluster_device *device, enum heat_sensor sensor)
{
	struct cluster_heat heat;
	cluster_read_heat(device, sensor, (double)NAN, &heat);
	if (heat.state != THERMAL_READY || isnan(heat.limit))
		return NAN;
	return heat.warned && throttled(device->telemetry) != 1;
}

// Errors that stopped coming are known to have stopped once nothing came for the whole time.
static double ecc_errors(const struct cluster_device *device, int64_t now_ms)
{
	if (!device->ecc_first_ms)
		return NAN;
	if (device->ecc_new_ms && now_ms - device->ecc_new_ms < CLUSTER_ECC_MS)
		return device->ecc_new;
	return now_ms - device->ecc_first_ms < CLUSTER_ECC_MS ? NAN : 0;
}

static double count_ends(const struct cluster_device *device, int64_t now_ms)
{
	int count = 0;
	for (unsigned i = 0; i < CLUSTER_ENDS && i < device->ends; i++)
		count += now_ms - device->ends_ms[i] < CLUSTER_ENDS_MS;
	return count;
}

void cluster_each_device_figures(const struct cluster *cluster,
				 void (*each)(void *context, const struct cluster_device_figures *figures),
				 void *context)
{
	const int64_t now_ms = clock_steady_ms();
	char title[CLUSTER_TITLE_BYTES];
	for (size_t i = 0; i < cluster->device_count; i++) {
		const struct cluster_device *device = cluster->devices[i];
		const double core_soon = throttles_soon(device, HEAT_CORE),
			     memory_soon = throttles_soon(device, HEAT_MEMORY);
		struct cluster_device_figures figures = {
			.device_id = device->device_id,
			.node_id = device->node->node_id,
			.node_online = device->node->link != NULL,
			.present = json_get_bool(device->record, "present", true),
			.processor = !strcmp(json_get_string(device->record, "kind", ""), "cpu"),
			.memory_percent = percent(json_get_number(device->telemetry, "memory_used_bytes", -1),
						  json_get_number(device->telemetry, "memory_total_bytes", -1)),
			.throttled = throttled(device->telemetry),
			.throttles_soon = fmax(core_soon, memory_soon), // the other one, where one is NaN
			.memory_throttles = memory_soon > 0 && !(core_soon > 0),
			.ecc_errors = ecc_errors(device, now_ms),
			.wrong = cluster_of_tab(device->node) ? device->node->checks.wrong[0] != 0 : (double)NAN,
			.wrong_why = device->node->checks.wrong,
			.ends = count_ends(device, now_ms),
			.reading_ms = device->reading_ms};
		snprintf(figures.title, sizeof figures.title, "%s on %.64s",
			 cluster_device_title(cluster, device, title),
			 json_get_string(device->node->record, "name", device->node->node_id));
		each(context, &figures);
	}
}

void cluster_note_end(const struct cluster *cluster, const struct cluster_device *device)
{
	struct cluster_device *own = cluster_find_device(cluster, device->device_id);
	if (own)
		own->ends_ms[own->ends++ % CLUSTER_ENDS] = clock_steady_ms();
}

void cluster_note_reading(struct cluster_device *device, int64_t now_ms)
{
	const double count = json_get_number(device->telemetry, "ecc_errors", -1);
	device->reading_ms = now_ms;
	if (count < 0)
		return;
	if (!device->ecc_first_ms)
		device->ecc_first_ms = now_ms;
	else if (count > device->ecc_count) {
		const bool goes_on = device->ecc_new_ms && now_ms - device->ecc_new_ms < CLUSTER_ECC_MS;
		device->ecc_new = count - device->ecc_count + (goes_on ? device->ecc_new : 0);
		device->ecc_new_ms = now_ms;
	}
	device->ecc_count = count; // it is smaller after a driver was loaded anew, where it counts from then on
}
