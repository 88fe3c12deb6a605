/* See pins.h. A pin is a few lines: the key of its segment, the log's first key, and the signed note. */
#include "server/cli/pins.h"

#include "common/files/private_file.h"
#include "common/text/base64.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIN_BYTES = NOTE_BYTES + 2 * NOTE_KEY_TEXT_BYTES };

static enum status make_folders(char *path, struct error *error)
{
	for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		int made = mkdir(path, 0700);
		*slash = '/';
		if (made && errno != EEXIST)
			return error_errno(error, STATUS_UNAVAILABLE, errno, "cannot make the folder of %.200s", path);
	}
	return STATUS_OK;
}

static enum status state_folder(char *path, size_t size, struct error *error)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int length = -1;
	if (state && state[0] == '/')
		length = snprintf(path, size, "%s/exogpu/audit", state);
	else if (home && home[0] == '/')
		length = snprintf(path, size, "%s/.local/state/exogpu/audit", home);
	if (length < 0 || (size_t)length >= size)
		return error_set(error, STATUS_UNAVAILABLE, "there is no home directory to remember heads in");
	return STATUS_OK;
}

static bool read_line(char **at, char *line, size_t size)
{
	char *end = strchr(*at, '\n');
	if (!end || (size_t)(end - *at) >= size)
		return false;
	memcpy(line, *at, (size_t)(end - *at));
	line[end - *at] = 0;
	*at = end + 1;
	return true;
}

static void read_pin(struct pin *pin)
{
	struct buffer text;
	struct error error = {.status = STATUS_OK};
	char line[NOTE_KEY_TEXT_BYTES];
	buffer_init(&text, PIN_BYTES);
	enum status status = private_file_read(pin->path, &text, &error);
	char *at = text.data ? (char *)text.data : NULL;
	if (!status && at)
		pin->there = read_line(&at, line, sizeof line) && !note_key_parse(&pin->key, line) &&
			     read_line(&at, line, sizeof line) && !note_key_parse(&pin->first_key, line) &&
			     strlen(at) < sizeof pin->note && !checkpoint_parse(&pin->checkpoint, at, &error) &&
			     note_check(at, &pin->key, NULL);
	if (pin->there)
		memcpy(pin->note, at, strlen(at) + 1);
	else if (status != STATUS_NOT_FOUND)
		fprintf(stderr, "exogpu: %s is not a remembered head and is ignored\n", pin->path);
	buffer_finish(&text);
}

static void read_place(struct pin *pin)
{
	struct buffer text;
	buffer_init(&text, 2 * NOTE_NAME_BYTES);
	if (!private_file_read(pin->place_path, &text, NULL))
		snprintf(pin->place_origin, sizeof pin->place_origin, "%.*s", (int)strcspn(buffer_text(&text), "\n"),
			 buffer_text(&text));
	buffer_finish(&text);
}

enum status pin_load(struct pin *pin, const char *origin, const char *place, struct error *error)
{
	char folder[4096];
	unsigned char digest[32];
	*pin = (struct pin){.there = false};
	if (!origin[0] || strpbrk(origin, "/") || origin[0] == '.')
		return error_set(error, STATUS_INVALID_PARAMS, "this log has no name to remember it by");
	enum status status = state_folder(folder, sizeof folder, error);
	if (status)
		return status;
	if (EVP_Digest(place, strlen(place), digest, NULL, EVP_sha256(), NULL) != 1)
		return error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
	snprintf(pin->path, sizeof pin->path, "%s/%s", folder, origin);
	int length = snprintf(pin->place_path, sizeof pin->place_path, "%s/at-", folder);
	for (size_t i = 0; i < 8; i++)
		length += snprintf(pin->place_path + length, sizeof pin->place_path - (size_t)length, "%02x",
				   digest[i]);
	read_pin(pin);
	read_place(pin);
	return STATUS_OK;
}

enum status pin_save(const struct pin *pin, const struct pin_head *head, struct error *error)
{
	char path[PIN_PATH_BYTES], key[NOTE_KEY_TEXT_BYTES], first_key[NOTE_KEY_TEXT_BYTES];
	struct buffer text;
	snprintf(path, sizeof path, "%s", pin->path);
	enum status status = make_folders(path, error);
	if (status)
		return status;
	note_key_print(&head->key, key);
	note_key_print(&head->first_key, first_key);
	buffer_init(&text, PIN_BYTES);
	status = buffer_printf(&text, "%s\n%s\n%s", key, first_key, head->note);
	if (!status)
		status = private_file_write(
			&(struct private_file){
				.path = pin->path, .bytes = text.data, .length = text.length, .sync = true},
			error);
	buffer_clear(&text);
	if (!status && strcmp(pin->place_origin, head->key.name) != 0) {
		status = buffer_printf(&text, "%s\n", head->key.name);
		if (!status)
			status = private_file_write(&(struct private_file){.path = pin->place_path,
									   .bytes = text.data,
									   .length = text.length},
						    error);
	}
	buffer_finish(&text);
	return status;
}

// ---- a server's answer ----

static bool read_proof(const struct json *proof, struct tree_proof *into)
{
	into->count = 0;
	for (const struct json *hash = json_first(json_get(proof, "hashes")); hash; hash = json_next(hash)) {
		const char *text = json_string(hash, "");
		if (into->count == TREE_PROOF_HASHES ||
		    !base64_decode(text, strlen(text), into->hashes[into->count++].bytes, TREE_HASH_BYTES))
			return false;
	}
	return true;
}

// From the pinned key to the head's, each signed by the one before.
static bool follow_keys(const struct pin *pin, const struct json *proof, struct note_key *key)
{
	struct succession succession;
	struct error ignored = {.status = STATUS_OK};
	*key = pin->key;
	for (const struct json *one = json_first(json_get(proof, "segments")); one; one = json_next(one)) {
		const char *certificate = json_get_string(one, "certificate", "");
		if (succession_parse(&succession, certificate, &ignored) || !note_check(certificate, key, NULL) ||
		    strcmp(succession.origin, pin->checkpoint.origin) != 0)
			return false;
		*key = succession.key;
	}
	return true;
}

static bool same_key(const struct note_key *a, const struct note_key *b)
{
	return !strcmp(a->name, b->name) && !memcmp(a->public_key, b->public_key, NOTE_KEY_BYTES);
}

enum journal_verdict pin_compare(const struct pin *pin, const struct json *answer, struct pin_head *head, char *text,
				 size_t size)
{
	struct checkpoint checkpoint;
	struct tree_proof hashes;
	struct note_key key;
	struct error error = {.status = STATUS_OK};
	const struct json *proof = json_get(answer, "proof");
	head->note = json_get_string(answer, "checkpoint", "");
	if (checkpoint_parse(&checkpoint, head->note, &error) ||
	    note_key_parse(&head->key, json_get_string(answer, "key", "")) ||
	    note_key_parse(&head->first_key, json_get_string(answer, "first_key", "")) ||
	    strcmp(checkpoint.origin, head->key.name) != 0 || !note_check(head->note, &head->key, NULL)) {
		snprintf(text, size, "the server's head of the audit log has no good signature");
		return JOURNAL_BAD_SIGNATURE;
	}
	if (pin->place_origin[0] && strcmp(pin->place_origin, checkpoint.origin) != 0) {
		snprintf(text, size,
			 "the log that you saw here before was %s; this is another one, %s. If it was begun "
			 "anew on purpose, remove %s",
			 pin->place_origin, checkpoint.origin, pin->place_path);
		return JOURNAL_FORKED;
	}
	if (!pin->there)
		return JOURNAL_HOLDS;
	if (!same_key(&pin->first_key, &head->first_key)) {
		snprintf(text, size, "the log's first key is not the one that you saw before");
		return JOURNAL_WRONG_KEY;
	}
	if (checkpoint.size < pin->checkpoint.size) {
		snprintf(text, size, "you have seen %" PRIu64 " entries of this log; the server shows %" PRIu64,
			 pin->checkpoint.size, checkpoint.size);
		return JOURNAL_TRUNCATED;
	}
	if (!read_proof(proof, &hashes) || !tree_check_consistency(pin->checkpoint.size, &pin->checkpoint.root,
								   checkpoint.size, &checkpoint.root, &hashes)) {
		snprintf(text, size, "the log does not continue the %" PRIu64 " entries that you have seen of it",
			 pin->checkpoint.size);
		return JOURNAL_FORKED;
	}
	if (!follow_keys(pin, proof, &key) || !same_key(&key, &head->key)) {
		snprintf(text, size, "the log's key does not come from the one that you saw before");
		return JOURNAL_WRONG_KEY;
	}
	return JOURNAL_HOLDS;
}
