/* Workers of instances that outlive the server that started them. See tenants.h.
 *
 * A server that ends leaves them alone, one that is killed cannot end them: a node on another machine keeps them for
 * LIMIT_AWAY_MS (engine/node/workers/tenants.h). The next server knows them by what was stored: the id, the node, and
 * the SHA-256 of the key, 256 random bits that only the node has. So it puts them where one is whose node was cut off a
 * moment ago, and whoever comes as one of them shows the key as then, by a connection of that node's certificate. Those
 * that are not found there the node is told to end when it registers (tenancy_node_back). Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/tenants/inside.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Calls that this server makes have greater numbers than any that one before it made, to which answers may still come.
enum { CALLS_OF_EPOCH_BITS = 20, EPOCH_BITS = 32 };

static void did_not_come(void *arg)
{
	worker_lose(arg, "its node did not come back with it after the server was restarted");
}

enum status worker_restore(struct worker **out, struct tenant *tenant, const struct worker_start_params *params,
			   const struct instance_worker_left *left, struct error *error)
{
	struct tenancy *tenants = tenant->tenants;
	*out = NULL;
	if (!left->worker_id[0] || strlen(left->worker_id) >= TENANT_ID_BYTES || left->epoch >> EPOCH_BITS ||
	    worker_by_id(tenants, left->worker_id))
		return error_set(error, STATUS_INVALID_PARAMS, "there can be no worker %.64s", left->worker_id);
	struct worker *worker = calloc(1, sizeof(*worker));
	if (!worker)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*worker = (struct worker){.next = tenant->workers,
				  .tenants = tenants,
				  .tenant = tenant,
				  .opened = true,
				  .away = true,
				  .restored = true,
				  .asked_ms = clock_steady_ms()};
	worker->last_item = &worker->items;
	worker_calls_init(worker, (int64_t)(left->epoch << CALLS_OF_EPOCH_BITS));
	memcpy(worker->key_sha256, left->key_sha256, sizeof worker->key_sha256);
	snprintf(worker->worker_id, sizeof worker->worker_id, "%s", left->worker_id);
	snprintf(worker->node_id, sizeof worker->node_id, "%s", params->node_id);
	snprintf(worker->backend, sizeof worker->backend, "%s", params->backend);
	tenant->workers = worker;
	tenants->stats.workers++;
	net_timer_start(tenants->params.loop, &worker->start_limit, LIMIT_AWAY_MS, did_not_come, worker);
	*out = worker;
	return STATUS_OK;
}

void worker_leave(struct worker *worker)
{
	struct error fault = {0};
	worker->left = true;
	error_set(&fault, STATUS_UNAVAILABLE, "the server restarts");
	worker_end(worker, &(struct worker_end_params){.fault = &fault, .gone = true});
}

bool worker_knows_key(const struct worker *worker, const char *key)
{
	uint8_t digest[TENANT_SHA256_BYTES];
	if (strlen(key) != WORKER_KEY_BYTES - 1)
		return false;
	if (!worker->restored)
		return !CRYPTO_memcmp(key, worker->key, WORKER_KEY_BYTES - 1);
	return EVP_Digest(key, WORKER_KEY_BYTES - 1, digest, NULL, EVP_sha256(), NULL) == 1 &&
	       !CRYPTO_memcmp(digest, worker->key_sha256, sizeof digest);
}
