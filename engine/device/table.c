/* See table.h. report.c makes ReportedDevice from a record. */
#include "engine/device/table.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "engine/device/peers.h"

#include <stdlib.h>
#include <string.h>

enum status device_table_create(struct device_table **out, const char *node_id)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return STATUS_OUT_OF_MEMORY;
	text_copy((*out)->node_id, sizeof((*out)->node_id), node_id);
	return STATUS_OK;
}

void device_table_destroy(struct device_table **table)
{
	if (!*table)
		return;
	for (size_t i = 0; i < (*table)->count; i++) {
		device_peers_finish((*table)->records[i]);
		free((*table)->records[i]);
	}
	free((*table)->records);
	free(*table);
	*table = NULL;
}

struct device_record *device_table_find(struct device_table *table, const char *device_id)
{
	for (size_t i = 0; i < table->count; i++)
		if (!strcmp(table->records[i]->device_id, device_id))
			return table->records[i];
	return NULL;
}

enum status device_table_add(struct device_table *table, const char *hardware_key, struct device_record **out)
{
	*out = NULL;
	if (table->count == LIMIT_DEVICES_PER_NODE)
		return STATUS_LIMIT_EXCEEDED;
	struct device_record **records = realloc(table->records, (table->count + 1) * sizeof(struct device_record *));
	if (!records)
		return STATUS_OUT_OF_MEMORY;
	table->records = records;
	struct device_record *record = calloc(1, sizeof(*record));
	if (!record)
		return STATUS_OUT_OF_MEMORY;
	text_copy(record->hardware_key, sizeof(record->hardware_key), hardware_key);
	identity_device_id(record->device_id, table->node_id, hardware_key);
	table->records[table->count++] = *out = record;
	return STATUS_OK;
}

// The record of the device that `info` describes: by its key first, then by its place on the bus.
static struct device_record *recognise(struct device_table *table, const struct device_info *info)
{
	for (size_t i = 0; i < table->count; i++) {
		struct device_record *record = table->records[i];
		if (!strcmp(record->hardware_key, info->hardware_key))
			return record;
		for (int kind = 0; kind < BACKEND_COUNT; kind++)
			if (record->apis[kind].known &&
			    !strcmp(record->apis[kind].info.hardware_key, info->hardware_key))
				return record;
	}
	for (size_t i = 0; i < table->count; i++) {
		struct device_record *record = table->records[i];
		for (int kind = 0; kind < BACKEND_COUNT; kind++)
			if (record->apis[kind].known && !record->apis[info->backend].seen &&
			    identity_same(&record->apis[kind].info, info))
				return record;
	}
	return NULL;
}

static bool described_alike(const struct device_info *a, const struct device_info *b)
{
	return !strcmp(a->hardware_key, b->hardware_key) && !strcmp(a->model, b->model) &&
	       !strcmp(a->driver_version, b->driver_version) && !strcmp(a->api_version, b->api_version) &&
	       a->memory_bytes == b->memory_bytes && a->support == b->support;
}

// An API that cannot be used needs no verification.
static void begin_verification(struct device_api *api)
{
	api->verification = (struct verification){.state = VERIFICATION_PENDING, .duration_ms = -1};
	if (api->info.support == SUPPORT_UNSUPPORTED) {
		api->verification.state = VERIFICATION_FAILED;
		api->verification.at_ms = clock_wall_ms();
		text_copy(api->verification.error, sizeof(api->verification.error), api->info.support_reason);
	}
}

static bool take_in(struct device_table *table, const struct device_info *info)
{
	struct device_record *record = recognise(table, info);
	if (record && record->apis[info->backend].seen)
		return false; // a second driver of the same API for the same device: the first is used
	if (!record && device_table_add(table, info->hardware_key, &record))
		return false;
	struct device_api *api = &record->apis[info->backend];
	bool changed = !api->known || !api->listed || api->unlistable || !described_alike(&api->info, info);
	api->unlistable = false;
	api->known = api->listed = api->seen = true;
	api->info = *info;
	if (changed)
		begin_verification(api);
	return changed;
}

bool device_table_found(struct device_table *table, enum backend_kind kind, const struct device_info *infos,
			size_t count)
{
	bool changed = !table->answered[kind];
	for (size_t i = 0; i < table->count; i++)
		table->records[i]->apis[kind].seen = false;
	for (size_t i = 0; i < count; i++)
		if (infos[i].backend == kind && infos[i].hardware_key[0])
			changed |= take_in(table, &infos[i]);
	for (size_t i = 0; i < table->count; i++) {
		struct device_api *api = &table->records[i]->apis[kind];
		changed |= api->listed && !api->seen;
		api->listed = api->seen;
	}
	table->answered[kind] = true;
	return changed;
}

void device_table_backend_failed(struct device_table *table, enum backend_kind kind, const char *reason)
{
	for (size_t i = 0; i < table->count; i++)
		if (table->records[i]->apis[kind].listed) {
			device_record_verified(table->records[i], kind, -1, reason);
			table->records[i]->apis[kind].unlistable = true;
		}
	table->answered[kind] = true;
}

void device_table_backend_disabled(struct device_table *table, enum backend_kind kind)
{
	for (size_t i = 0; i < table->count; i++)
		table->records[i]->apis[kind].listed = false;
	table->answered[kind] = true;
}

void device_record_verified(struct device_record *record, enum backend_kind kind, double duration_ms, const char *error)
{
	struct verification *verification = &record->apis[kind].verification;
	bool failed = error && error[0];
	*verification = (struct verification){.state = failed ? VERIFICATION_FAILED : VERIFICATION_PASSED,
					      .at_ms = clock_wall_ms(),
					      .duration_ms = duration_ms};
	if (failed)
		text_copy(verification->error, sizeof(verification->error), error);
}

bool device_record_needs_verify(const struct device_table *table, const struct device_record *record,
				enum backend_kind kind)
{
	const struct device_api *api = &record->apis[kind];
	return table->answered[kind] && api->listed && !api->verifying &&
	       api->verification.state == VERIFICATION_PENDING;
}

void device_record_verify_again(struct device_record *record)
{
	for (int kind = 0; kind < BACKEND_COUNT; kind++)
		if (record->apis[kind].listed)
			begin_verification(&record->apis[kind]);
	record->bandwidth.tried = false;
}

bool device_record_present(const struct device_record *record)
{
	for (int kind = 0; kind < BACKEND_COUNT; kind++)
		if (record->apis[kind].listed)
			return true;
	return false;
}

enum backend_kind device_record_backend(const struct device_record *record)
{
	enum backend_kind first = BACKEND_UNKNOWN;
	bool present = device_record_present(record);
	for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++) { // in the order of preference
		const struct device_api *api = &record->apis[kind];
		if (present ? !api->listed : !api->known)
			continue;
		if (api->verification.state != VERIFICATION_FAILED)
			return (enum backend_kind)kind;
		first = first ? first : (enum backend_kind)kind;
	}
	return first;
}

bool device_record_needs_measure(const struct device_record *record)
{
	enum backend_kind kind = device_record_backend(record);
	const struct device_api *api = &record->apis[kind];
	const struct bandwidth *known = &record->bandwidth;
	if (!kind || !api->listed || api->verifying || api->verification.state != VERIFICATION_PASSED || known->tried)
		return false;
	return known->bytes_per_s <= 0 || known->backend != kind || strcmp(known->model, api->info.model) ||
	       strcmp(known->driver_version, api->info.driver_version);
}

bool device_record_needs_compile(const struct device_record *record)
{
	enum backend_kind kind = device_record_backend(record);
	const struct device_api *api = &record->apis[kind];
	return kind && api->listed && !api->compiled && api->verification.state == VERIFICATION_PASSED &&
	       !device_record_needs_measure(record);
}

void device_record_measured(struct device_record *record, double bytes_per_s)
{
	enum backend_kind kind = device_record_backend(record);
	const struct device_info *info = &record->apis[kind].info;
	record->bandwidth = (struct bandwidth){.bytes_per_s = bytes_per_s, .backend = kind, .tried = true};
	text_copy(record->bandwidth.model, sizeof(record->bandwidth.model), info->model);
	text_copy(record->bandwidth.driver_version, sizeof(record->bandwidth.driver_version), info->driver_version);
}
