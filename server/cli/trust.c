/* See trust.h. */
#include "server/cli/trust.h"

#include "common/base/limits.h"
#include "common/files/paths.h"
#include "server/security/certificates/certificate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The file's bytes. Returns 0 or the errno value.
static int read_file(const char *path, struct buffer *out)
{
	char piece[4096];
	size_t length;
	FILE *file = fopen(path, "re");
	if (!file)
		return errno;
	while ((length = fread(piece, 1, sizeof(piece), file)) && !buffer_append(out, piece, length))
		;
	int number = ferror(file) ? EIO : out->failed ? EFBIG : 0;
	fclose(file);
	return number;
}

static enum status take_authority(struct trust *trust, X509 *authority, struct error *error)
{
	static const size_t prefix = sizeof(CERTIFICATE_AUTHORITY_URI) - 1;
	struct buffer pem;
	char uri[96];
	buffer_init(&pem, sizeof(trust->authority_pem) - 1);
	enum status status = certificate_print(authority, &pem);
	if (status)
		error_set(error, STATUS_INVALID_PARAMS, "the certificate in %.200s is too large", trust->from);
	else
		snprintf(trust->authority_pem, sizeof(trust->authority_pem), "%s", buffer_text(&pem));
	buffer_finish(&pem);
	certificate_uri(authority, uri, sizeof(uri));
	if (!strncmp(uri, CERTIFICATE_AUTHORITY_URI, prefix))
		snprintf(trust->server_uri, sizeof(trust->server_uri), CERTIFICATE_SERVER_URI "%s", uri + prefix);
	return status;
}

enum status trust_read(struct trust *trust, const char *path, const char *origin, struct error *error)
{
	X509 *authority = NULL;
	struct buffer text;
	buffer_init(&text, LIMIT_CERTIFICATE_FILE_BYTES);
	*trust = (struct trust){0};
	snprintf(trust->from, sizeof(trust->from), "%s", path);
	int number = read_file(path, &text);
	enum status status = number ? STATUS_INVALID_PARAMS : STATUS_OK;
	if (number)
		error_errno(error, status, number, "%s: %.200s cannot be read", origin, path);
	else if (certificate_parse(&authority, buffer_text(&text), text.length, NULL))
		status = error_set(error, STATUS_INVALID_PARAMS, "%s: there is no certificate in %.200s", origin, path);
	else
		status = take_authority(trust, authority, error);
	if (status)
		error_hint(error, "give the authority's certificate: DATA/tls/authority.pem of the server, which it "
				  "also serves at /ca.pem; or the word system");
	X509_free(authority);
	buffer_finish(&text);
	return status;
}

enum status trust_find(struct trust *trust, const char *ca, const char *directory, struct error *error)
{
	char path[4096];
	const char *named = ca ? ca : getenv("EXOGPU_CA");
	*trust = (struct trust){.from = "the system's authorities"};
	if (named && named[0])
		return strcmp(named, "system") ? trust_read(trust, named, ca ? "--ca" : "EXOGPU_CA", error) : STATUS_OK;
	enum status status = paths_join(directory, "tls/authority.pem", path, sizeof(path), error);
	if (status)
		return status;
	FILE *file = fopen(path, "re"); // another user's directory is as good as none
	if (!file)
		return STATUS_OK;
	fclose(file);
	return trust_read(trust, path, "the data directory", error);
}
