/* Fuzz target: the devices that a worker lists for its node, and what its driver says of each; the worker runs drivers,
 * and is believed nothing.
 *
 * Each line is the answer to worker.enumerate; its first byte says of which back end (`0` and on), or, `f`, that this
 * one failed, or, `d`, that it is not to be used. What the node then reports is as the contract has it, and a report is
 * the same once it was read back; devices of one hardware key are one. */
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "engine/device/table.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES = 16 };

static struct contract *contract;

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void check(const struct device_table *table)
{
	struct error error = {0};
	struct json *params = json_new_object();
	for (size_t i = 0; i < table->count; i++)
		for (size_t j = 0; j < i; j++)
			require(strcmp(table->records[i]->device_id, table->records[j]->device_id) != 0);
	json_set(params, "devices", device_table_report(table));
	require(!contract_check_params(contract, contract_find(contract, "node.devices"), params, &error));
	json_destroy(&params);
}

static void take(struct device_table *table, enum backend_kind kind, const struct json *result)
{
	struct found *found = found_create();
	require(found != NULL);
	for (const struct json *item = json_first(json_get(result, "devices")); item; item = json_next(item)) {
		struct device_info *info = found_add_device(found);
		if (!info)
			break;
		device_info_from_json(info, item);
	}
	for (const struct json *item = json_first(json_get(result, "libraries")); item; item = json_next(item)) {
		struct library_info *library = found_add_library(found);
		if (library)
			library_info_from_json(library, item);
	}
	device_table_found(table, kind, found->devices, found->device_count);
	require(!device_table_found(table, kind, found->devices, found->device_count)); // nothing new
	found_destroy(&found);
}

static void verify(struct device_table *table, enum backend_kind kind)
{
	for (size_t i = 0; i < table->count; i++)
		if (device_record_needs_verify(table, table->records[i], kind))
			device_record_verified(table->records[i], kind, 1, i % 2 ? "it computes wrong" : NULL);
}

static void hear(struct device_table *table, const char *line, size_t length)
{
	const enum backend_kind kind = (enum backend_kind)(BACKEND_UNKNOWN + 1 +
							   (unsigned char)line[0] % (BACKEND_COUNT - 1));
	const struct contract_method *method = contract_find(contract, "worker.enumerate");
	struct message message;
	if (line[0] == 'f') {
		device_table_backend_failed(table, BACKEND_VULKAN, "its driver ended the process");
	} else if (line[0] == 'd') {
		device_table_backend_disabled(table, BACKEND_VULKAN);
	} else {
		if (!message_decode_text(&message, line + 1, length - 1, NULL) && message.kind == MESSAGE_RESULT &&
		    !contract_check_result(contract, method, message.result, NULL))
			take(table, kind, message.result);
		message_finish(&message);
		verify(table, kind);
	}
	check(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct device_table *table = NULL;
	if (!contract)
		require(!contract_create(&contract, CONTRACT_NODE, NULL));
	require(!device_table_create(&table, "nod_1"));
	for (size_t at = 0, lines = 0; at < size && lines < LINES; lines++) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		const size_t length = end ? (size_t)(end - data) - at : size - at;
		if (length)
			hear(table, (const char *)data + at, length);
		at += length + 1;
	}
	device_table_destroy(&table);
	return 0;
}
