/* audit.*: reading and checking the audit log. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/text/base64.h"
#include "common/wire/said.h"
#include "server/api/call.h"

#include <string.h>

static enum status busy(enum status status, struct error *error)
{
	if (status == STATUS_CONFLICT)
		return error_set(error, status, "the audit log is already being verified; wait for that answer");
	return status ? error_set(error, status, "the audit log cannot be read now") : STATUS_PENDING;
}

static void answered(void *context, enum status status, struct json *result, const struct error *error)
{
	struct api_call *call = context;
	api_finish(call, status, result, error);
}

// ---- audit.list ----

static enum status read_time(const struct json *params, const char *name, int64_t *ms, struct error *error)
{
	const char *text = json_get_string(params, name, NULL);
	*ms = 0;
	if (!text || !clock_parse(text, ms))
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS, "%s must be a time such as 2026-11-20T14:31:52.000Z", name);
}

static enum status audit_list(struct api_call *call, const struct json *params, struct json **result,
			      struct error *error)
{
	(void)result;
	struct store_audit_filter filter = {
		.after = json_get_integer(params, "after", -1),
		.before = json_get_integer(params, "before", 0),
		.limit = (int)json_get_integer(params, "limit", 100),
		.actor = json_get_string(params, "actor", NULL),
		.action = json_get_string(params, "action", NULL),
		.device_id = json_get_string(params, "device_id", NULL),
		.outcome = json_get_string(params, "outcome", NULL),
		.text = json_get_string(params, "text", NULL),
	};
	enum status status = read_time(params, "from", &filter.from_ms, error);
	if (!status)
		status = read_time(params, "to", &filter.to_ms, error);
	if (status)
		return status;
	if (json_get(params, "before") && !filter.before) { // before the first there is none
		*result = json_new_object();
		json_set(*result, "entries", json_new_array());
		json_set_bool(*result, "more", false);
		json_set_null(*result, "next");
		json_set(*result, "gaps", json_new_array());
		return STATUS_OK;
	}
	return busy(store_list_audit(call->api->params.store, &filter, answered, call), error);
}

// ---- audit.head ----

static struct json *head_json(const struct store_audit_head *head, const struct witnesses *witnesses)
{
	struct json *json = json_new_object();
	char root[BASE64_TEXT_BYTES(TREE_HASH_BYTES)], key[NOTE_KEY_TEXT_BYTES], first_key[NOTE_KEY_TEXT_BYTES];
	base64_encode(head->checkpoint.root.bytes, TREE_HASH_BYTES, root);
	note_key_print(&head->key, key);
	note_key_print(&head->first_key, first_key);
	json_set_integer(json, "size", (int64_t)head->checkpoint.size);
	json_set_string(json, "root", root);
	json_set_string(json, "checkpoint", head->note);
	json_set_string(json, "origin", head->checkpoint.origin);
	json_set_integer(json, "segment", (int64_t)head->segment);
	json_set_string(json, "key", key);
	json_set_string(json, "first_key", first_key);
	json_set(json, "witnesses", witnesses_json(witnesses));
	json_set_null(json, "proof");
	return json;
}

static void proved(void *context, enum status status, struct json *result, const struct error *error)
{
	struct api_call *call = context;
	struct json *head = call->kept, *proof;
	call->kept = NULL;
	if (!status) {
		proof = json_new_object();
		json_set(proof, "from", json_copy(json_get(result, "from")));
		json_set(proof, "to", json_copy(json_get(result, "to")));
		json_set(proof, "hashes", json_copy(json_get(result, "proof")));
		json_set(proof, "segments", json_copy(json_get(result, "segments")));
		json_set(head, "proof", proof);
	}
	json_destroy(&result);
	api_finish(call, status, head, error);
}

static enum status audit_head(struct api_call *call, const struct json *params, struct json **result,
			      struct error *error)
{
	struct store_audit_head head;
	const int64_t since = json_get_integer(params, "since_size", -1);
	store_read_audit_head(call->api->params.store, &head);
	if (since > (int64_t)head.checkpoint.size) {
		error_set(error, STATUS_NOT_FOUND, "the audit log has %llu entries and never had %lld",
			  (unsigned long long)head.checkpoint.size, (long long)since);
		error_hint(error, "if you remember a head of that size, the log was cut or replaced: see exogpu audit "
				  "verify");
		return STATUS_NOT_FOUND;
	}
	struct json *answer = head_json(&head, call->api->params.witnesses);
	if (since < 0) {
		*result = answer;
		return STATUS_OK;
	}
	call->kept = answer;
	return busy(store_prove_audit(call->api->params.store, (uint64_t)since, head.checkpoint.size, proved, call),
		    error);
}

// ---- audit.verify ----

static const char *state_word(int64_t state)
{
	switch ((enum journal_memory_state)state) {
	case JOURNAL_MEMORY_AGREES:
		return "agrees";
	case JOURNAL_MEMORY_DIFFERS:
		return "conflicts";
	case JOURNAL_MEMORY_LONGER:
		return "ahead";
	case JOURNAL_MEMORY_UNSIGNED: // the same entries, but no head that the log's key has signed
		return "unusable";
	case JOURNAL_MEMORY_UNREACHED:
		break;
	}
	return "unreached";
}

// What they hold was compared, in the order of those that have answered.
static void judge(struct witnesses *witnesses, struct json *answers, const struct json *states)
{
	const struct json *state = json_first(states);
	for (struct json *one = (struct json *)json_first(answers); one; one = (struct json *)json_next(one)) {
		if (!json_get(one, "note"))
			continue;
		int64_t number = JOURNAL_MEMORY_UNREACHED;
		json_integer(state, &number);
		const char *word = state_word(number);
		json_set_string(one, "state", word);
		json_remove(one, "note");
		state = state ? json_next(state) : NULL;
		if (!strcmp(word, "unusable"))
			said_set(one, "reason", "the head that it holds is not signed by the log's key");
		if (!strcmp(word, "conflicts") || !strcmp(word, "ahead"))
			witnesses_conflict(witnesses, json_get_string(one, "node_id", ""),
					   (uint64_t)json_get_integer(one, "size", 0));
	}
}

static void verified(void *context, enum status status, struct json *result, const struct error *error)
{
	struct api_call *call = context;
	struct json *answers = call->kept;
	call->kept = NULL;
	if (status) {
		json_destroy(&answers);
	} else {
		judge(call->api->params.witnesses, answers, json_get(result, "memories"));
		json_remove(result, "memories");
		json_set(result, "witnesses", answers);
		watch_verified(call->api->params.watch, json_get_bool(result, "ok", true),
			       json_get_string(result, "verdict", ""));
	}
	api_finish(call, status, result, error);
}

static void gathered(void *context, struct json *answers)
{
	struct api_call *call = context;
	struct error error = {0};
	struct store_audit_memory memories[LIMIT_NODES];
	size_t count = 0;
	if (!answers) {
		error_set(&error, STATUS_UNAVAILABLE, "the server stops");
		api_finish(call, STATUS_UNAVAILABLE, NULL, &error);
		return;
	}
	for (const struct json *one = json_first(answers); one && count < LIMIT_NODES; one = json_next(one))
		if (json_get(one, "note"))
			memories[count++] = (struct store_audit_memory){.note = json_get_string(one, "note", ""),
									.node_id = json_get_string(one, "node_id", ""),
									.name = json_get_string(one, "name", "")};
	call->kept = answers;
	enum status status = busy(store_verify_audit(call->api->params.store, memories, count, verified, call), &error);
	if (status == STATUS_PENDING)
		return;
	json_destroy(&call->kept);
	api_finish(call, status, NULL, &error);
}

static enum status audit_verify(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	(void)params, (void)result;
	return busy(witnesses_gather(call->api->params.witnesses, gathered, call), error);
}

const struct api_handler audit_handlers[] = {
	{"audit.list", .run = audit_list},
	{"audit.head", .run = audit_head},
	{"audit.verify", .run = audit_verify},
	{0},
};
