/* See libpq.h. */
#include "server/store/postgres/libpq.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { LEAST_VERSION = 140000 };

static struct libpq calls;
static bool loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const struct symbol {
	const char *name;
	size_t offset;
} symbols[] = {
#define X(type, name, parameters) {#name, offsetof(struct libpq, name)},
	LIBPQ_LIST(X)
#undef X
};

static enum status refuse(struct error *error, const char *why)
{
	error_set(error, STATUS_UNAVAILABLE, "a store in PostgreSQL needs its client library, libpq.so.5, %s", why);
	error_hint(error, "install it, of version 14 or newer (Debian and Ubuntu: libpq5; Fedora: libpq), or start "
			  "without --store");
	return STATUS_UNAVAILABLE;
}

static enum status load(struct error *error)
{
	void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return refuse(error, "which is not installed");
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *address = dlsym(library, symbols[i].name);
		if (!address)
			return refuse(error, "and the one here is too old");
		memcpy((char *)&calls + symbols[i].offset, &address, sizeof address);
	}
	if (calls.PQlibVersion() < LEAST_VERSION)
		return refuse(error, "and the one here is too old");
	loaded = true;
	return STATUS_OK;
}

enum status libpq_load(const struct libpq **out, struct error *error)
{
	pthread_mutex_lock(&lock);
	enum status status = loaded ? STATUS_OK : load(error);
	pthread_mutex_unlock(&lock);
	*out = status ? NULL : &calls;
	return status;
}
