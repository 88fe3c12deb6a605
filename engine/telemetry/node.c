/* Load, disks, network and battery of this machine: see node.h. Disks are whole disks with data:
 * partitions, loop, ram, zram, optical drives, device-mapper and RAID are left out, because other disks
 * count them or they hold none. The network is the hardware's traffic, so that a packet to a container is
 * not counted again on its bridge; without hardware interfaces (in a container) it is everything except
 * loopback. A total that decreased, because a disk or interface left, gives no reading once. Owns its open
 * files. */
#include "engine/telemetry/node.h"

#include "common/base/clock.h"
#include "engine/telemetry/sample.h"
#include "engine/telemetry/sensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_BYTES = 65536, BATTERIES = 4, NAME_BYTES = 64, SECTOR_BYTES = 512, BATTERY_SCAN_S = 30 };

struct battery {
	struct sensor capacity, status;
	double weight; // capacity when full, in the driver's unit, for weighing several batteries
};

struct node_reader {
	char sysfs_root[SENSOR_PATH_BYTES / 2];
	struct sensor load, disks, network;
	struct rate disk_read, disk_write, network_rx, network_tx;
	struct battery batteries[BATTERIES];
	int battery_count;
	int64_t scanned_ns; // when batteries were looked for
	bool scanned;
	char table[TABLE_BYTES];
};

enum status node_reader_create(struct node_reader **out, const char *proc_root, const char *sysfs_root,
			       struct error *error)
{
	struct node_reader *reader = calloc(1, sizeof *reader);
	if (!reader)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read this machine's load");
	snprintf(reader->sysfs_root, sizeof reader->sysfs_root, "%s", sysfs_root);
	sensor_init(&reader->load);
	sensor_init(&reader->disks);
	sensor_init(&reader->network);
	for (int i = 0; i < BATTERIES; i++) {
		sensor_init(&reader->batteries[i].capacity);
		sensor_init(&reader->batteries[i].status);
	}
	sensor_open(&reader->load, "%s/loadavg", proc_root);
	sensor_open(&reader->disks, "%s/diskstats", proc_root);
	sensor_open(&reader->network, "%s/net/dev", proc_root);
	*out = reader;
	return STATUS_OK;
}

static void close_batteries(struct node_reader *reader)
{
	for (int i = 0; i < BATTERIES; i++) {
		sensor_finish(&reader->batteries[i].capacity);
		sensor_finish(&reader->batteries[i].status);
	}
	reader->battery_count = 0;
}

void node_reader_destroy(struct node_reader **reader)
{
	if (!*reader)
		return;
	close_batteries(*reader);
	sensor_finish(&(*reader)->load);
	sensor_finish(&(*reader)->disks);
	sensor_finish(&(*reader)->network);
	free(*reader);
	*reader = NULL;
}

// The kernel's name of a disk with a '/' in it has a '!' in sysfs; such disks are old RAID controllers' and left out.
static bool whole_disk(const struct node_reader *reader, const char *name)
{
	static const char *const others[] = {"loop", "ram", "zram", "dm-", "md", "sr", "fd"};
	unsigned a, b, c;
	char end;
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		if (strncmp(name, others[i], strlen(others[i])) == 0)
			return false;
	if (sscanf(name, "nvme%uc%un%u%c", &a, &b, &c, &end) == 3) // one path of several to a disk that counts itself
		return false;
	return !strchr(name, '/') && sensor_exists("%s/block/%s", reader->sysfs_root, name);
}

static bool sum_disks(struct node_reader *reader, uint64_t *read_bytes, uint64_t *written_bytes)
{
	bool known = false;
	if (sensor_read(&reader->disks, reader->table, sizeof reader->table) < 0)
		return false;
	*read_bytes = *written_bytes = 0;
	for (char *line = reader->table, *next; line && *line; line = next) {
		char name[NAME_BYTES];
		uint64_t read_sectors, written_sectors;
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		// major minor name, reads merged sectors ms, writes merged sectors ms, …
		if (sscanf(line, "%*u %*u %63s %*u %*u %" SCNu64 " %*u %*u %*u %" SCNu64, name, &read_sectors,
			   &written_sectors) != 3 ||
		    !whole_disk(reader, name))
			continue;
		*read_bytes += read_sectors * SECTOR_BYTES; // sectors of 512 bytes, whatever the disk's own are
		*written_bytes += written_sectors * SECTOR_BYTES;
		known = true;
	}
	return known;
}

struct traffic {
	bool known;
	uint64_t rx, tx;
};

static bool sum_network(struct node_reader *reader, struct traffic *sum)
{
	struct traffic hardware = {0}, all = {0};
	if (sensor_read(&reader->network, reader->table, sizeof reader->table) < 0)
		return false;
	for (char *line = reader->table, *next; line && *line; line = next) {
		uint64_t rx, tx;
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		char *colon = strchr(line, ':'); // the two lines of headings have none
		if (!colon)
			continue;
		*colon++ = 0;
		const char *name = line + strspn(line, " ");
		if (strcmp(name, "lo") == 0 ||
		    sscanf(colon, "%" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &rx, &tx) != 2)
			continue;
		all = (struct traffic){true, all.rx + rx, all.tx + tx};
		if (sensor_exists("%s/class/net/%s/device", reader->sysfs_root, name))
			hardware = (struct traffic){true, hardware.rx + rx, hardware.tx + tx};
	}
	*sum = hardware.known ? hardware : all;
	return sum->known;
}

static bool visit_supply(void *context, const char *name)
{
	struct node_reader *reader = context;
	char folder[SENSOR_PATH_BYTES], text[32];
	int64_t full;
	snprintf(folder, sizeof folder, "%s/class/power_supply/%s", reader->sysfs_root, name);
	if (!sensor_once_text(text, sizeof text, "%.400s/type", folder) || strcmp(text, "Battery") != 0)
		return true;
	// Scope "Device" is the battery of a mouse or headset.
	if (sensor_once_text(text, sizeof text, "%.400s/scope", folder) && strcmp(text, "Device") == 0)
		return true;
	struct battery *battery = &reader->batteries[reader->battery_count];
	if (!sensor_open(&battery->capacity, "%.400s/capacity", folder))
		return true;
	sensor_open(&battery->status, "%.400s/status", folder);
	battery->weight = 1;
	if (sensor_once_integer(&full, "%.400s/energy_full", folder) && full > 0)
		battery->weight = (double)full;
	return ++reader->battery_count < BATTERIES;
}

// Batteries can be swapped, so they are looked for again now and then.
static void find_batteries(struct node_reader *reader, int64_t now_ns)
{
	char folder[SENSOR_PATH_BYTES];
	if (reader->scanned && now_ns - reader->scanned_ns < BATTERY_SCAN_S * INT64_C(1000000000))
		return;
	reader->scanned = true;
	reader->scanned_ns = now_ns;
	close_batteries(reader);
	snprintf(folder, sizeof folder, "%s/class/power_supply", reader->sysfs_root);
	sensor_list(folder, "", visit_supply, reader);
}

// `charging` is "runs on mains": a full battery, or one held at a threshold, is not running down.
static void add_battery(struct node_reader *reader, struct json *object)
{
	double weights = 0, sum = 0;
	int discharging = 0, charging = 0;
	for (int i = 0; i < reader->battery_count; i++) {
		struct battery *battery = &reader->batteries[i];
		int64_t percent;
		char status[32];
		if (sensor_integer(&battery->capacity, &percent) && percent >= 0 && percent <= 100) {
			sum += (double)percent * battery->weight;
			weights += battery->weight;
		}
		if (!sensor_text(&battery->status, status, sizeof status))
			continue;
		discharging += strcmp(status, "Discharging") == 0;
		charging += strcmp(status, "Charging") == 0 || strcmp(status, "Full") == 0 ||
			    strcmp(status, "Not charging") == 0;
	}
	sample_set_json(object, "battery_percent", weights > 0, weights > 0 ? sum / weights : 0, 1);
	if (discharging || charging)
		json_set_bool(object, "charging", !discharging);
	else
		json_set_null(object, "charging");
	json_set_null(object, "visible"); // these two are a browser tab's
	json_set_null(object, "pressure");
}

static void add_rate(struct json *object, const char *name, bool known, struct rate *rate, uint64_t count,
		     int64_t now_ns)
{
	double per_s = 0;
	if (!known)
		*rate = (struct rate){0};
	else
		known = rate_per_s(rate, count, 0, now_ns, &per_s);
	sample_set_json(object, name, known && per_s < 1e13, per_s, 0);
}

static void add_load(struct node_reader *reader, struct json *object)
{
	char text[SENSOR_TEXT_BYTES], *end = text;
	double load = 0;
	bool known = sensor_text(&reader->load, text, sizeof text);
	if (known) {
		load = strtod(text, &end);
		known = end != text && load >= 0 && load < 1e6;
	}
	sample_set_json(object, "load_1m", known, load, 2);
}

struct json *node_reader_read(struct node_reader *reader, const struct host_sample *host, const char *node_id,
			      int64_t now_ns, int64_t wall_ms)
{
	char at[CLOCK_TEXT_BYTES];
	uint64_t read_bytes = 0, written_bytes = 0;
	struct traffic traffic = {0};
	struct json *object = json_new_object();
	json_set_string(object, "node_id", node_id);
	json_set_string(object, "at", clock_format(wall_ms, at));
	sample_set_json(object, "cpu_percent", host->cpu_known, host->cpu_percent, 1);
	sample_set_json(object, "memory_total_bytes", host->memory_total >= 0, (double)host->memory_total, -1);
	sample_set_json(object, "memory_available_bytes", host->memory_available >= 0, (double)host->memory_available,
			-1);
	sample_set_json(object, "swap_total_bytes", host->swap_total >= 0, (double)host->swap_total, -1);
	sample_set_json(object, "swap_used_bytes", host->swap_used >= 0, (double)host->swap_used, -1);
	add_load(reader, object);
	bool disks = sum_disks(reader, &read_bytes, &written_bytes);
	add_rate(object, "disk_read_bytes_per_s", disks, &reader->disk_read, read_bytes, now_ns);
	add_rate(object, "disk_write_bytes_per_s", disks, &reader->disk_write, written_bytes, now_ns);
	bool network = sum_network(reader, &traffic);
	add_rate(object, "network_rx_bytes_per_s", network, &reader->network_rx, traffic.rx, now_ns);
	add_rate(object, "network_tx_bytes_per_s", network, &reader->network_tx, traffic.tx, now_ns);
	find_batteries(reader, now_ns);
	add_battery(reader, object);
	return object;
}
