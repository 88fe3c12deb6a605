/* The devices of this node: the findings of every API, merged, with verification and measurements. A
 * record is one piece of hardware with a slot for each API that sees it. Findings arrive one back end at
 * a time, in any order. A known record (from the registry or another API) is recognised by the rules of
 * identity.h and keeps its id. Records are never removed: hardware that is gone stays with present:
 * false. Thread: the node's loop. The table owns its records; pointers to them are valid as long as the
 * table. */
#pragma once
#include "engine/device/identity.h"

enum verification_state { VERIFICATION_UNKNOWN, VERIFICATION_PENDING, VERIFICATION_PASSED, VERIFICATION_FAILED };

struct verification {
	enum verification_state state;
	int64_t at_ms;      // wall clock; 0: never
	double duration_ms; // negative: not told
	char error[704];
};

// A device as one API describes it.
struct device_api {
	bool known;      // info holds something, from now or from before
	bool listed;     // the API lists the device, as far as we know
	bool seen;       // by the enumeration that is being taken in
	bool unlistable; // its API could not be listed; to be verified again once it can
	bool verifying;
	bool compiled; // the kernels for models, since this process began; a failure is not tried again
	struct device_info info;
	struct verification verification;
};

// Memory bandwidth, and the API and driver it was measured with: it is valid while those are unchanged.
struct bandwidth {
	double bytes_per_s; // 0: not measured
	enum backend_kind backend;
	char model[INFO_NAME_BYTES], driver_version[INFO_VERSION_BYTES];
	bool tried; // since this process began; a failure is not tried again and again
};

struct device_record {
	char device_id[IDENTITY_ID_BYTES], hardware_key[INFO_KEY_BYTES];
	struct device_api apis[BACKEND_COUNT];
	struct bandwidth bandwidth;
	struct device_peer *peers; // (peer_count) figures of the peers that were measured or tried; peers.h
	size_t peer_count;
};

struct device_table {
	char node_id[IDENTITY_ID_BYTES];
	struct device_record **records; // (count)
	size_t count;
	bool answered[BACKEND_COUNT]; // has this back end been heard since the process began
};

// Errors: STATUS_OUT_OF_MEMORY.
enum status device_table_create(struct device_table **out, const char *node_id);
void device_table_destroy(struct device_table **table);
struct device_record *device_table_find(struct device_table *table, const char *device_id);
// A new record; its id is made from the key. Errors: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status device_table_add(struct device_table *table, const char *hardware_key, struct device_record **out);

// Take in the devices that `kind` lists now: new ones are added, known ones are updated, and those that are missing
// count as unlisted. A device whose description changed will be verified again. True if anything changed.
bool device_table_found(struct device_table *table, enum backend_kind kind, const struct device_info *infos,
			size_t count);
// The enumeration of `kind` failed: what it listed before counts as failed, with the reason.
void device_table_backend_failed(struct device_table *table, enum backend_kind kind, const char *reason);
// `kind` is not to be used: its slots are unlisted.
void device_table_backend_disabled(struct device_table *table, enum backend_kind kind);

// The outcome of a verification. `error` NULL or "" means passed.
void device_record_verified(struct device_record *record, enum backend_kind kind, double duration_ms,
			    const char *error);
// Whether this API of the device waits to be verified and no worker verifies it yet.
bool device_record_needs_verify(const struct device_table *table, const struct device_record *record,
				enum backend_kind kind);
// Ask for a new verification through every API that lists the device.
void device_record_verify_again(struct device_record *record);
// The API in use: the first in order of preference that has not failed; if all have, the first. BACKEND_UNKNOWN only
// for a record without any.
enum backend_kind device_record_backend(const struct device_record *record);
bool device_record_present(const struct device_record *record);
// Whether the bandwidth is to be measured: through the API in use, once it has passed.
bool device_record_needs_measure(const struct device_record *record);
// Whether the kernels for models have yet to be compiled for it: through the API in use, once it has been measured.
bool device_record_needs_compile(const struct device_record *record);
void device_record_measured(struct device_record *record, double bytes_per_s);

// ReportedDevice of schema/node.json.
struct json *device_record_report(const struct device_record *record);
struct json *device_table_report(const struct device_table *table);
