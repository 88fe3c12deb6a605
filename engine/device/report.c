/* A device's record for the server: ReportedDevice of schema/node.json. The API in use
 * describes the device; another API may add what it lacks (compute units, memory budget). If a
 * better API has failed and a lesser one works, support is partial and the reason says which
 * and why. */
#include "common/base/clock.h"
#include "engine/device/table.h"

#include <stdio.h>
#include <string.h>

static const char *verification_name(enum verification_state state)
{
	switch (state) {
	case VERIFICATION_PASSED:
		return "passed";
	case VERIFICATION_FAILED:
		return "failed";
	case VERIFICATION_UNKNOWN:
	case VERIFICATION_PENDING:
		break;
	}
	return "pending";
}

static struct json *report_verification(const struct verification *verification)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object();
	json_set_string(json, "state", verification_name(verification->state));
	json_set_string(json, "at", verification->at_ms ? clock_format(verification->at_ms, at) : NULL);
	if (verification->state == VERIFICATION_PASSED && verification->duration_ms >= 0)
		json_set_number(json, "duration_ms", verification->duration_ms);
	else
		json_set_null(json, "duration_ms");
	json_set_maybe_text(json, "error", verification->error);
	return json;
}

static struct json *report_api(enum backend_kind kind, const struct device_api *api)
{
	struct json *json = json_new_object();
	json_set_string(json, "backend", backend_kind_name(kind));
	json_set_maybe_text(json, "api_version", api->info.api_version);
	json_set_maybe_text(json, "driver_version", api->info.driver_version);
	json_set(json, "verification", report_verification(&api->verification));
	return json;
}

static bool counts(const struct device_record *record, bool present, int kind)
{
	return present ? record->apis[kind].listed : record->apis[kind].known;
}

static struct json *report_apis(const struct device_record *record, enum backend_kind used, bool present)
{
	struct json *apis = json_new_array();
	json_push(apis, report_api(used, &record->apis[used]));
	for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++)
		if (kind != (int)used && counts(record, present, kind))
			json_push(apis, report_api((enum backend_kind)kind, &record->apis[kind]));
	return apis;
}

// The info of the API in use, with what only others tell.
static void combine(const struct device_record *record, enum backend_kind used, bool present, struct device_info *info)
{
	*info = record->apis[used].info;
	for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++) {
		const struct device_info *other = &record->apis[kind].info;
		if (!counts(record, present, kind))
			continue;
		if (!info->family[0])
			text_copy(info->family, sizeof(info->family), other->family);
		if (!info->uuid[0])
			text_copy(info->uuid, sizeof(info->uuid), other->uuid);
		if (!info->pci_address[0])
			text_copy(info->pci_address, sizeof(info->pci_address), other->pci_address);
		info->memory_bytes = info->memory_bytes < 0 ? other->memory_bytes : info->memory_bytes;
		info->memory_budget_bytes = info->memory_budget_bytes < 0 ? other->memory_budget_bytes
									  : info->memory_budget_bytes;
		info->compute_units = info->compute_units < 0 ? other->compute_units : info->compute_units;
		info->removable |= other->removable;
	}
}

// Failed altogether: unsupported. A better API failed: partial. Otherwise what the API in use says.
static void judge(const struct device_record *record, enum backend_kind used, bool present, struct device_info *info)
{
	const struct verification *verification = &record->apis[used].verification;
	if (verification->state == VERIFICATION_FAILED) {
		info->support = SUPPORT_UNSUPPORTED;
		text_copy(info->support_reason, sizeof(info->support_reason), verification->error);
		return;
	}
	for (int kind = BACKEND_UNKNOWN + 1; kind < (int)used; kind++) {
		if (!counts(record, present, kind) || info->support != SUPPORT_FULL)
			continue;
		info->support = SUPPORT_PARTIAL;
		snprintf(info->support_reason, sizeof(info->support_reason),
			 "used through %s; %s cannot be used: %.300s", backend_kind_title(used),
			 backend_kind_title((enum backend_kind)kind), record->apis[kind].verification.error);
	}
}

struct json *device_record_report(const struct device_record *record)
{
	bool present = device_record_present(record);
	enum backend_kind used = device_record_backend(record);
	const struct device_api *api = &record->apis[used];
	struct device_info info;
	combine(record, used, present, &info);
	judge(record, used, present, &info);
	struct json *json = device_info_to_json(&info);
	json_remove(json, "index");
	json_set_string(json, "hardware_key", record->hardware_key);
	json_set_string(json, "device_id", record->device_id);
	json_set(json, "apis", report_apis(record, used, present));
	if (record->bandwidth.bytes_per_s > 0)
		json_set_number(json, "memory_bandwidth_bytes_per_s", record->bandwidth.bytes_per_s);
	else
		json_set_null(json, "memory_bandwidth_bytes_per_s");
	json_set(json, "verification", report_verification(&api->verification));
	json_set_bool(json, "present", present);
	return json;
}

struct json *device_table_report(const struct device_table *table)
{
	struct json *devices = json_new_array();
	for (size_t i = 0; i < table->count; i++)
		if (device_record_backend(table->records[i]))
			json_push(devices, device_record_report(table->records[i]));
	return devices;
}
