// Readings of the machine: disks, network, load and battery, from recorded trees.
#include "engine/telemetry/node.h"
#include "tests/engine/telemetry/tree.h"

static const int64_t second = 1000000000;
static const struct host_sample machine = {.cpu_known = true,
					   .cpu_percent = 7.123,
					   .memory_total = 4096,
					   .memory_available = 1024,
					   .swap_total = 0,
					   .swap_used = 0};
static struct node_reader *reader;

static int setup(void **state)
{
	struct error error = {0};
	char proc[96], sys[96];
	(void)state;
	tree_create();
	snprintf(proc, sizeof proc, "%s/proc", tree_root);
	snprintf(sys, sizeof sys, "%s/sys", tree_root);
	tree_write("proc/loadavg", "0.52 0.40 0.30 1/200 1234\n");
	tree_write("proc/diskstats", "");
	tree_write("proc/net/dev", "");
	return node_reader_create(&reader, proc, sys, &error) == STATUS_OK ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	node_reader_destroy(&reader);
	tree_destroy();
	return 0;
}

static struct json *read_at(int64_t seconds)
{
	struct json *json = node_reader_read(reader, &machine, "node", seconds * second, 1763700000000);
	assert_non_null(json);
	assert_int_equal(json_count(json), 16);
	return json;
}

static void check(int64_t seconds, const char *name, double expected)
{
	struct json *json = read_at(seconds);
	if (json_type(json_get(json, name)) != JSON_NUMBER)
		fail_msg("%s is absent, expected %g", name, expected);
	assert_close(json_get_number(json, name, -1), expected);
	json_destroy(&json);
}

static void check_absent(int64_t seconds, const char *name)
{
	struct json *json = read_at(seconds);
	if (json_type(json_get(json, name)) != JSON_NULL)
		fail_msg("%s is %g, expected absent", name, json_get_number(json, name, -1));
	json_destroy(&json);
}

static void test_host_and_load(void **state)
{
	(void)state;
	struct json *json = read_at(1);
	assert_string_equal(json_get_string(json, "node_id", ""), "node");
	assert_string_equal(json_get_string(json, "at", ""), "2025-11-21T04:40:00.000Z");
	assert_close(json_get_number(json, "cpu_percent", 0), 7.1);
	assert_int_equal(json_get_integer(json, "memory_total_bytes", 0), 4096);
	assert_int_equal(json_get_integer(json, "memory_available_bytes", 0), 1024);
	assert_int_equal(json_get_integer(json, "swap_total_bytes", -1), 0);
	assert_close(json_get_number(json, "load_1m", 0), 0.52);
	json_destroy(&json);
	tree_write("proc/loadavg", "-3 nonsense\n");
	check_absent(2, "load_1m");
	tree_write("proc/loadavg", "");
	check_absent(3, "load_1m");
}

static void test_whole_disks(void **state)
{
	(void)state;
	static const char *const blocks[] = {"sda/size",   "1", "nvme0n1/size", "1", "dm-0/size",      "1",
					     "loop0/size", "1", "zram0/size",   "1", "nvme1c0n1/size", "1",
					     NULL};
	tree_fill("sys/block", blocks);
	tree_write("proc/diskstats", "   8 0 sda 10 0 100 5 10 0 200 5 0 5 5\n");
	check_absent(1, "disk_read_bytes_per_s");
	// The partition, the mapper, the loop, the memory disk and the one path of several are not counted again.
	tree_write("proc/diskstats", "   8       0 sda 10 0 1100 5 10 0 400 5 0 5 5 0 0 0 0 0 0\n"
				     "   8       1 sda1 10 0 1100 5 10 0 400 5 0 5 5\n"
				     " 259       0 nvme0n1 1 0 1000 5 10 0 200 5 0 5 5\n"
				     " 253       0 dm-0 1 0 99999 5 10 0 99999 5 0 5 5\n"
				     " 259       3 nvme1c0n1 1 0 99999 5 10 0 99999 5 0 5 5\n"
				     "   7       0 loop0 1 0 99999 5 10 0 99999 5 0 5 5\n"
				     " 252       0 zram0 1 0 99999 5 10 0 99999 5 0 5 5\n"
				     "garbage\n");
	struct json *json = read_at(2);
	assert_close(json_get_number(json, "disk_read_bytes_per_s", -1), 2000 * 512);
	assert_close(json_get_number(json, "disk_write_bytes_per_s", -1), 400 * 512);
	json_destroy(&json);
	tree_write("proc/diskstats", "   8 0 sda 10 0 1100 5 10 0 400 5 0 5 5\n"); // a disk was taken out
	check_absent(3, "disk_read_bytes_per_s");
	check(4, "disk_read_bytes_per_s", 0);
	tree_write("proc/diskstats", "");
	check_absent(5, "disk_write_bytes_per_s");
}

static const char headings[] = "Inter-|   Receive                  |  Transmit\n"
			       " face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n";

static void write_network(const char *lines)
{
	char text[1024];
	snprintf(text, sizeof text, "%s%s", headings, lines);
	tree_write("proc/net/dev", text);
}

static void test_network_of_a_container(void **state)
{
	(void)state;
	write_network("    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n  eth0: 1000 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n");
	check_absent(11, "network_rx_bytes_per_s");
	write_network("    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n  eth0:4000 1 0 0 0 0 0 0 1500 1 0 0 0 0 0 0\n");
	struct json *json = read_at(13);
	assert_close(json_get_number(json, "network_rx_bytes_per_s", -1), 1500);
	assert_close(json_get_number(json, "network_tx_bytes_per_s", -1), 500);
	json_destroy(&json);
}

static void test_network_of_hardware(void **state)
{
	(void)state;
	tree_write("sys/class/net/eth0/device/vendor", "0x8086\n");
	write_network("  eth0: 0 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\ndocker0: 0 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n");
	check_absent(20, "network_tx_bytes_per_s"); // the sum went back
	write_network("  eth0: 100 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\ndocker0: 7777 1 0 0 0 0 0 0 7777 1 0 0 0 0 0 0\n");
	check(21, "network_rx_bytes_per_s", 100);
	tree_write("proc/net/dev", "garbage: x y z\n");
	check_absent(22, "network_rx_bytes_per_s");
}

static void test_battery(void **state)
{
	(void)state;
	static const char *const supplies[] = {
		"AC/type",       "Mains\n",       "AC/online",   "0\n",           "BAT0/type",        "Battery\n",
		"BAT0/capacity", "80\n",          "BAT0/status", "Discharging\n", "BAT0/energy_full", "30000000\n",
		"mouse/type",    "Battery\n",     "mouse/scope", "Device\n",      "mouse/capacity",   "5\n",
		"mouse/status",  "Discharging\n", NULL};
	check_absent(30, "battery_percent");
	check_absent(30, "charging");
	tree_fill("sys/class/power_supply", supplies);
	struct json *json = read_at(70); // looked for again after 30 s
	assert_close(json_get_number(json, "battery_percent", -1), 80);
	assert_int_equal(json_type(json_get(json, "charging")), JSON_BOOL);
	assert_false(json_get_bool(json, "charging", true));
	json_destroy(&json);
	tree_write("sys/class/power_supply/BAT0/status", "Not charging\n"); // held at a threshold: runs on mains
	json = read_at(71);
	assert_true(json_get_bool(json, "charging", false));
	json_destroy(&json);
	tree_write("sys/class/power_supply/BAT0/status", "Unknown\n");
	check_absent(72, "charging");
	tree_write("sys/class/power_supply/BAT0/capacity", "254\n");
	check_absent(73, "battery_percent");
}

static void test_two_batteries(void **state)
{
	(void)state;
	tree_write("sys/class/power_supply/BAT0/capacity", "80\n");
	tree_write("sys/class/power_supply/BAT0/status", "Charging\n");
	tree_write("sys/class/power_supply/BAT1/type", "Battery\n");
	tree_write("sys/class/power_supply/BAT1/capacity", "20\n");
	tree_write("sys/class/power_supply/BAT1/energy_full", "10000000\n");
	tree_write("sys/class/power_supply/BAT1/status", "Full\n");
	struct json *json = read_at(120);
	assert_close(json_get_number(json, "battery_percent", -1), 65);
	assert_true(json_get_bool(json, "charging", false));
	json_destroy(&json);
	tree_remove("sys/class/power_supply");
	check_absent(160, "battery_percent");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host_and_load),
		cmocka_unit_test(test_whole_disks),
		cmocka_unit_test(test_network_of_a_container),
		cmocka_unit_test(test_network_of_hardware),
		cmocka_unit_test(test_battery),
		cmocka_unit_test(test_two_batteries),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
