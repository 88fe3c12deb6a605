/* How fast this node's devices copy to those that their driver calls
 * peers: the figure of each direction, and which to measure next. The
 * record of the source device has the figure, under the hardware key of
 * the target. A figure is valid until the driver or the device changes, or
 * until a person has the device verified again. Devices that are not peers
 * are not measured: their copies use host memory, which every device
 * shares, so a figure of a quiet machine promises nothing. Thread: the
 * node's loop. */
#pragma once
#include "engine/device/table.h"

enum { PEERS_TRIES = 6, PEERS_AGAIN_MS = 600000 };

struct device_peer {
	char hardware_key[INFO_KEY_BYTES]; // of the other
	double bytes_per_s;                // 0: not measured
	bool direct;                       // the copies that were measured went over the peers' link
	int64_t at_ms;                     // wall clock
	char model[INFO_NAME_BYTES], driver_version[INFO_VERSION_BYTES];
	char reason[256];    // why there is no figure; "": nobody has tried yet
	bool wanted;         // though there is one
	unsigned tries;      // that failed, since the process began, or since a person asked
	int64_t retry_at_ms; // steady clock; 0: at once
};

// Two devices whose copies are to be measured through `kind`, in at least one direction.
struct device_pair {
	struct device_record *a, *b;
	enum backend_kind kind;
};

// The next of them. False: none now; *later says whether some wait for the time of another try.
bool device_peers_next(const struct device_table *table, int64_t now_ms, struct device_pair *pair, bool *later);
// Note the reason why the pairs of this back end cannot be measured now. True: the reason is new.
bool device_peers_wait(const struct device_table *table, enum backend_kind kind, const char *reason, int64_t now_ms);
// Store the result of one direction: a rate above 0, or the reason why there is none. A failed measurement is repeated
// after PEERS_AGAIN_MS, PEERS_TRIES times in all.
void device_peers_measured(struct device_record *from, const struct device_record *to, double bytes_per_s, bool direct);
void device_peers_failed(struct device_record *from, const struct device_record *to, const char *reason,
			 int64_t now_ms);
// Have all its directions measured again, those to it as well.
void device_peers_again(const struct device_table *table, struct device_record *record);

// PeerSpeeds of schema/node.json, of each device that has peers or had them.
struct json *device_peers_report(const struct device_table *table);
// The figures as JSON for the registry; NULL: there are none to keep.
struct json *device_peers_print(const struct device_record *record);
void device_peers_read(struct device_record *record, const struct json *array);
void device_peers_finish(struct device_record *record);
