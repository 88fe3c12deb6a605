/* See presence.h. */
#include "common/net/mdns/presence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ID_DIGITS = 8, GPUS_MOST = 100000 };

enum key { KEY_TXTVERS, KEY_ID, KEY_CLUSTER, KEY_VER, KEY_ROLE, KEY_GPUS, KEY_FP, KEYS };

static const char *const keys[KEYS] = {"txtvers", "id", "cluster", "ver", "role", "gpus", "fp"};

void net_presence_fingerprint(const uint8_t sha256[32], char out[PRESENCE_FINGERPRINT_BYTES])
{
	for (size_t i = 0; i < (PRESENCE_FINGERPRINT_BYTES - 1) / 2; i++)
		snprintf(out + 2 * i, 3, "%02x", sha256[i]);
}

// ---- made ----

// A name for a person, cut where a letter of several bytes begins, so that the whole fits a label.
static void name_instance(char *out, size_t size, const char *name, const char *digits)
{
	size_t room = size - 1 - strlen(digits) - 3, length = strlen(name);
	if (length > room)
		for (length = room; length && ((unsigned char)name[length] & 0xc0) == 0x80;)
			length--;
	snprintf(out, size, "%.*s (%s)", (int)length, name, digits);
}

static void add_text(struct net_presence_service *out, enum key key, const char *value)
{
	size_t count = 0;
	while (out->service.txt[count])
		count++;
	if (!value[0])
		return;
	snprintf(out->texts[count], PRESENCE_TEXT_BYTES, "%s=%.64s", keys[key], value);
	out->service.txt[count] = out->texts[count];
}

// The name of the host is its own, so that it is nobody else's: a system's responder may speak for the machine's name
// at the same time.
void net_presence_print(const struct net_presence *presence, const char *name, int port,
			struct net_presence_service *out)
{
	const char *digits = strrchr(presence->id, '_');
	char short_id[ID_DIGITS + 1], gpus[16] = "";
	*out = (struct net_presence_service){0};
	snprintf(short_id, sizeof short_id, "%.8s", digits ? digits + 1 : presence->id);
	name_instance(out->instance, sizeof out->instance, name, short_id);
	snprintf(out->host, sizeof out->host, "exogpu-%s", short_id);
	out->service = (struct dnssd_service){
		.type = NET_PRESENCE_TYPE, .instance = out->instance, .host = out->host, .port = (uint16_t)port};
	if (presence->gpus >= 0)
		snprintf(gpus, sizeof gpus, "%d", presence->gpus);
	add_text(out, KEY_TXTVERS, "1");
	add_text(out, KEY_ID, presence->id);
	add_text(out, KEY_CLUSTER, presence->cluster_id);
	add_text(out, KEY_VER, presence->version);
	add_text(out, KEY_ROLE, presence->role);
	add_text(out, KEY_GPUS, gpus);
	add_text(out, KEY_FP, presence->fingerprint);
}

// ---- read ----

void net_presence_begin(struct net_presence *presence)
{
	memset(presence, 0, sizeof *presence); // two of them are compared as bytes
	presence->gpus = -1;
}

static enum key find_key(const char *text, size_t length)
{
	enum key key = 0;
	while (key < KEYS && (strlen(keys[key]) != length || strncasecmp(keys[key], text, length) != 0))
		key++;
	return key;
}

// Letters, digits and what stands in ids and versions: nothing that steers a terminal or a page.
static bool is_plain(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+:", text[i]) || !text[i])
			return false;
	return true;
}

static void take(struct net_presence *presence, char *to, size_t size, const char *value)
{
	if (strlen(value) < size)
		snprintf(to, size, "%s", value);
	else
		presence->damaged = true;
}

static void take_gpus(struct net_presence *presence, const char *value)
{
	char *end;
	long number = strtol(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end || number > GPUS_MOST)
		presence->damaged = true;
	else
		presence->gpus = (int)number;
}

void net_presence_read(struct net_presence *presence, const uint8_t *bytes, size_t length)
{
	const char *text = (const char *)bytes, *equals = memchr(text, '=', length);
	char value[256] = "";
	const size_t name = equals ? (size_t)(equals - text) : length, rest = equals ? length - name - 1 : 0;
	const enum key key = find_key(text, name);
	if (key == KEYS || presence->said & 1u << key)
		return;
	presence->said |= 1u << key;
	if (rest >= sizeof value || (rest && !is_plain(equals + 1, rest))) {
		presence->damaged = true;
		return;
	}
	snprintf(value, sizeof value, "%.*s", (int)rest, rest ? equals + 1 : "");
	switch (key) {
	case KEY_TXTVERS:
		presence->next = strcmp(value, "1") != 0;
		break;
	case KEY_ID:
		take(presence, presence->id, sizeof presence->id, value);
		break;
	case KEY_CLUSTER:
		take(presence, presence->cluster_id, sizeof presence->cluster_id, value);
		break;
	case KEY_VER:
		take(presence, presence->version, sizeof presence->version, value);
		break;
	case KEY_ROLE:
		take(presence, presence->role, sizeof presence->role, value);
		break;
	case KEY_GPUS:
		take_gpus(presence, value);
		break;
	case KEY_FP:
		take(presence, presence->fingerprint, sizeof presence->fingerprint, value);
		break;
	case KEYS:
		break;
	}
}

const char *net_presence_fault(const struct net_presence *presence)
{
	const bool server = !strcmp(presence->role, "server"), node = !strcmp(presence->role, "node");
	if (!presence->said)
		return "it has not described itself yet";
	if (presence->next)
		return "its announcement has another version: one of the two programs is older";
	if (presence->damaged || !(presence->said & 1u << KEY_TXTVERS))
		return "its announcement is damaged";
	if (!server && !node)
		return "it is neither a server nor a node";
	if (!presence->id[0] || !presence->version[0])
		return "it does not send its identity";
	if (!presence->cluster_id[0] != !presence->fingerprint[0] || (server && !presence->cluster_id[0]))
		return "it does not say of which cluster it is";
	return NULL;
}
