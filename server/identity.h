/* Who this server is: the cluster's id and name, which are stored, and the digest of the API that it was built with. */
#pragma once
#include "server/store/store.h"

struct identity {
	char cluster_id[40], cluster_name[80];
	char schema_sha256[65]; // of schema/api.json, in hexadecimal
};

// The id is made once; the name is the one given last, at first the host's. name: the operator's, now; may be NULL.
// What is new is on disk when this returns. Errors: the store's, STATUS_INTERNAL.
enum status identity_load(struct identity *identity, struct store *store, const char *name, struct error *error);
