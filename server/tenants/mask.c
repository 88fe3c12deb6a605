/* What who is no admin sees of others' allocations: device, bytes and since when, which is what the page and sums need.
 * Allocation and session have ids of their own here, the same in the snapshot and in events, so that what comes and
 * goes together is seen together; whose they are is not told. See inside.h.
 *
 * Inside, an event has records as an admin sees them, and `freed` as [{"id", "token_id"}]. */
#include "server/tenants/inside.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

enum { MASKED_BYTES = 12 };

// "other_" and the beginning of SHA-256 over the key and the id: the key is one block's half and never leaves, and no
// more than the beginning is shown.
static void set_masked(const struct tenancy *tenants, struct json *record, const char *name)
{
	char text[STORE_ID_BYTES];
	uint8_t given[sizeof tenants->mask_key + STORE_ID_BYTES] = {0}, digest[EVP_MAX_MD_SIZE] = {0};
	memcpy(given, tenants->mask_key, sizeof tenants->mask_key);
	snprintf((char *)given + sizeof tenants->mask_key, STORE_ID_BYTES, "%s", json_get_string(record, name, ""));
	EVP_Digest(given, sizeof given, digest, NULL, EVP_sha256(), NULL);
	int length = snprintf(text, sizeof text, "other_");
	for (int i = 0; i < MASKED_BYTES; i++)
		length += snprintf(text + length, sizeof text - (size_t)length, "%02x", digest[i]);
	json_set_string(record, name, text);
}

static bool is_own(const struct json *record, const char *token_id)
{
	return token_id[0] && !strcmp(json_get_string(record, "token_id", ""), token_id);
}

void mask_others(const struct tenancy *tenants, struct json *allocations, const char *token_id)
{
	for (const struct json *one = json_first(allocations); one; one = json_next(one)) {
		struct json *record = (struct json *)one;
		if (is_own(record, token_id))
			continue;
		set_masked(tenants, record, "allocation_id");
		set_masked(tenants, record, "session_id");
		json_set_null(record, "token_id");
		json_set_string(record, "holder", "another token");
		json_set_null(record, "label");
	}
}

static bool concerns(const struct json *data, const char *token_id)
{
	static const char *const lists[] = {"allocations", "freed"};
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		for (const struct json *one = json_first(json_get(data, lists[i])); one; one = json_next(one))
			if (is_own(one, token_id))
				return true;
	return false;
}

static struct json *see(void *context, const struct json *data, const char *token_id)
{
	const struct tenancy *tenants = context;
	struct json *seen = json_copy(data), *freed = json_new_array();
	if (token_id)
		mask_others(tenants, (struct json *)json_get(seen, "allocations"), token_id);
	for (const struct json *one = json_first(json_get(seen, "freed")); one; one = json_next(one)) {
		if (token_id && !is_own(one, token_id))
			set_masked(tenants, (struct json *)one, "id");
		json_push(freed, json_new_string(json_get_string(one, "id", "")));
	}
	json_set(seen, "freed", freed);
	return seen;
}

enum status mask_begin(struct tenancy *tenants)
{
	tenants->view = (struct event_view){.see = see, .concerns = concerns, .context = tenants};
	return RAND_bytes(tenants->mask_key, sizeof tenants->mask_key) == 1 ? STATUS_OK : STATUS_UNAVAILABLE;
}
