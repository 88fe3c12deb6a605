/* See identity.h. */
#include "server/identity.h"

#include "common/wire/contract.h"
#include "server/security/random_id.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum status hash_schema(struct identity *identity, struct error *error)
{
	size_t length;
	unsigned char digest[32];
	const char *text = contract_text(CONTRACT_API, &length);
	if (EVP_Digest(text, length, digest, NULL, EVP_sha256(), NULL) != 1)
		return error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(identity->schema_sha256 + 2 * i, 3, "%02x", digest[i]);
	return STATUS_OK;
}

enum status identity_load(struct identity *identity, struct store *store, const char *name, struct error *error)
{
	char host[65] = "exogpu";
	struct store_batch *batch = NULL;
	const char *stored = store_load_setting(store, "cluster_id");
	snprintf(identity->cluster_id, sizeof identity->cluster_id, "%s", stored ? stored : "");
	stored = store_load_setting(store, "cluster_name");
	if (gethostname(host, sizeof host - 1))
		snprintf(host, sizeof host, "exogpu");
	snprintf(identity->cluster_name, sizeof identity->cluster_name, "%s", name ? name : stored ? stored : host);
	const bool named = stored && !strcmp(stored, identity->cluster_name);
	enum status status = hash_schema(identity, error);
	if (status || (identity->cluster_id[0] && named))
		return status;
	status = store_batch_create(&batch);
	if (!status && !identity->cluster_id[0]) {
		status = random_id("clu_", identity->cluster_id, sizeof identity->cluster_id);
		if (!status)
			status = store_put_setting(batch, "cluster_id", identity->cluster_id);
	}
	if (!status)
		status = store_put_setting(batch, "cluster_name", identity->cluster_name);
	if (!status)
		return store_commit_wait(store, &batch, error);
	store_batch_destroy(&batch);
	return error_set(error, status, "the cluster's identity could not be stored");
}
