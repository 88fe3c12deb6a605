/* The node's connection to its server: dial, register, report, answer; and dial again when it breaks.
 *
 * The server's data directory has a Unix socket; the node dials it, so the server never has to find a node. After a
 * break it dials again with a pause that doubles from 0.1 s to 2 s; when the server stays away for 30 s, or says that
 * it stops, the node is told to end. Nothing is queued while there is no server: what counts is sent anew on
 * connecting. A node that has not met its server yet waits for it, and says so every 30 s; one whose parent has ended
 * gives up after the first 30 s, since that was the server that started it. Thread: the loop's. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"
#include "common/wire/contract.h"

struct uplink;

struct uplink_params {
	struct net_loop *loop;
	const struct contract *contract;    // CONTRACT_NODE
	const char *socket_path;            // copied
	struct json *(*record)(void *arg);  // NodeRecord, made anew
	struct json *(*devices)(void *arg); // array of ReportedDevice
	void (*watched)(void *arg, bool watched);
	enum status (*verify)(void *arg, const char *device_id, struct error *error);
	void (*gone)(void *arg, const char *why); // the server stopped, refused the node, or stayed away
	void *arg;
};

enum status uplink_create(struct uplink **out, const struct uplink_params *params, struct error *error);
void uplink_destroy(struct uplink **uplink); // after the loop's connections are closed
// Say goodbye: `gone` follows when the connection is closed, at once if there is none.
void uplink_close(struct uplink *uplink);
// The record or the devices changed: sent soon, several changes at once; nothing while there is no connection.
void uplink_send_record(struct uplink *uplink);
void uplink_send_devices(struct uplink *uplink);
// node.telemetry; `telemetry` is taken. Left out when the server is slow to take what is there already.
void uplink_send_telemetry(struct uplink *uplink, struct json *telemetry);
