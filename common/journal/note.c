/* See note.h. A cursor parses a note and accepts
 * exactly what may come next. So an accepted note
 * is byte for byte what this file would have
 * written. */
#include "common/journal/note.h"

#include "common/text/base64.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#define DASH "\xe2\x80\x94 " // an em dash and a space begin a line of signatures
#define SEGMENT "/segment"

enum {
	ID_BYTES = 4,
	TIME_BYTES = 8,
	LINE_BYTES = ID_BYTES + TIME_BYTES + NOTE_SIGNATURE_BYTES, // at most
	HASH_TEXT_BYTES = BASE64_TEXT_BYTES(TREE_HASH_BYTES),
	KEY_BYTES = 1 + NOTE_KEY_BYTES, // algorithm and key
};

static bool valid_name(const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (name[i] <= ' ' || name[i] > '~' || name[i] == '+')
			return false;
	return length > 0 && length < NOTE_NAME_BYTES;
}

// Keys.

static enum status digest_key(const struct note_key *key, uint8_t id[ID_BYTES])
{
	uint8_t bytes[NOTE_NAME_BYTES + 2 + NOTE_KEY_BYTES], digest[EVP_MAX_MD_SIZE];
	size_t length = strlen(key->name);
	memcpy(bytes, key->name, length);
	bytes[length++] = '\n';
	bytes[length++] = (uint8_t)key->algorithm;
	memcpy(bytes + length, key->public_key, NOTE_KEY_BYTES);
	if (EVP_Digest(bytes, length + NOTE_KEY_BYTES, digest, NULL, EVP_sha256(), NULL) != 1)
		return STATUS_OUT_OF_MEMORY;
	memcpy(id, digest, ID_BYTES);
	return STATUS_OK;
}

enum status note_key_load(struct note_signer *signer, enum note_algorithm algorithm, const char *name,
			  const uint8_t private_key[NOTE_KEY_BYTES])
{
	struct note_signer made = {.key.algorithm = algorithm};
	size_t length = strnlen(name, NOTE_NAME_BYTES), public_bytes = NOTE_KEY_BYTES;
	if (algorithm == NOTE_UNKNOWN || !valid_name(name, length))
		return STATUS_INVALID_PARAMS;
	memcpy(made.key.name, name, length);
	EVP_PKEY *pair = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, private_key, NOTE_KEY_BYTES);
	bool loaded = pair && EVP_PKEY_get_raw_public_key(pair, made.key.public_key, &public_bytes) == 1 &&
		      public_bytes == NOTE_KEY_BYTES;
	EVP_PKEY_free(pair);
	if (!loaded)
		return STATUS_UNAVAILABLE;
	*signer = made;
	memcpy(signer->private_key, private_key, NOTE_KEY_BYTES);
	return STATUS_OK;
}

enum status note_key_make(struct note_signer *signer, enum note_algorithm algorithm, const char *name)
{
	uint8_t private_key[NOTE_KEY_BYTES];
	if (RAND_priv_bytes(private_key, sizeof(private_key)) != 1)
		return STATUS_UNAVAILABLE;
	enum status status = note_key_load(signer, algorithm, name, private_key);
	OPENSSL_cleanse(private_key, sizeof(private_key));
	return status;
}

void note_signer_finish(struct note_signer *signer)
{
	OPENSSL_cleanse(signer, sizeof(*signer));
}

void note_key_print(const struct note_key *key, char text[NOTE_KEY_TEXT_BYTES])
{
	uint8_t id[ID_BYTES] = {0}, bytes[KEY_BYTES] = {(uint8_t)key->algorithm};
	char base64[BASE64_TEXT_BYTES(KEY_BYTES)];
	digest_key(key, id);
	memcpy(bytes + 1, key->public_key, NOTE_KEY_BYTES);
	base64_encode(bytes, sizeof(bytes), base64);
	snprintf(text, NOTE_KEY_TEXT_BYTES, "%s+%02x%02x%02x%02x+%s", key->name, id[0], id[1], id[2], id[3], base64);
}

enum status note_key_parse(struct note_key *key, const char *text)
{
	struct note_key read = {0};
	uint8_t bytes[KEY_BYTES];
	char again[NOTE_KEY_TEXT_BYTES];
	size_t length = strnlen(text, NOTE_KEY_TEXT_BYTES);
	const char *plus = memchr(text, '+', length);
	if (length == NOTE_KEY_TEXT_BYTES || !plus || !valid_name(text, (size_t)(plus - text)))
		return STATUS_INVALID_PARAMS;
	size_t base64_at = (size_t)(plus - text) + 2 + ID_BYTES * 2;
	if (base64_at > length || !base64_decode(text + base64_at, length - base64_at, bytes, sizeof(bytes)) ||
	    (bytes[0] != NOTE_ED25519 && bytes[0] != NOTE_COSIGNATURE))
		return STATUS_INVALID_PARAMS;
	memcpy(read.name, text, (size_t)(plus - text));
	read.algorithm = (enum note_algorithm)bytes[0];
	memcpy(read.public_key, bytes + 1, NOTE_KEY_BYTES);
	note_key_print(&read, again);
	if (strcmp(text, again) != 0)
		return STATUS_INVALID_PARAMS;
	*key = read;
	return STATUS_OK;
}

// Reading, line by line.

struct reader {
	const char *at;
	const char *wrong; // what is not as it must be; the first stays
};

// A line without its end, which must be there. NULL, and nothing more is read, after a fault.
static const char *take_line(struct reader *reader, size_t *length, const char *wrong)
{
	const char *line = reader->at, *end = reader->wrong ? NULL : strchr(line, '\n');
	if (!end) {
		reader->wrong = reader->wrong ? reader->wrong : wrong;
		return NULL;
	}
	reader->at = end + 1;
	*length = (size_t)(end - line);
	return line;
}

static void take_name(struct reader *reader, char name[NOTE_NAME_BYTES], const char *suffix)
{
	static const char wrong[] = "its first line is not the name of a log";
	size_t length = 0, tail = strlen(suffix);
	const char *line = take_line(reader, &length, wrong);
	if (!line)
		return;
	if (length < tail || memcmp(line + length - tail, suffix, tail) != 0 || !valid_name(line, length - tail)) {
		reader->wrong = wrong;
		return;
	}
	memset(name, 0, NOTE_NAME_BYTES);
	memcpy(name, line, length - tail);
}

static void take_number(struct reader *reader, uint64_t *number)
{
	static const char wrong[] = "a line is not a number";
	size_t length = 0;
	const char *line = take_line(reader, &length, wrong);
	if (!line)
		return;
	*number = 0;
	bool good = length > 0 && length < 20 && (line[0] != '0' || length == 1);
	for (size_t i = 0; good && i < length; i++) {
		good = line[i] >= '0' && line[i] <= '9';
		*number = *number * 10 + (uint64_t)(line[i] - '0');
	}
	if (!good || *number > INT64_MAX)
		reader->wrong = wrong;
}

static void take_hash(struct reader *reader, struct tree_hash *hash)
{
	static const char wrong[] = "a line is not a hash in Base64";
	size_t length = 0;
	const char *line = take_line(reader, &length, wrong);
	if (line && !base64_decode(line, length, hash->bytes, TREE_HASH_BYTES))
		reader->wrong = wrong;
}

static void take_key(struct reader *reader, struct note_key *key)
{
	static const char wrong[] = "a line is not a key";
	size_t length = 0;
	char text[NOTE_KEY_TEXT_BYTES] = {0};
	const char *line = take_line(reader, &length, wrong);
	if (!line)
		return;
	if (length < sizeof(text))
		memcpy(text, line, length);
	if (length >= sizeof(text) || note_key_parse(key, text))
		reader->wrong = wrong;
}

struct signature_line {
	const char *name;
	size_t name_bytes, length;
	uint8_t bytes[LINE_BYTES]; // id, time (of a cosignature), signature
};

static void take_signature(struct reader *reader, struct signature_line *signature)
{
	static const char wrong[] = "a line is not a signature";
	size_t length = 0, dash = strlen(DASH);
	const char *line = take_line(reader, &length, wrong);
	if (!line)
		return;
	const char *space = length > dash ? memchr(line + dash, ' ', length - dash) : NULL;
	if (!space || memcmp(line, DASH, dash) != 0 || !valid_name(line + dash, (size_t)(space - line) - dash)) {
		reader->wrong = wrong;
		return;
	}
	signature->name = line + dash;
	signature->name_bytes = (size_t)(space - line) - dash;
	const char *base64 = space + 1;
	size_t base64_bytes = (size_t)(line + length - base64);
	signature->length = LINE_BYTES;
	if (base64_decode(base64, base64_bytes, signature->bytes, LINE_BYTES))
		return;
	signature->length = LINE_BYTES - TIME_BYTES;
	if (!base64_decode(base64, base64_bytes, signature->bytes, signature->length))
		reader->wrong = wrong;
}

// The empty line after the text, and all signatures, which are only well formed.
static void take_end(struct reader *reader)
{
	struct signature_line signature;
	size_t length = 0, count = 0;
	if (take_line(reader, &length, "there is no empty line after the text") && length)
		reader->wrong = "there are more lines than such a text has";
	while (!reader->wrong && *reader->at) {
		take_signature(reader, &signature);
		if (++count > NOTE_SIGNATURES)
			reader->wrong = "it has too many signatures";
	}
}

static enum status begin_reading(struct reader *reader, const char *note, struct error *error)
{
	*reader = (struct reader){.at = note};
	if (strnlen(note, NOTE_BYTES + 1) > NOTE_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "a note has %d bytes at most", NOTE_BYTES);
	return STATUS_OK;
}

// Checkpoints and successions.

static enum status print_hash(const struct tree_hash *hash, struct buffer *note)
{
	char text[HASH_TEXT_BYTES];
	base64_encode(hash->bytes, TREE_HASH_BYTES, text);
	return buffer_printf(note, "%s\n", text);
}

enum status checkpoint_print(const struct checkpoint *checkpoint, struct buffer *note)
{
	buffer_printf(note, "%s\n%llu\n", checkpoint->origin, (unsigned long long)checkpoint->size);
	print_hash(&checkpoint->root, note);
	return buffer_append_byte(note, '\n');
}

enum status checkpoint_parse(struct checkpoint *checkpoint, const char *note, struct error *error)
{
	struct reader reader;
	enum status status = begin_reading(&reader, note, error);
	if (status)
		return status;
	take_name(&reader, checkpoint->origin, "");
	take_number(&reader, &checkpoint->size);
	take_hash(&reader, &checkpoint->root);
	take_end(&reader);
	return reader.wrong ? error_set(error, STATUS_INVALID_PARAMS, "this is no checkpoint: %s", reader.wrong)
			    : STATUS_OK;
}

enum status succession_print(const struct succession *succession, struct buffer *note)
{
	char key[NOTE_KEY_TEXT_BYTES];
	note_key_print(&succession->key, key);
	buffer_printf(note, "%s" SEGMENT "\n%llu\n%llu\n", succession->origin, (unsigned long long)succession->number,
		      (unsigned long long)succession->first);
	print_hash(&succession->root, note);
	return buffer_printf(note, "%s\n\n", key);
}

enum status succession_parse(struct succession *succession, const char *note, struct error *error)
{
	struct reader reader;
	enum status status = begin_reading(&reader, note, error);
	if (status)
		return status;
	take_name(&reader, succession->origin, SEGMENT);
	take_number(&reader, &succession->number);
	take_number(&reader, &succession->first);
	take_hash(&reader, &succession->root);
	take_key(&reader, &succession->key);
	take_end(&reader);
	return reader.wrong ? error_set(error, STATUS_INVALID_PARAMS, "this is no change of keys: %s", reader.wrong)
			    : STATUS_OK;
}

// Signatures.

// The bytes that are signed: the text itself, or, in a cosignature, a line with its kind and one with its time before.
static enum status print_signed(struct buffer *bytes, enum note_algorithm algorithm, uint64_t at_s, const char *note,
				size_t text_bytes)
{
	if (algorithm == NOTE_COSIGNATURE)
		buffer_printf(bytes, "cosignature/v1\ntime %llu\n", (unsigned long long)at_s);
	return buffer_append(bytes, note, text_bytes);
}

static size_t signature_at(enum note_algorithm algorithm)
{
	return algorithm == NOTE_COSIGNATURE ? ID_BYTES + TIME_BYTES : ID_BYTES;
}

// The end of the text, before the empty line; 0 if there is none. signatures: where they begin.
static size_t text_end(const char *note, const char **signatures)
{
	if (strnlen(note, NOTE_BYTES + 1) > NOTE_BYTES)
		return 0;
	const char *empty = strstr(note, "\n\n");
	if (!empty)
		return 0;
	*signatures = empty + 2;
	return (size_t)(empty + 1 - note);
}

static enum status sign(const struct buffer *message, const uint8_t private_key[NOTE_KEY_BYTES],
			uint8_t signature[NOTE_SIGNATURE_BYTES])
{
	size_t length = NOTE_SIGNATURE_BYTES;
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	EVP_PKEY *pair = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, private_key, NOTE_KEY_BYTES);
	bool done = context && pair && EVP_DigestSignInit(context, NULL, NULL, NULL, pair) == 1 &&
		    EVP_DigestSign(context, signature, &length, message->data, message->length) == 1 &&
		    length == NOTE_SIGNATURE_BYTES;
	EVP_PKEY_free(pair);
	EVP_MD_CTX_free(context);
	return done ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

static enum status count_signatures(const char *note, size_t *count)
{
	struct signature_line signature;
	struct reader reader = {0};
	if (!text_end(note, &reader.at))
		return STATUS_INVALID_PARAMS;
	for (*count = 0; !reader.wrong && *reader.at; ++*count)
		take_signature(&reader, &signature);
	return reader.wrong ? STATUS_INVALID_PARAMS : STATUS_OK;
}

enum status note_sign(struct buffer *note, const struct note_signer *signer, int64_t at_s)
{
	enum note_algorithm algorithm = signer->key.algorithm;
	size_t count = 0, at = signature_at(algorithm);
	const char *signatures = NULL;
	uint8_t line[LINE_BYTES];
	char base64[BASE64_TEXT_BYTES(LINE_BYTES)];
	struct buffer message;
	enum status status = count_signatures(buffer_text(note), &count);
	if (status)
		return status;
	if (at_s < 0 || strlen(buffer_text(note)) != note->length)
		return STATUS_INVALID_PARAMS;
	if (count >= NOTE_SIGNATURES)
		return STATUS_LIMIT_EXCEEDED;
	buffer_init(&message, NOTE_BYTES + 64);
	size_t text_bytes = text_end(buffer_text(note), &signatures);
	status = print_signed(&message, algorithm, (uint64_t)at_s, buffer_text(note), text_bytes);
	if (!status)
		status = digest_key(&signer->key, line);
	for (unsigned i = 0; i < TIME_BYTES; i++) // a signature that has no time lies over it
		line[ID_BYTES + i] = (uint8_t)((uint64_t)at_s >> (56 - 8 * i));
	if (!status)
		status = sign(&message, signer->private_key, line + at);
	buffer_finish(&message);
	if (status)
		return status;
	base64_encode(line, at + NOTE_SIGNATURE_BYTES, base64);
	size_t length = strlen(DASH) + strlen(signer->key.name) + 1 + strlen(base64) + 1;
	if (note->length > NOTE_BYTES || length > NOTE_BYTES - note->length)
		return STATUS_LIMIT_EXCEEDED;
	return buffer_printf(note, DASH "%s %s\n", signer->key.name, base64);
}

static bool verify(const struct buffer *message, const struct note_key *key, const uint8_t *signature)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	EVP_PKEY *public_key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->public_key, NOTE_KEY_BYTES);
	bool good = context && public_key && EVP_DigestVerifyInit(context, NULL, NULL, NULL, public_key) == 1 &&
		    EVP_DigestVerify(context, signature, NOTE_SIGNATURE_BYTES, message->data, message->length) == 1;
	EVP_PKEY_free(public_key);
	EVP_MD_CTX_free(context);
	return good;
}

// Checks one signature line against this key, its name and its id.
static bool check_line(const struct signature_line *line, const struct note_key *key, const char *note,
		       size_t text_bytes, int64_t *at_s)
{
	uint64_t time = 0;
	struct buffer message;
	size_t at = signature_at(key->algorithm);
	if (line->length != at + NOTE_SIGNATURE_BYTES)
		return false;
	if (key->algorithm == NOTE_COSIGNATURE)
		for (unsigned i = 0; i < TIME_BYTES; i++)
			time = time << 8 | line->bytes[ID_BYTES + i];
	if (time > INT64_MAX)
		return false;
	buffer_init(&message, NOTE_BYTES + 64);
	bool good = !print_signed(&message, key->algorithm, time, note, text_bytes) &&
		    verify(&message, key, line->bytes + at);
	buffer_finish(&message);
	if (good && at_s)
		*at_s = (int64_t)time;
	return good;
}

bool note_check(const char *note, const struct note_key *key, int64_t *at_s)
{
	uint8_t id[ID_BYTES];
	struct reader reader = {0};
	struct signature_line line;
	bool found = false;
	size_t text_bytes = text_end(note, &reader.at), name_bytes = strlen(key->name), count = 0;
	if (!text_bytes || key->algorithm == NOTE_UNKNOWN || digest_key(key, id))
		return false;
	while (*reader.at) {
		take_signature(&reader, &line);
		if (reader.wrong || ++count > NOTE_SIGNATURES)
			return false;
		if (line.name_bytes != name_bytes || memcmp(line.name, key->name, name_bytes) != 0 ||
		    memcmp(line.bytes, id, ID_BYTES) != 0)
			continue;
		// A second line of the same key may not be wrong either.
		if (!check_line(&line, key, note, text_bytes, at_s))
			return false;
		found = true;
	}
	return found;
}
