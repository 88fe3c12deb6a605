/* The certificate that this node has: renewed at two thirds of its life, or when the server does not know it; and
 * whether other nodes may reach this one with it. See uplink.h. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "engine/node/uplink/uplink_inside.h"

#include <stdio.h>
#include <string.h>

enum {
	RENEW_LOOK_MS = 3600 * 1000, // at most between two looks at the clock, which may be set
	RENEW_AGAIN_MS = 600 * 1000,
};

static void renewed(void *context, enum status status, const struct json *result, const struct error *error);

static void renew_later(struct uplink *uplink, int64_t pause_ms)
{
	credentials_request_finish(&uplink->renewing);
	net_timer_start(uplink->params.loop, &uplink->renewal, pause_ms, uplink_look_at_age, uplink);
}

// When the certificate is to be renewed, on the wall clock.
static int64_t renewal_ms(const struct uplink *uplink)
{
	const struct credentials *credentials = uplink->params.credentials;
	if (uplink->anew)
		return 0;
	int64_t life_ms = credentials->not_after_ms - credentials->not_before_ms;
	return credentials->not_before_ms + life_ms / 3 * 2;
}

void uplink_look_at_age(void *arg)
{
	struct uplink *uplink = arg;
	struct error error = {0};
	int64_t left_ms = renewal_ms(uplink) - clock_wall_ms();
	if (left_ms > 0 || !uplink->registered || uplink->renewing.pem) {
		int64_t next_ms = left_ms > 0 && left_ms < RENEW_LOOK_MS ? left_ms : RENEW_LOOK_MS;
		net_timer_start(uplink->params.loop, &uplink->renewal, next_ms, uplink_look_at_age, uplink);
		return;
	}
	if (credentials_ask(uplink->params.credentials, false, &uplink->renewing, &error)) {
		log_error("node", "the certificate is not renewed: %s", error.message);
		renew_later(uplink, RENEW_AGAIN_MS);
		return;
	}
	struct json *params = json_new_object();
	json_set_string(params, "request", uplink->renewing.pem);
	if (uplink_ask(uplink, "node.renew", params, renewed))
		renew_later(uplink, RENEW_AGAIN_MS);
}

static void tell_reach(struct uplink *uplink)
{
	const bool good = uplink->reach[0] && uplink->params.credentials->joined && !uplink->anew;
	if (uplink->params.reachable && !uplink_remote(uplink))
		uplink->params.reachable(uplink->params.arg, good ? uplink->reach : NULL);
}

static void take_certificate(struct uplink *uplink, const struct json *granted)
{
	struct error error = {0};
	uint8_t authority_sha256[NET_SHA256_BYTES]; // copies, of the certificate that is replaced
	memcpy(authority_sha256, uplink->params.credentials->authority_sha256, sizeof authority_sha256);
	const struct credentials_grant grant = {.certificate = json_get_string(granted, "certificate", ""),
						.authority = json_get_string(granted, "authority", ""),
						.server_uri = json_get_string(granted, "server_uri", ""),
						.address = uplink_remote(uplink) ? uplink->address : "unix",
						.node_id = uplink->node_id,
						.authority_sha256 = uplink_remote(uplink) ? authority_sha256 : NULL,
						.key_pem = uplink->renewing.key_pem};
	const bool first = !uplink->params.credentials->joined;
	if (credentials_take(uplink->params.credentials, &grant, &error)) {
		log_error("node", "the new certificate is not taken: %s", error.message);
		renew_later(uplink, RENEW_AGAIN_MS);
		return;
	}
	log_info("node", first ? "the server has granted a certificate" : "the certificate was renewed");
	credentials_request_finish(&uplink->renewing);
	uplink->anew = false;
	tell_reach(uplink);
	uplink_look_at_age(uplink);
}

static void renewed(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct uplink *uplink = context;
	if (!status && uplink->renewing.pem)
		take_certificate(uplink, json_get(result, "grant"));
	if (!status)
		return;
	uplink_log_refused("a new certificate", error);
	// After a restart of the node it is too soon to ask again.
	renew_later(uplink, status == STATUS_RATE_LIMITED ? LIMIT_RENEW_MS : RENEW_AGAIN_MS);
}

void uplink_take_reach(struct uplink *uplink, const struct json *links)
{
	snprintf(uplink->reach, sizeof uplink->reach, "%s", json_get_string(links, "address", ""));
	uplink->anew = json_get_bool(links, "renew", false);
	tell_reach(uplink);
	if (uplink->reach[0])
		uplink_look_at_age(uplink);
}
