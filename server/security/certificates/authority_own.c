/* The operator's own certificate: --tls-cert and --tls-key. At the start an unusable pair
 * is an error. Later the files are checked every few seconds. The pair is read once a
 * change is followed by a check without change, because the files are replaced one after
 * the other. An unusable pair is logged and the old one stays. Open connections keep what
 * they began with. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/security/certificates/authority_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void take_stamp(const char *path, struct stamp *stamp)
{
	struct stat file;
	*stamp = (struct stamp){0};
	if (!stat(path, &file))
		*stamp = (struct stamp){.changed_ns = (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec,
					.size = file.st_size,
					.inode = file.st_ino};
}

static bool same_stamps(const struct stamp a[2], const struct stamp b[2])
{
	for (int i = 0; i < 2; i++)
		if (a[i].changed_ns != b[i].changed_ns || a[i].size != b[i].size || a[i].inode != b[i].inode)
			return false;
	return true;
}

static void take_stamps(const struct authority *authority, struct stamp stamps[2])
{
	take_stamp(authority->params.cert_file, &stamps[0]);
	take_stamp(authority->params.key_file, &stamps[1]);
}

// It is the operator's: links, groups and other owners are theirs to choose.
static enum status read_file(const char *path, struct buffer *out, bool *open_to_all, struct error *error)
{
	struct stat file = {0};
	uint8_t piece[4096];
	ssize_t length = 0;
	buffer_init(out, LIMIT_CERTIFICATE_FILE_BYTES);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &file)) {
		error_errno(error, STATUS_INVALID_PARAMS, errno, "%.200s cannot be read", path);
		error_hint(error, "the user whom exogpu runs as must be able to read it");
	} else if (!S_ISREG(file.st_mode) || buffer_reserve(out, (size_t)file.st_size) || buffer_append(out, "", 0)) {
		error_set(error, STATUS_INVALID_PARAMS, "%.200s is no file with a certificate or key", path);
		error_hint(error, "give a file in PEM form, of at most %d bytes", LIMIT_CERTIFICATE_FILE_BYTES);
		length = -1;
	} else {
		while ((length = read(fd, piece, sizeof(piece))) > 0 && !buffer_append(out, piece, (size_t)length))
			;
		if (length)
			error_set(error, STATUS_INVALID_PARAMS, "%.200s cannot be read", path);
	}
	*open_to_all = file.st_mode & 07;
	OPENSSL_cleanse(piece, sizeof(piece));
	if (fd >= 0)
		close(fd);
	return fd < 0 || length ? STATUS_INVALID_PARAMS : STATUS_OK;
}

static enum status check_pair(const struct authority *authority, const struct identity *own, EVP_PKEY *key,
			      struct error *error)
{
	const char *cert_file = authority->params.cert_file;
	char at[CLOCK_TEXT_BYTES];
	const int64_t now = authority_now(authority);
	bool fits = X509_check_private_key(own->certificate, key) == 1;
	ERR_clear_error();
	if (!fits) {
		error_set(error, STATUS_INVALID_PARAMS, "%.150s is not the key of %.150s", authority->params.key_file,
			  cert_file);
		error_hint(error, "the server's own certificate comes first in the file, those between it and its root "
				  "after it");
		return STATUS_INVALID_PARAMS;
	}
	if (now >= own->facts.not_after_ms) {
		error_set(error, STATUS_INVALID_PARAMS, "the certificate in %.200s ended at %s", cert_file,
			  clock_format(own->facts.not_after_ms, at));
		error_hint(error, "renew it, or leave out --tls-cert: the cluster's own is shown then");
		return STATUS_INVALID_PARAMS;
	}
	if (now < own->facts.not_before_ms) {
		error_set(error, STATUS_INVALID_PARAMS, "the certificate in %.200s begins at %s", cert_file,
			  clock_format(own->facts.not_before_ms, at));
		error_hint(error, "is this machine's clock right?");
		return STATUS_INVALID_PARAMS;
	}
	return STATUS_OK;
}

static void count_name(void *context, const char *name)
{
	(void)name;
	++*(int *)context;
}

static enum status parse_pair(const struct authority *authority, struct identity *own, struct error *error)
{
	EVP_PKEY *key = NULL;
	struct error why = {0};
	int names = 0;
	enum status status = certificate_parse(&own->certificate, buffer_text(&own->chain), own->chain.length, &why);
	if (status)
		error_set(error, status, "%.200s: %s", authority->params.cert_file, why.message);
	if (!status) {
		status = certificate_parse_key(&key, buffer_text(&own->key), own->key.length, &why);
		if (status)
			error_set(error, status, "%.200s: %s", authority->params.key_file, why.message);
	}
	if (status)
		error_hint(error, "%s", why.hint[0] ? why.hint : "give files in PEM form");
	if (!status) {
		certificate_describe(own->certificate, &own->facts);
		status = check_pair(authority, own, key, error);
	}
	if (!status)
		certificate_each_name(own->certificate, count_name, &names);
	if (!status && !names)
		log_warning("tls", "%s names no host (subjectAltName): browsers will refuse it",
			    authority->params.cert_file);
	EVP_PKEY_free(key);
	return status;
}

static enum status load(const struct authority *authority, struct identity *own, struct error *error)
{
	bool cert_open = false, key_open = false;
	*own = (struct identity){0};
	enum status status = read_file(authority->params.cert_file, &own->chain, &cert_open, error);
	if (!status)
		status = read_file(authority->params.key_file, &own->key, &key_open, error);
	if (!status)
		status = parse_pair(authority, own, error);
	if (!status && key_open)
		log_warning("tls", "everybody on this machine can read the key in %s", authority->params.key_file);
	if (status)
		identity_finish(own);
	return status;
}

enum status authority_open_own(struct authority *authority, struct error *error)
{
	if (!authority->params.cert_file)
		return STATUS_OK;
	take_stamps(authority, authority->own_read);
	memcpy(authority->own_seen, authority->own_read, sizeof(authority->own_seen));
	return load(authority, &authority->own, error);
}

static void reload(struct authority *authority)
{
	struct identity fresh;
	struct error error = {0};
	char at[CLOCK_TEXT_BYTES];
	enum status status = load(authority, &fresh, &error);
	if (!status) {
		const struct audit_event event = authority_event(
			&(struct told){.action = "certificate.reload", .kind = "own", .facts = &fresh.facts});
		status = audit_write(authority->params.audit, &event, NULL, NULL, &error);
	}
	if (status) {
		identity_finish(&fresh);
		log_error("tls", "the certificate's files have changed, and the one before stays: %s; %s",
			  error.message, error.hint);
		return;
	}
	struct identity before = authority->own;
	authority->own = fresh;
	if (authority_present(authority, &error)) {
		log_error("tls", "the certificate's files have changed, and the one before stays: %s; %s",
			  error.message, error.hint);
		authority->own = before;
		identity_finish(&fresh);
		return;
	}
	identity_finish(&before);
	log_info("tls", "%s was read again; it is good until %s", authority->params.cert_file,
		 clock_format(authority->own.facts.not_after_ms, at));
}

void authority_look_at_own(struct authority *authority)
{
	struct stamp now[2];
	if (!authority->params.cert_file)
		return;
	take_stamps(authority, now);
	if (!same_stamps(now, authority->own_read) && same_stamps(now, authority->own_seen)) {
		memcpy(authority->own_read, now, sizeof(now));
		reload(authority);
	}
	memcpy(authority->own_seen, now, sizeof(now));
}
