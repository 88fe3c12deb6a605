/* An authority over a real store, with a clock of its own, for its tests. */
#pragma once
#include "server/security/certificates/authority_inside.h"
#include "tests/server/store/support.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

static int64_t now_ms;

static int64_t told_time(void)
{
	return now_ms;
}

struct world {
	struct support *support;
	struct store *store;
	struct audit *audit;
	struct authority *authority;
	struct authority_params params;
	int entries;
	char actions[512]; // of the entries, in their order
};

static void on_entry(void *context, struct json *entry)
{
	struct world *world = context;
	size_t used = strlen(world->actions);
	snprintf(world->actions + used, sizeof(world->actions) - used, "%s %s\n", json_get_string(entry, "action", ""),
		 json_get_string(entry, "node_id", "-"));
	world->entries++;
	json_destroy(&entry);
}

static enum status try_open(struct world *world, struct error *error)
{
	*error = (struct error){0};
	world->entries = 0;
	world->actions[0] = 0;
	const struct store_params store = {.loop = world->support->loop, .directory = world->support->directory};
	const struct audit_params audit = {.loop = world->support->loop, .publish = on_entry, .context = world};
	if (store_create(&world->store, &store, error))
		fail_msg("%s", error->message);
	struct audit_params with_store = audit;
	with_store.store = world->store;
	if (audit_create(&world->audit, &with_store, error))
		fail_msg("%s", error->message);
	world->params.loop = world->support->loop;
	world->params.store = world->store;
	world->params.audit = world->audit;
	world->params.directory = world->support->directory;
	world->params.cluster_id = "clu_1";
	world->params.cluster_name = "polaris";
	world->params.now_ms = told_time;
	return authority_create(&world->authority, &world->params, error);
}

static void open_world(struct world *world, struct support *support)
{
	struct error error;
	if (!world->support)
		now_ms = clock_wall_ms();
	world->support = support;
	if (try_open(world, &error))
		fail_msg("%s (%s)", error.message, error.hint);
}

static void close_world(struct world *world)
{
	authority_destroy(&world->authority);
	audit_destroy(&world->audit);
	store_destroy(&world->store);
}

static void reopen(struct world *world)
{
	close_world(world);
	open_world(world, world->support);
}

static char *tls_path(const struct world *world, const char *name)
{
	static char path[512];
	snprintf(path, sizeof(path), "%s/tls%s%s", world->support->directory, name[0] ? "/" : "", name);
	return path;
}

static char *make_request(EVP_PKEY *key)
{
	X509_REQ *request = X509_REQ_new();
	X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(request), "CN", MBSTRING_ASC,
				   (const unsigned char *)"exogpu:server:clu_1", -1, -1, 0);
	assert_int_equal(X509_REQ_set_pubkey(request, key), 1);
	assert_true(X509_REQ_sign(request, key, EVP_sha256()) > 0);
	BIO *bio = BIO_new(BIO_s_mem());
	char *bytes;
	PEM_write_bio_X509_REQ(bio, request);
	long length = BIO_get_mem_data(bio, &bytes);
	char *text = buffer_copy_text(bytes, (size_t)length);
	BIO_free(bio);
	X509_REQ_free(request);
	return text;
}
