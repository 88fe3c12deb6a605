/* See journal_keys.h. */
#include "server/store/audit/journal_keys.h"

#include "common/base/log.h"
#include "common/files/private_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4224 };
#define KEY_PREFIX "key-"
#define FIRST_KEY "first-key" // until the log has begun

static void key_path(const char *directory, uint64_t segment, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%.4160s/" KEY_PREFIX "%" PRIu64, directory, segment);
}

static bool sync_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool synced = fd >= 0 && !fsync(fd);
	if (fd >= 0)
		close(fd);
	return synced;
}

enum status journal_folder_make(const char *directory, struct error *error)
{
	char parent[PATH_BYTES];
	if (!mkdir(directory, 0700)) {
		snprintf(parent, sizeof parent, "%.4160s/..", directory);
		if (sync_folder(parent))
			return STATUS_OK;
	} else if (errno == EEXIST) {
		return STATUS_OK;
	}
	enum status status = error_errno(error, STATUS_UNAVAILABLE, errno, "cannot make %.200s", directory);
	error_hint(error, "check the permissions and the free space of the data directory");
	return status;
}

enum status journal_origin_make(char origin[NOTE_NAME_BYTES], struct error *error)
{
	uint8_t random[8];
	if (RAND_bytes(random, sizeof random) != 1)
		return error_set(error, STATUS_UNAVAILABLE, "no random bytes to name the audit log");
	int length = snprintf(origin, NOTE_NAME_BYTES, "exogpu-audit-");
	for (size_t i = 0; i < sizeof random; i++)
		length += snprintf(origin + length, NOTE_NAME_BYTES - (size_t)length, "%02x", random[i]);
	return STATUS_OK;
}

static enum status make_key(const char *path, const char *origin, struct note_signer *signer, struct error *error)
{
	enum status status = signer->key.name[0] ? STATUS_OK : note_key_make(signer, NOTE_ED25519, origin);
	if (status)
		return error_set(error, status, "a key of the audit log cannot be made: %s", status_text(status));
	const struct private_file file = {
		.path = path, .bytes = signer->private_key, .length = NOTE_KEY_BYTES, .sync = true};
	return private_file_write(&file, error);
}

enum status journal_key_make(const char *directory, const char *origin, uint64_t segment, struct note_signer *signer,
			     struct error *error)
{
	char path[PATH_BYTES];
	key_path(directory, segment, path);
	return make_key(path, origin, signer, error);
}

enum status journal_first_key_make(const char *directory, const char *origin, struct note_signer *signer,
				   struct error *error)
{
	char path[PATH_BYTES];
	snprintf(path, sizeof path, "%.4160s/" FIRST_KEY, directory);
	return make_key(path, origin, signer, error);
}

enum status journal_first_key_name(const char *directory, struct error *error)
{
	char path[PATH_BYTES], named[PATH_BYTES];
	snprintf(path, sizeof path, "%.4160s/" FIRST_KEY, directory);
	key_path(directory, 0, named);
	if (!rename(path, named) && sync_folder(directory))
		return STATUS_OK;
	enum status status = error_errno(error, STATUS_UNAVAILABLE, errno, "cannot rename %.200s", path);
	error_hint(error, "check the permissions and the free space of the data directory");
	return status;
}

static enum status unfit(struct error *error, const char *path, const char *why)
{
	error_set(error, STATUS_UNAVAILABLE, "%.200s: %s", path, why);
	error_hint(error,
		   "restore the whole data directory, state.db and audit/, from one backup, or move both away to "
		   "begin a new log");
	return STATUS_UNAVAILABLE;
}

enum status journal_key_load(const char *directory, const struct note_key *key, uint64_t segment,
			     struct note_signer *signer, struct error *error)
{
	char path[PATH_BYTES];
	struct buffer bytes;
	key_path(directory, segment, path);
	buffer_init(&bytes, 4 * NOTE_KEY_BYTES);
	enum status status = private_file_read(path, &bytes, error);
	if (status == STATUS_NOT_FOUND && !segment &&
	    !journal_first_key_name(directory, &(struct error){.status = STATUS_OK}))
		status = private_file_read(path, &bytes, error);
	if (status == STATUS_NOT_FOUND)
		status = unfit(error, path, "the key of the audit log's newest segment is not there");
	else if (!status && bytes.length != NOTE_KEY_BYTES)
		status = unfit(error, path, "this is not a key");
	else if (!status && note_key_load(signer, NOTE_ED25519, key->name, bytes.data))
		status = unfit(error, path, "this key cannot be used");
	else if (!status && memcmp(signer->key.public_key, key->public_key, NOTE_KEY_BYTES) != 0)
		status = unfit(error, path, "this is not the key of the audit log's newest segment");
	if (bytes.data)
		OPENSSL_cleanse(bytes.data, bytes.capacity);
	buffer_finish(&bytes);
	return status;
}

static void destroy_file(const char *directory, const char *path)
{
	static const uint8_t nothing[NOTE_KEY_BYTES];
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return;
	bool gone = fd >= 0 && write(fd, nothing, sizeof nothing) == sizeof nothing && !fsync(fd);
	if (fd >= 0)
		close(fd);
	gone = !unlink(path) && sync_folder(directory) && gone;
	if (!gone)
		log_error("audit", "%s, a key that is no longer used, could not be destroyed: %s", path,
			  strerror(errno));
}

bool journal_keys_found(const char *directory)
{
	bool found = false;
	DIR *folder = opendir(directory);
	for (struct dirent *file; folder && (file = readdir(folder));)
		found = found || !strncmp(file->d_name, KEY_PREFIX, strlen(KEY_PREFIX));
	if (folder)
		closedir(folder);
	return found;
}

void journal_key_destroy(const char *directory, uint64_t segment)
{
	char path[PATH_BYTES];
	key_path(directory, segment, path);
	destroy_file(directory, path);
}

void journal_keys_sweep(const char *directory, uint64_t segment)
{
	char path[PATH_BYTES], kept[64];
	snprintf(kept, sizeof kept, KEY_PREFIX "%" PRIu64, segment);
	DIR *folder = opendir(directory);
	if (!folder)
		return;
	for (struct dirent *file; (file = readdir(folder));) {
		if (strncmp(file->d_name, KEY_PREFIX, strlen(KEY_PREFIX)) != 0 || !strcmp(file->d_name, kept))
			continue;
		snprintf(path, sizeof path, "%.4000s/%.200s", directory, file->d_name);
		destroy_file(directory, path);
	}
	closedir(folder);
}
