/* The authority's own pair and the server's, in DATA/tls. The authority's is made once and must not
 * be lost, because every node trusts it alone: if half of it is missing or damaged, the start fails
 * with advice instead of making a new one. Its key is written before its certificate, so a start that
 * is interrupted leaves a key that nobody has met yet. The server's pair depends only on the
 * authority and is made again whenever it does not fit. Each pair has an audit entry before it is
 * used. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/files/paths.h"
#include "common/files/private_file.h"
#include "server/security/certificates/authority_inside.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096, AUTHORITY_YEARS = 10, SERVER_DAYS = 90 };

int64_t authority_now(const struct authority *authority)
{
	return authority->params.now_ms ? authority->params.now_ms() : clock_wall_ms();
}

int64_t authority_renewal_ms(int64_t not_before_ms, int64_t not_after_ms)
{
	return not_before_ms + (not_after_ms - not_before_ms) / 3 * 2;
}

static void wipe(struct buffer *buffer)
{
	if (buffer->data)
		OPENSSL_cleanse(buffer->data, buffer->length);
	buffer_finish(buffer);
}

void identity_finish(struct identity *identity)
{
	X509_free(identity->certificate);
	buffer_finish(&identity->chain);
	wipe(&identity->key);
	*identity = (struct identity){0};
}

struct audit_event authority_event(struct told *told)
{
	char at[CLOCK_TEXT_BYTES];
	snprintf(told->detail, sizeof(told->detail), "{\"kind\":\"%s\",\"sha256\":\"%s\",\"not_after\":\"%s\"}",
		 told->kind, told->facts->sha256, clock_format(told->facts->not_after_ms, at));
	return (struct audit_event){.action = told->action,
				    .target = told->facts->serial,
				    .node_id = told->node_id,
				    .outcome = STATUS_OK,
				    .detail = told->detail};
}

enum status authority_put_entry(const struct authority *authority, struct store_batch *batch, struct told *told)
{
	const struct audit_event event = authority_event(told);
	return audit_put(authority->params.audit, batch, &event);
}

enum status authority_write_entry(const struct authority *authority, struct told *told, struct error *error)
{
	struct store_batch *batch = NULL;
	enum status status = store_batch_create(&batch);
	if (!status)
		status = authority_put_entry(authority, batch, told);
	if (!status)
		return store_commit_wait(authority->params.store, &batch, error);
	store_batch_destroy(&batch);
	return error_set(error, status, "a certificate's entry in the audit log could not be written");
}

static enum status make_directory(const struct authority *authority, struct error *error)
{
	struct stat status;
	const char *path = authority->directory;
	if ((mkdir(path, 0700) && errno != EEXIST) || lstat(path, &status))
		return error_errno(error, STATUS_FORBIDDEN, errno, "%.200s cannot be made", path);
	if (!S_ISDIR(status.st_mode) || ((status.st_mode & 077) && chmod(path, 0700))) {
		error_set(error, STATUS_FORBIDDEN, "%.200s is not a directory of this user's own", path);
		error_hint(error, "put it out of the way, or choose another data directory with --data DIR");
		return STATUS_FORBIDDEN;
	}
	return STATUS_OK;
}

// STATUS_NOT_FOUND, without a message: there is no such file.
static enum status read_file(const struct authority *authority, const char *name, struct buffer *out,
			     struct error *error)
{
	char path[PATH_BYTES];
	buffer_init(out, LIMIT_CERTIFICATE_FILE_BYTES);
	enum status status = paths_join(authority->directory, name, path, sizeof(path), error);
	return status ? status : private_file_read(path, out, error);
}

static enum status write_file(const struct authority *authority, const char *name, const struct buffer *pem, bool sync,
			      struct error *error)
{
	char path[PATH_BYTES];
	enum status status = paths_join(authority->directory, name, path, sizeof(path), error);
	const struct private_file file = {.path = path, .bytes = pem->data, .length = pem->length, .sync = sync};
	return status ? status : private_file_write(&file, error);
}

static enum status damaged(const struct authority *authority, const char *what, struct error *error)
{
	error_set(error, STATUS_UNAVAILABLE, "the cluster's authority in %.200s is damaged: %s", authority->directory,
		  what);
	error_hint(error, "put authority.pem and authority.key back from a copy; or move the directory away: a new "
			  "authority is made then, and every node must join again");
	return STATUS_UNAVAILABLE;
}

static enum status take_authority(struct authority *authority, const struct buffer *pem, const struct buffer *key,
				  struct error *error)
{
	if (certificate_parse(&authority->certificate, buffer_text(pem), pem->length, NULL))
		return damaged(authority, "authority.pem holds no certificate", error);
	if (certificate_parse_key(&authority->key, buffer_text(key), key->length, NULL))
		return damaged(authority, "authority.key holds no key", error);
	bool fits = X509_check_private_key(authority->certificate, authority->key) == 1 &&
		    X509_verify(authority->certificate, authority->key) == 1;
	ERR_clear_error();
	return fits ? STATUS_OK : damaged(authority, "authority.key is not the key of authority.pem", error);
}

static enum status make_authority(struct authority *authority, struct error *error)
{
	struct buffer pem, key;
	char uri[NET_CERTIFICATE_URI_BYTES];
	const int64_t now = authority_now(authority);
	buffer_init(&pem, LIMIT_CERTIFICATE_FILE_BYTES);
	buffer_init(&key, LIMIT_CERTIFICATE_FILE_BYTES);
	snprintf(uri, sizeof(uri), CERTIFICATE_AUTHORITY_URI "%s", authority->params.cluster_id);
	enum status status = certificate_make_key(&authority->key, error);
	const struct certificate_params params = {.kind = CERTIFICATE_AUTHORITY,
						  .key = authority->key,
						  .issuer_key = authority->key,
						  .subject = authority->params.cluster_name,
						  .uri = uri,
						  .not_before_ms = now - AUTHORITY_DAY_MS,
						  .not_after_ms = now + AUTHORITY_YEARS * 365 * AUTHORITY_DAY_MS};
	if (!status)
		status = certificate_make(&authority->certificate, &params, error);
	if (!status)
		status = certificate_print(authority->certificate, &pem);
	if (!status)
		status = buffer_reserve(&key, 1024);
	if (!status)
		status = certificate_print_key(authority->key, &key);
	if (!status) {
		certificate_describe(authority->certificate, &authority->facts);
		status = authority_write_entry(
			authority,
			&(struct told){.action = "certificate.issue", .kind = "authority", .facts = &authority->facts},
			error);
	}
	if (!status)
		status = write_file(authority, "authority.key", &key, true, error);
	if (!status)
		status = write_file(authority, "authority.pem", &pem, true, error);
	buffer_finish(&pem);
	wipe(&key);
	return status ? error_set(error, status, "the cluster's authority could not be made") : STATUS_OK;
}

enum status authority_open_keys(struct authority *authority, bool *made, struct error *error)
{
	struct buffer pem = {0}, key = {0};
	enum status status = paths_join(authority->params.directory, "tls", authority->directory,
					sizeof(authority->directory), error);
	if (!status)
		status = make_directory(authority, error);
	if (status)
		return status;
	enum status has_pem = read_file(authority, "authority.pem", &pem, error);
	enum status has_key = read_file(authority, "authority.key", &key, error);
	*made = has_pem == STATUS_NOT_FOUND && (!has_key || has_key == STATUS_NOT_FOUND);
	if (*made)
		status = make_authority(authority, error);
	else if (has_pem && has_pem != STATUS_NOT_FOUND)
		status = has_pem;
	else if (has_key)
		status = has_key == STATUS_NOT_FOUND ? damaged(authority, "authority.key is missing", error) : has_key;
	else
		status = take_authority(authority, &pem, &key, error);
	buffer_finish(&pem);
	wipe(&key);
	if (status)
		return status;
	certificate_describe(authority->certificate, &authority->facts);
	certificate_fingerprint(authority->facts.digest, authority->fingerprint);
	buffer_init(&authority->pem, LIMIT_CERTIFICATE_FILE_BYTES);
	return certificate_print(authority->certificate, &authority->pem);
}

static void hold_name(void *context, const char *name)
{
	names_add(context, name);
}

static bool covers_names(X509 *certificate, const struct names *names)
{
	struct names *held = calloc(1, sizeof(*held));
	bool covers = held != NULL;
	if (held)
		certificate_each_name(certificate, hold_name, held);
	for (size_t i = 0; covers && i < names->count; i++)
		covers = names_hold(held, names->list[i]);
	free(held);
	return covers;
}

// Why the server's certificate does not do any more; NULL while it does. Names that are gone are no reason.
static const char *find_fault(const struct authority *authority, const struct identity *server)
{
	char uri[NET_CERTIFICATE_URI_BYTES];
	const int64_t now = authority_now(authority);
	certificate_uri(server->certificate, uri, sizeof(uri));
	bool ours = X509_verify(server->certificate, authority->key) == 1 && !strcmp(uri, authority->uri);
	ERR_clear_error();
	if (!ours)
		return "it was not issued by this cluster's authority";
	if (now < server->facts.not_before_ms)
		return "the clock was set back";
	if (now >= authority_renewal_ms(server->facts.not_before_ms, server->facts.not_after_ms) &&
	    server->facts.not_after_ms < authority->facts.not_after_ms) // else a new one would not live longer
		return "two thirds of its life are over";
	return covers_names(server->certificate, &authority->names) ? NULL : "this machine has a new name or address";
}

enum status authority_make_server(const struct authority *authority, struct identity *server, struct error *error)
{
	EVP_PKEY *key = NULL;
	const int64_t now = authority_now(authority);
	int64_t end = now + SERVER_DAYS * AUTHORITY_DAY_MS;
	*server = (struct identity){0};
	buffer_init(&server->chain, LIMIT_CERTIFICATE_FILE_BYTES);
	buffer_init(&server->key, LIMIT_CERTIFICATE_FILE_BYTES);
	enum status status = certificate_make_key(&key, error);
	const struct certificate_params params = {
		.kind = CERTIFICATE_SERVER,
		.key = key,
		.issuer = authority->certificate,
		.issuer_key = authority->key,
		.subject = authority->params.cluster_name,
		.uri = authority->uri,
		.names = authority->names.list,
		.name_count = authority->names.count,
		.not_before_ms = now - AUTHORITY_HOUR_MS, // others' clocks may be late
		.not_after_ms = end < authority->facts.not_after_ms ? end : authority->facts.not_after_ms};
	if (!status)
		status = certificate_make(&server->certificate, &params, error);
	if (!status)
		status = certificate_print(server->certificate, &server->chain);
	if (!status)
		status = buffer_append(&server->chain, authority->pem.data, authority->pem.length);
	if (!status)
		status = buffer_reserve(&server->key, 1024);
	if (!status)
		status = certificate_print_key(key, &server->key);
	EVP_PKEY_free(key);
	if (status)
		identity_finish(server);
	else
		certificate_describe(server->certificate, &server->facts);
	return status ? error_set(error, status, "the server's certificate could not be made") : STATUS_OK;
}

// Not waited for: what a power cut leaves of these is made anew.
static void keep_server(const struct authority *authority, const struct identity *server)
{
	struct error error = {0};
	if (write_file(authority, "server.key", &server->key, false, &error) ||
	    write_file(authority, "server.pem", &server->chain, false, &error))
		log_warning("tls", "the server's certificate is not kept: %s", error.message);
}

static const char first_start[] = "there was none";

static enum status load_server(const struct authority *authority, struct identity *server, const char **fault,
			       struct error *error)
{
	EVP_PKEY *key = NULL;
	*server = (struct identity){0};
	*fault = "it is damaged";
	enum status status = read_file(authority, "server.pem", &server->chain, error);
	if (status == STATUS_NOT_FOUND)
		*fault = first_start;
	if (!status)
		status = read_file(authority, "server.key", &server->key, error);
	if (status && status != STATUS_NOT_FOUND)
		return status;
	if (!status &&
	    !certificate_parse(&server->certificate, buffer_text(&server->chain), server->chain.length, NULL) &&
	    !certificate_parse_key(&key, buffer_text(&server->key), server->key.length, NULL) &&
	    X509_check_private_key(server->certificate, key) == 1) {
		certificate_describe(server->certificate, &server->facts);
		*fault = find_fault(authority, server);
	}
	EVP_PKEY_free(key);
	ERR_clear_error();
	return STATUS_OK;
}

enum status authority_open_server(struct authority *authority, struct error *error)
{
	const char *fault;
	enum status status = load_server(authority, &authority->server, &fault, error);
	if (status || !fault)
		return status;
	identity_finish(&authority->server);
	status = authority_make_server(authority, &authority->server, error);
	if (!status)
		status = authority_write_entry(authority,
					       &(struct told){.action = "certificate.issue",
							      .kind = "server",
							      .facts = &authority->server.facts},
					       error);
	if (status)
		return status;
	if (fault != first_start)
		log_info("tls", "a new certificate was made for this server: %s", fault);
	keep_server(authority, &authority->server);
	return STATUS_OK;
}

static void entry_written(void *context, enum status status, const struct error *why)
{
	struct authority *authority = context;
	struct error error = {0};
	if (status) {
		log_error("tls", "the server's certificate is not renewed: %s", why->message);
		identity_finish(&authority->next);
		return;
	}
	identity_finish(&authority->server);
	authority->server = authority->next;
	authority->next = (struct identity){0};
	keep_server(authority, &authority->server);
	if (authority_present(authority, &error))
		log_error("tls", "the server's new certificate cannot be shown: %s", error.message);
}

void authority_renew(struct authority *authority)
{
	struct error error = {0};
	if (authority->next.certificate)
		return;
	authority_collect_names(authority, &authority->names);
	const char *fault = find_fault(authority, &authority->server);
	if (!fault || authority_now(authority) >= authority->facts.not_after_ms)
		return;
	enum status status = authority_make_server(authority, &authority->next, &error);
	if (!status) {
		const struct audit_event event = authority_event(&(struct told){
			.action = "certificate.renew", .kind = "server", .facts = &authority->next.facts});
		status = audit_write(authority->params.audit, &event, entry_written, authority, &error);
	}
	if (status) {
		log_error("tls", "the server's certificate is not renewed: %s; %s", error.message, error.hint);
		identity_finish(&authority->next);
		return;
	}
	log_info("tls", "the server's certificate is renewed: %s", fault);
}
