/* The file with the first admin token: tokens_ensure_admin_file of tokens.h.
 *
 * The file is written beside its place and renamed, so that a reader finds the old token or the new one, never half of
 * one; and it is made with mode 0600, so that there is no moment at which another user can read it. Thread: the loop's,
 * while the server starts. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/security/token_text.h"
#include "server/security/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RENEW_MS = 24 * 60 * 60 * 1000 }; // a token that ends within a day is replaced at start

// The first line of our own file. False if it is missing, or another user's.
static bool read_file(const char *path, char text[TOKEN_TEXT_BYTES])
{
	bool ours = false;
	struct stat file;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	if (!fstat(fd, &file) && S_ISREG(file.st_mode) && file.st_uid == geteuid()) {
		ssize_t length = read(fd, text, TOKEN_TEXT_BYTES - 1);
		text[length > 0 ? length : 0] = 0;
		text[strcspn(text, "\r\n")] = 0;
		ours = !(file.st_mode & 077) || !fchmod(fd, 0600);
	}
	close(fd);
	return ours;
}

static enum status write_all(int fd, const char *text)
{
	for (size_t left = strlen(text); left;) {
		ssize_t wrote = write(fd, text, left);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0)
			return STATUS_UNAVAILABLE;
		text += wrote;
		left -= (size_t)wrote;
	}
	return STATUS_OK;
}

static void sync_directory(const char *path)
{
	char directory[PATH_MAX];
	const char *slash = strrchr(path, '/');
	snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		log_warning("tokens", "cannot sync %s: %s", directory, strerror(errno));
	if (fd >= 0)
		close(fd);
}

static enum status write_file(const char *path, const char *text, struct error *error)
{
	char part[PATH_MAX], line[TOKEN_TEXT_BYTES + 1];
	int length = snprintf(part, sizeof part, "%s.part", path);
	if (length < 0 || (size_t)length >= sizeof part)
		return error_set(error, STATUS_INVALID_PARAMS, "the path of the token file is too long");
	unlink(part); // left by a start that was cut short
	snprintf(line, sizeof line, "%s\n", text);
	int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	bool good = fd >= 0 && !write_all(fd, line) && !fsync(fd);
	int number = errno;
	OPENSSL_cleanse(line, sizeof line);
	if (fd >= 0 && close(fd) && good) {
		number = errno;
		good = false;
	}
	if (good && rename(part, path)) {
		number = errno;
		good = false;
	}
	if (!good) {
		unlink(part);
		error_errno(error, STATUS_UNAVAILABLE, number, "cannot write the admin token to %s", path);
		error_hint(error, "check the permissions and the free space of the data directory");
		return STATUS_UNAVAILABLE;
	}
	sync_directory(path);
	return STATUS_OK;
}

enum status tokens_ensure_admin_file(struct tokens *tokens, const char *path, char text[TOKEN_TEXT_BYTES],
				     struct error *error)
{
	struct token *token = NULL;
	text[0] = 0;
	if (read_file(path, text) && !tokens_authenticate(tokens, text, &token, NULL) && token->scopes & SCOPE_ADMIN &&
	    token->expires_ms - clock_wall_ms() > RENEW_MS)
		return STATUS_OK;
	OPENSSL_cleanse(text, TOKEN_TEXT_BYTES);
	const struct token_create_params params = {.name = "admin.token", .scopes = SCOPE_ADMIN};
	enum status status = tokens_make_wait(tokens, &params, text, error);
	if (!status)
		status = write_file(path, text, error);
	if (status)
		OPENSSL_cleanse(text, TOKEN_TEXT_BYTES);
	return status;
}
