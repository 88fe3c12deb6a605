/* See witness.h. */
#include "engine/node/witness.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/files/private_file.h"
#include "common/journal/note.h"
#include "common/net/tls/tls.h"
#include "common/text/base64.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	PATH_BYTES = 4096 + 32,
	KEY_FILE_BYTES = BASE64_TEXT_BYTES(NOTE_KEY_BYTES),
	LOG_KEY_BYTES = NOTE_KEY_TEXT_BYTES + 48,
	REFUSED_MOST = 8, // files of evidence
};

// The state of the witness.
struct held {
	struct checkpoint head; // size 0: nothing
	char *note;             // with both signatures
	uint64_t segment, first;
	struct note_key key; // of the segment
};

struct witness {
	struct net_loop *loop;
	char folder[4096], node_id[80], server[NET_CERTIFICATE_URI_BYTES];
	bool loaded;
	struct note_signer signer;
	struct held held;
	// A head that is being saved.
	bool saving;
	pthread_t thread;
	struct net_watch *watch; // of an eventfd, by which the thread says that it is done
	int done_fd;
	struct held next;
	struct error fault; // the thread's, until it is joined
	char cosignature[256];
	witness_done *done;
	void *context;
};

enum status witness_create(struct witness **out, const struct witness_params *params)
{
	struct witness *witness = calloc(1, sizeof(*witness));
	*out = witness;
	if (!witness)
		return STATUS_OUT_OF_MEMORY;
	witness->loop = params->loop;
	snprintf(witness->folder, sizeof(witness->folder), "%s/witness", params->directory);
	snprintf(witness->node_id, sizeof(witness->node_id), "%s", params->node_id);
	snprintf(witness->server, sizeof(witness->server), "%s", params->server);
	return STATUS_OK;
}

static void held_finish(struct held *held)
{
	free(held->note);
	*held = (struct held){0};
}

void witness_destroy(struct witness **pointer)
{
	struct witness *witness = *pointer;
	struct error error = {0};
	if (!witness)
		return;
	*pointer = NULL;
	if (witness->saving) {
		pthread_join(witness->thread, NULL);
		error_set(&error, STATUS_UNAVAILABLE, "the node is stopping");
		witness->done(witness->context, NULL, &error);
	}
	net_watch_destroy(&witness->watch);
	held_finish(&witness->next);
	held_finish(&witness->held);
	note_signer_finish(&witness->signer);
	free(witness);
}

// ---- files ----

static const char *path_of(const struct witness *witness, const char *name, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%s/%s", witness->folder, name);
	return path;
}

static enum status write_file(const struct witness *witness, const char *name, const char *text, struct error *error)
{
	char path[PATH_BYTES];
	return private_file_write(
		&(struct private_file){
			.path = path_of(witness, name, path), .bytes = text, .length = strlen(text), .sync = true},
		error);
}

// STATUS_NOT_FOUND, without a message, if there is none.
static enum status read_file(const struct witness *witness, const char *name, struct buffer *text, struct error *error)
{
	char path[PATH_BYTES];
	enum status status = private_file_read(path_of(witness, name, path), text, error);
	if (!status && strlen(buffer_text(text)) != text->length)
		status = STATUS_INVALID_PARAMS;
	return status;
}

static enum status damaged(const struct witness *witness, const char *name, struct error *error)
{
	error_set(error, STATUS_UNAVAILABLE, "%.300s/%s is damaged", witness->folder, name);
	error_hint(error, "compare what is there with the server's log (exogpu audit verify --witness), then move the "
			  "folder away: the node begins anew");
	return STATUS_UNAVAILABLE;
}

static enum status make_key(struct witness *witness, const char *name, struct error *error)
{
	char text[KEY_FILE_BYTES];
	if (note_key_make(&witness->signer, NOTE_COSIGNATURE, name))
		return error_set(error, STATUS_UNAVAILABLE, "no key could be made for the witness %s", name);
	base64_encode(witness->signer.private_key, NOTE_KEY_BYTES, text);
	enum status status = write_file(witness, "key", text, error);
	explicit_bzero(text, sizeof(text));
	return status;
}

static enum status load_key(struct witness *witness, struct error *error)
{
	uint8_t private_key[NOTE_KEY_BYTES];
	char name[NOTE_NAME_BYTES];
	struct buffer text;
	buffer_init(&text, KEY_FILE_BYTES);
	snprintf(name, sizeof(name), "exogpu-witness-%.79s", witness->node_id);
	enum status status = read_file(witness, "key", &text, error);
	if (status == STATUS_NOT_FOUND)
		status = make_key(witness, name, error);
	else if (!status && (!base64_decode(buffer_text(&text), text.length, private_key, sizeof(private_key)) ||
			     note_key_load(&witness->signer, NOTE_COSIGNATURE, name, private_key)))
		status = damaged(witness, "key", error);
	explicit_bzero(private_key, sizeof(private_key));
	if (text.data)
		explicit_bzero(text.data, text.length);
	buffer_finish(&text);
	return status;
}

static void print_log_key(const struct held *held, char text[LOG_KEY_BYTES])
{
	char key[NOTE_KEY_TEXT_BYTES];
	note_key_print(&held->key, key);
	snprintf(text, LOG_KEY_BYTES, "%" PRIu64 " %" PRIu64 " %s\n", held->segment, held->first, key);
}

// Exactly what print_log_key writes.
static bool parse_log_key(struct held *held, const char *text)
{
	char key[NOTE_KEY_TEXT_BYTES] = "", again[LOG_KEY_BYTES];
	if (sscanf(text, "%" SCNu64 " %" SCNu64 " %159s", &held->segment, &held->first, key) != 3 ||
	    note_key_parse(&held->key, key))
		return false;
	print_log_key(held, again);
	return !strcmp(text, again);
}

static enum status load_head(struct witness *witness, struct error *error)
{
	struct held held = {0};
	struct buffer note, key;
	buffer_init(&note, NOTE_BYTES);
	buffer_init(&key, LOG_KEY_BYTES);
	enum status status = read_file(witness, "head", &note, error);
	if (status) // none: it has seen no head yet
		status = status == STATUS_NOT_FOUND ? STATUS_OK : damaged(witness, "head", error);
	else if (read_file(witness, "log-key", &key, NULL) || !parse_log_key(&held, buffer_text(&key)))
		status = damaged(witness, "log-key", error);
	else if (checkpoint_parse(&held.head, buffer_text(&note), NULL) || !held.head.size ||
		 !note_check(buffer_text(&note), &witness->signer.key, NULL))
		status = damaged(witness, "head", error);
	else if (!(held.note = strdup(buffer_text(&note))))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a head of the audit log");
	buffer_finish(&note);
	buffer_finish(&key);
	if (!status)
		witness->held = held;
	return status;
}

static enum status make_folder(const struct witness *witness, struct error *error)
{
	if (!mkdir(witness->folder, 0700) || errno == EEXIST)
		return STATUS_OK;
	return error_errno(error, STATUS_UNAVAILABLE, errno, "%.300s cannot be made", witness->folder);
}

static enum status set_aside(const struct witness *witness, struct error *error)
{
	char aside[PATH_BYTES];
	snprintf(aside, sizeof(aside), "%s-%" PRId64, witness->folder, clock_wall_ms());
	if (rename(witness->folder, aside))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%.300s cannot be renamed", witness->folder);
	log_warning("witness", "this node had signed the log of another cluster: its files are moved to %.300s", aside);
	return make_folder(witness, error);
}

// Open the folder of this cluster's log. If another server of the same cluster has another log, the folder is kept.
static enum status open_folder(const struct witness *witness, struct error *error)
{
	struct buffer text;
	enum status status = make_folder(witness, error);
	if (status)
		return status;
	buffer_init(&text, sizeof(witness->server));
	status = read_file(witness, "cluster", &text, error);
	bool known = !status;
	if (known && strcmp(buffer_text(&text), witness->server) != 0) {
		status = set_aside(witness, error);
		known = false;
	}
	if ((!known && !status) || status == STATUS_NOT_FOUND)
		status = write_file(witness, "cluster", witness->server, error);
	buffer_finish(&text);
	return status;
}

static void saved(void *arg, int fd);
static const struct net_watch_events save_events = {.readable = saved};

static enum status watch_saving(struct witness *witness, struct error *error)
{
	if (witness->watch)
		return STATUS_OK;
	witness->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (witness->done_fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "eventfd");
	enum status status = net_watch_create(&witness->watch, witness->loop, witness->done_fd, &save_events, witness,
					      error);
	if (status)
		close(witness->done_fd);
	return status;
}

static enum status load(struct witness *witness, struct error *error)
{
	if (witness->loaded)
		return STATUS_OK;
	enum status status = watch_saving(witness, error);
	if (status)
		return status;
	status = open_folder(witness, error);
	if (!status)
		status = load_key(witness, error);
	if (!status)
		status = load_head(witness, error);
	witness->loaded = !status;
	return status;
}

// ---- requests ----

struct asked {
	const struct json *params;
	const char *note;
	struct checkpoint head;
	uint64_t from;
	struct tree_proof proof;
};

static bool read_proof(const struct json *array, struct tree_proof *proof)
{
	proof->count = 0;
	for (const struct json *one = json_first(array); one; one = json_next(one)) {
		const char *text = json_string(one, "");
		if (proof->count == TREE_PROOF_HASHES ||
		    !base64_decode(text, strlen(text), proof->hashes[proof->count++].bytes, TREE_HASH_BYTES))
			return false;
	}
	return true;
}

static enum status read_asked(struct asked *asked, const struct json *params, struct error *error)
{
	asked->params = params;
	asked->note = json_get_string(params, "checkpoint", "");
	asked->from = (uint64_t)json_get_integer(params, "from", 0);
	if (!read_proof(json_get(params, "proof"), &asked->proof))
		return error_set(error, STATUS_INVALID_PARAMS, "the proof is not of hashes in Base64");
	return checkpoint_parse(&asked->head, asked->note, error);
}

static bool same_key(const struct note_key *a, const struct note_key *b)
{
	return a->algorithm == b->algorithm && !strcmp(a->name, b->name) &&
	       !memcmp(a->public_key, b->public_key, NOTE_KEY_BYTES);
}

// Follow one segment to the key that took over: *held is updated. False, with why, if the key before it did not sign
// the hand-over.
static bool follow(struct held *held, const struct json *segment, const char *origin, const char **why)
{
	struct note_key key;
	struct succession succession;
	uint64_t number = (uint64_t)json_get_integer(segment, "number", 0);
	uint64_t first = (uint64_t)json_get_integer(segment, "first", 0);
	const char *certificate = json_get_string(segment, "certificate", "");
	*why = "a key that it names is not one of this log's";
	if (note_key_parse(&key, json_get_string(segment, "key", "")) || key.algorithm != NOTE_ED25519 ||
	    strcmp(key.name, origin) != 0)
		return false;
	if (!held->key.algorithm) { // the first that it ever sees
		*held = (struct held){.segment = number, .first = first, .key = key};
		return true;
	}
	if (number <= held->segment)
		return number < held->segment || (first == held->first && same_key(&key, &held->key));
	*why = "its key was not passed on by the one that this node knows";
	if (number != held->segment + 1 || succession_parse(&succession, certificate, NULL) ||
	    strcmp(succession.origin, origin) != 0 || succession.number != number || succession.first != first ||
	    !same_key(&succession.key, &key) || first < held->first || !note_check(certificate, &held->key, NULL))
		return false;
	held->segment = number;
	held->first = first;
	held->key = key;
	return true;
}

// Compute the state after this head, with its keys. False, with why: the head does not continue the state.
static bool continues(const struct witness *witness, const struct asked *asked, struct held *next, const char **why)
{
	const struct held *held = &witness->held;
	*next = (struct held){.head = asked->head, .segment = held->segment, .first = held->first, .key = held->key};
	*why = "it is of another log";
	if (held->head.size && strcmp(held->head.origin, asked->head.origin) != 0)
		return false;
	const struct json *segment = json_first(json_get(asked->params, "segments"));
	for (; segment; segment = json_next(segment))
		if (!follow(next, segment, asked->head.origin, why))
			return false;
	next->head = asked->head;
	*why = "it is not signed by the log's key of that range";
	if (!next->key.algorithm || asked->head.size < next->first || !note_check(asked->note, &next->key, NULL))
		return false;
	*why = "it has fewer entries";
	if (asked->head.size < held->head.size)
		return false;
	*why = "nothing proves that its entries continue those";
	return tree_check_consistency(held->head.size, &held->head.root, asked->head.size, &asked->head.root,
				      &asked->proof);
}

// Keep a refused head: an investigation needs both heads, the one held here and that one.
static void keep_evidence(const struct witness *witness, const struct asked *asked, const char *why)
{
	char name[32], path[PATH_BYTES], at[CLOCK_TEXT_BYTES];
	struct buffer text;
	int number = 1;
	while (number <= REFUSED_MOST) {
		snprintf(name, sizeof(name), "refused-%d", number);
		if (access(path_of(witness, name, path), F_OK))
			break;
		number++;
	}
	if (number > REFUSED_MOST)
		return;
	struct json *evidence = json_new_object();
	json_set_string(evidence, "at", clock_format(clock_wall_ms(), at));
	json_set_string(evidence, "why", why);
	json_set_string(evidence, "held", witness->held.note);
	json_set(evidence, "shown", json_copy(asked->params));
	buffer_init(&text, 2 * LIMIT_HEAD_BYTES);
	// Not synced: the loop does not wait, and the server keeps the same in its own log.
	if (!json_print(evidence, &text))
		private_file_write(
			&(struct private_file){.path = path, .bytes = buffer_text(&text), .length = text.length}, NULL);
	buffer_finish(&text);
	json_destroy(&evidence);
}

static enum status refuse(const struct witness *witness, const struct asked *asked, const char *why,
			  struct error *error)
{
	log_error("witness",
		  "the server shows a head of %" PRIu64 " entries that does not continue the %" PRIu64
		  " which this node has signed: %s; not signed, and kept in %.200s",
		  asked->head.size, witness->held.head.size, why, witness->folder);
	keep_evidence(witness, asked, why);
	error_set(error, STATUS_CONFLICT,
		  "this head of %" PRIu64 " entries does not continue the %" PRIu64 " that were signed: %s",
		  asked->head.size, witness->held.head.size, why);
	error_hint(error, "the log was cut, replaced or restored from a backup: see exogpu audit verify --witness with "
			  "DATA/node/witness/head of this node");
	return STATUS_CONFLICT;
}

enum status witness_held(struct witness *witness, struct json **result, struct error *error)
{
	char key[NOTE_KEY_TEXT_BYTES];
	enum status status = load(witness, error);
	if (status)
		return status;
	*result = json_new_object();
	note_key_print(&witness->signer.key, key);
	json_set_integer(*result, "size", (int64_t)witness->held.head.size);
	json_set_string(*result, "key", key);
	json_set_string(*result, "note", witness->held.note);
	return STATUS_OK;
}

// ---- signing ----

static struct json *result_json(const struct witness *witness, const char *cosignature)
{
	char key[NOTE_KEY_TEXT_BYTES];
	struct json *result = json_new_object();
	note_key_print(&witness->signer.key, key);
	json_set_integer(result, "size", (int64_t)witness->held.head.size);
	json_set_string(result, "key", key);
	json_set(result, "cosignature", json_new_string(cosignature));
	return result;
}

// The note with the witness' line at its end; the line by itself, without its end.
static enum status cosign(const struct witness *witness, const char *text, char **signed_note,
			  char line[sizeof(witness->cosignature)], struct error *error)
{
	struct buffer note;
	buffer_init(&note, NOTE_BYTES);
	enum status status = buffer_append_text(&note, text);
	size_t before = note.length;
	if (!status)
		status = note_sign(&note, &witness->signer, clock_wall_ms() / 1000);
	if (!status)
		snprintf(line, sizeof(witness->cosignature), "%.*s", (int)(note.length - before - 1),
			 buffer_text(&note) + before);
	if (!status && !(*signed_note = strdup(buffer_text(&note))))
		status = STATUS_OUT_OF_MEMORY;
	buffer_finish(&note);
	return status ? error_set(error, status, "the head could not be signed") : STATUS_OK;
}

static void saved(void *arg, int fd)
{
	struct witness *witness = arg;
	uint64_t count;
	if (read(fd, &count, sizeof(count)) != sizeof(count) || !witness->saving)
		return;
	pthread_join(witness->thread, NULL);
	const struct error fault = witness->fault;
	witness_done *done = witness->done;
	witness->saving = false;
	if (fault.status) {
		held_finish(&witness->next);
		done(witness->context, NULL, &fault);
		return;
	}
	held_finish(&witness->held);
	witness->held = witness->next;
	witness->next = (struct held){0};
	done(witness->context, result_json(witness, witness->cosignature), NULL);
}

// The key before the head: what a crash leaves between the two is a key that is known early, and not a head without.
static void *save(void *arg)
{
	struct witness *witness = arg;
	char key[LOG_KEY_BYTES];
	print_log_key(&witness->next, key);
	if (!write_file(witness, "log-key", key, &witness->fault))
		write_file(witness, "head", witness->next.note, &witness->fault);
	eventfd_write(witness->done_fd, 1);
	return NULL;
}

static enum status try_sign(struct witness *witness, const struct json *params, struct json **result,
			    struct error *error)
{
	struct asked asked;
	struct held next;
	const char *why = "";
	char *note = NULL;
	if (witness->saving)
		return error_set(error, STATUS_RATE_LIMITED, "another head is being saved");
	enum status status = load(witness, error);
	if (!status)
		status = read_asked(&asked, params, error);
	if (status)
		return status;
	if (asked.from != witness->held.head.size) {
		*result = result_json(witness, NULL);
		return STATUS_OK;
	}
	if (!continues(witness, &asked, &next, &why))
		return refuse(witness, &asked, why, error);
	status = cosign(witness, asked.note, &note, witness->cosignature, error);
	if (status)
		return status;
	if (next.head.size == witness->held.head.size) { // the same once more: nothing new to keep
		free(note);
		*result = result_json(witness, witness->cosignature);
		return STATUS_OK;
	}
	next.note = note;
	witness->next = next;
	witness->fault = (struct error){0};
	int failure = pthread_create(&witness->thread, NULL, save, witness);
	if (failure) {
		held_finish(&witness->next);
		return error_errno(error, STATUS_UNAVAILABLE, failure, "starting to save a head of the audit log");
	}
	witness->saving = true;
	return STATUS_PENDING;
}

void witness_sign(struct witness *witness, const struct json *params, witness_done *done, void *context)
{
	struct error error = {0};
	struct json *result = NULL;
	enum status status = try_sign(witness, params, &result, &error);
	if (status == STATUS_PENDING) {
		witness->done = done;
		witness->context = context;
		return;
	}
	if (status)
		error_set(&error, status, "%s", status_text(status));
	done(context, result, status ? &error : NULL);
}
