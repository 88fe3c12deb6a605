/* See secrets.h. */
#include "server/secrets.h"

#include "common/base/log.h"
#include "common/files/private_file.h"
#include "server/conversations/seal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4224, NAME_BYTES = 65, KEY_DIGITS = 2 * SEAL_KEY_BYTES };
#define AUDIT_KEY "audit/key-"

// What there is once, in the order in which it is put down: a key before what refers to it.
static const char *const once[] = {"tls/authority.key", "tls/authority.pem", "conversations.key"};

struct secrets {
	struct turn *turn;
	char directory[4096];
	uint8_t key[SEAL_KEY_BYTES];
};

// ---- the key ----

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

static bool parse_key(const char *text, size_t length, uint8_t key[SEAL_KEY_BYTES])
{
	while (length && strchr("\r\n", text[length - 1]))
		length--;
	bool good = length == KEY_DIGITS;
	for (size_t i = 0; good && i < SEAL_KEY_BYTES; i++) {
		const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
		good = high >= 0 && low >= 0;
		key[i] = (uint8_t)(high << 4 | low);
	}
	return good;
}

static void wipe(struct buffer *buffer)
{
	if (buffer->data)
		OPENSSL_cleanse(buffer->data, buffer->capacity);
	buffer_finish(buffer);
}

enum status secrets_create(struct secrets **out, struct turn *turn, const char *key_file, const char *directory,
			   struct error *error)
{
	struct buffer text;
	struct secrets *secrets = calloc(1, sizeof *secrets);
	*out = secrets;
	if (!secrets)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the cluster's key");
	secrets->turn = turn;
	snprintf(secrets->directory, sizeof secrets->directory, "%s", directory);
	buffer_init(&text, 4 * KEY_DIGITS);
	enum status status = private_file_read(key_file, &text, error);
	if (status == STATUS_NOT_FOUND)
		error_set(error, status, "there is no %.200s", key_file);
	else if (!status && !parse_key(buffer_text(&text), text.length, secrets->key))
		status = error_set(error, STATUS_INVALID_PARAMS, "%.200s is no key of a cluster", key_file);
	if (status == STATUS_NOT_FOUND || status == STATUS_INVALID_PARAMS || status == STATUS_LIMIT_EXCEEDED)
		error_hint(error, "make one, and give it to every server: openssl rand -hex 32 > FILE; chmod 600 FILE");
	wipe(&text);
	if (status)
		secrets_destroy(out);
	return status;
}

void secrets_destroy(struct secrets **pointer)
{
	if (*pointer)
		OPENSSL_cleanse(*pointer, sizeof **pointer);
	free(*pointer);
	*pointer = NULL;
}

enum status secrets_pass_key(const struct secrets *secrets, uint8_t key[NET_PASS_KEY_BYTES], struct error *error)
{
	static const uint8_t purpose[] = "exogpu: connections that are passed on";
	unsigned length = 0;
	_Static_assert(NET_PASS_KEY_BYTES == SHA256_DIGEST_LENGTH, "the key is one HMAC");
	if (!HMAC(EVP_sha256(), secrets->key, sizeof secrets->key, purpose, sizeof purpose - 1, key, &length) ||
	    length != NET_PASS_KEY_BYTES)
		return error_set(error, STATUS_INTERNAL, "no key can be derived");
	return STATUS_OK;
}

// ---- from the database ----

static bool is_known(const char *name)
{
	const size_t prefix = strlen(AUDIT_KEY);
	for (size_t i = 0; i < sizeof once / sizeof *once; i++)
		if (!strcmp(name, once[i]))
			return true;
	return !strncmp(name, AUDIT_KEY, prefix) && name[prefix] && strlen(name) < prefix + 21 &&
	       strspn(name + prefix, "0123456789") == strlen(name + prefix);
}

static struct seal_about about(const char *name)
{
	return (struct seal_about){.token_id = "cluster", .conversation_id = name, .version = 1};
}

struct fetching {
	struct secrets *secrets;
	bool write, authority_alone;
};

static void path_of(const struct secrets *secrets, const char *name, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%.4096s/%s", secrets->directory, name);
}

// A directory that has been another cluster's keeps what that one cannot do without.
static enum status check_same(const struct secrets *secrets, const char *name, const uint8_t *bytes, size_t length,
			      struct error *error)
{
	char path[PATH_BYTES];
	struct buffer held;
	path_of(secrets, name, path);
	buffer_init(&held, TURN_SECRET_BYTES);
	enum status status = private_file_read(path, &held, error);
	const bool same = status == STATUS_NOT_FOUND || !strncmp(name, AUDIT_KEY, strlen(AUDIT_KEY)) ||
			  (!status && held.length == length && !memcmp(held.data, bytes, length));
	wipe(&held);
	if (same)
		return STATUS_OK;
	if (status)
		return status;
	error_set(error, STATUS_CONFLICT, "%.200s is another cluster's than that of the database", path);
	error_hint(error, "start with a data directory of its own: --data DIR");
	return STATUS_CONFLICT;
}

static enum status write_secret(const struct secrets *secrets, const char *name, const uint8_t *bytes, size_t length,
				struct error *error)
{
	char path[PATH_BYTES];
	enum status status = check_same(secrets, name, bytes, length, error);
	if (status)
		return status;
	path_of(secrets, name, path);
	char *slash = strrchr(path, '/');
	*slash = 0;
	if (mkdir(path, 0700) && errno != EEXIST)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "cannot make %.200s", path);
	*slash = '/';
	const struct private_file file = {.path = path, .bytes = bytes, .length = length, .sync = true};
	return private_file_write(&file, error);
}

static enum status take_secret(void *context, const char *name, const uint8_t *sealed, size_t length,
			       struct error *error)
{
	const struct fetching *fetching = context;
	const struct seal_about sealed_about = about(name);
	if (!is_known(name)) // of a newer version, or of who can write there
		return STATUS_OK;
	if (fetching->authority_alone && strncmp(name, "tls/", 4) != 0)
		return STATUS_OK;
	uint8_t *bytes = malloc(length + 1);
	if (!bytes)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a secret");
	enum status status = seal_open(fetching->secrets->key, &sealed_about, sealed, length, bytes);
	if (status) {
		status = error_set(error, STATUS_UNAUTHENTICATED,
				   "the key of --cluster-key does not open %s in the database", name);
		error_hint(error, "every server is given the same file");
	} else {
		if (fetching->write)
			status = write_secret(fetching->secrets, name, bytes, length - SEAL_MORE_BYTES, error);
		OPENSSL_cleanse(bytes, length);
	}
	free(bytes);
	return status;
}

enum status secrets_check(struct secrets *secrets, struct error *error)
{
	return turn_each_secret(secrets->turn, take_secret, &(struct fetching){.secrets = secrets}, error);
}

enum status secrets_fetch(struct secrets *secrets, bool all, struct error *error)
{
	struct fetching fetching = {.secrets = secrets, .write = true, .authority_alone = !all};
	return turn_each_secret(secrets->turn, take_secret, &fetching, error);
}

// ---- to the database ----

// STATUS_NOT_FOUND: there is no such file.
static enum status put(struct secrets *secrets, const char *name, struct error *error)
{
	char path[PATH_BYTES];
	struct buffer bytes;
	const struct seal_about sealed_about = about(name);
	path_of(secrets, name, path);
	buffer_init(&bytes, TURN_SECRET_BYTES - SEAL_MORE_BYTES);
	enum status status = private_file_read(path, &bytes, error);
	uint8_t *sealed = status ? NULL : malloc(bytes.length + SEAL_MORE_BYTES);
	if (!status && !sealed)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a secret");
	if (!status && seal(secrets->key, &sealed_about, bytes.data, bytes.length, sealed))
		status = error_set(error, STATUS_UNAVAILABLE, "%s cannot be encrypted", name);
	if (!status)
		status = turn_put_secret(secrets->turn, name, sealed, bytes.length + SEAL_MORE_BYTES, error);
	free(sealed);
	wipe(&bytes);
	return status;
}

static enum status forget_stale(void *context, const char *name, const uint8_t *bytes, size_t length,
				struct error *error)
{
	struct secrets *secrets = context;
	char path[PATH_BYTES];
	struct stat found;
	(void)bytes, (void)length;
	path_of(secrets, name, path);
	if (!is_known(name) || !stat(path, &found))
		return STATUS_OK;
	return turn_forget_secret(secrets->turn, name, error);
}

enum status secrets_share(struct secrets *secrets, struct error *error)
{
	char path[PATH_BYTES], name[NAME_BYTES];
	enum status status = STATUS_OK;
	for (size_t i = 0; i < sizeof once / sizeof *once && (!status || status == STATUS_NOT_FOUND); i++)
		status = put(secrets, once[i], error);
	status = status == STATUS_NOT_FOUND ? STATUS_OK : status;
	path_of(secrets, "audit", path);
	DIR *folder = opendir(path);
	for (struct dirent *file; !status && folder && (file = readdir(folder));) {
		snprintf(name, sizeof name, "audit/%.50s", file->d_name);
		if (is_known(name))
			status = put(secrets, name, error);
	}
	if (folder)
		closedir(folder);
	return status ? status : turn_each_secret(secrets->turn, forget_stale, secrets, error);
}

enum status secrets_share_key(void *context, uint64_t segment, struct error *error)
{
	char name[NAME_BYTES];
	snprintf(name, sizeof name, AUDIT_KEY "%" PRIu64, segment);
	return put(context, name, error);
}

void secrets_forget_key(void *context, uint64_t segment)
{
	char name[NAME_BYTES];
	struct secrets *secrets = context;
	struct error error = {0};
	snprintf(name, sizeof name, AUDIT_KEY "%" PRIu64, segment);
	if (turn_forget_secret(secrets->turn, name, &error)) // the next start does it
		log_warning("turn", "%s is used no more, and stays in the database until the next start: %s", name,
			    error.message);
}
