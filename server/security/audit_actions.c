/* See audit_actions.h. */
#include "server/security/audit_actions.h"

#include "common/base/log.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

// clang-format off
static const struct audit_action actions[] = {
	// What changes rows of state.db, by whoever asks for it or by itself.
	{"token.create", AUDIT_WITH_CHANGE, true, "a token was made, with its scopes and limits"},
	{"token.revoke", AUDIT_WITH_CHANGE, true, "a token was revoked, and how many with it"},
	{"ticket.create", AUDIT_WITH_CHANGE, true, "a ticket for nodes was made"},
	{"ticket.revoke", AUDIT_WITH_CHANGE, true, "a ticket was revoked"},
	{"lend.create", AUDIT_WITH_CHANGE, true, "an address for browser tabs was made"},
	{"lend.revoke", AUDIT_WITH_CHANGE, true, "an address for browser tabs was revoked, and how many tabs with it"},
	{"lend.policy_set", AUDIT_WITH_CHANGE, true, "how many requests of models in browsers are checked was changed"},
	{"certificate.issue", AUDIT_WITH_CHANGE, false, "a certificate of the authority, the server or a node"},
	{"certificate.revoke", AUDIT_WITH_CHANGE, false, "a node's certificate was revoked"},
	{"node.join", AUDIT_WITH_CHANGE, true, "a node was admitted by its ticket, or a browser tab by its address"},
	{"node.approve", AUDIT_WITH_CHANGE, true, "a node was admitted by a person's approval"},
	{"node.renew", AUDIT_WITH_CHANGE, true, "a node has a new certificate"},
	{"node.remove", AUDIT_WITH_CHANGE, true, "a node was removed, with its devices"},
	{"node.added", AUDIT_WITH_CHANGE, false, "a node connected for the first time"},
	{"node.changed", AUDIT_WITH_CHANGE, false, "a node connected, and what it says of itself has changed"},
	{"node.online", AUDIT_WITH_CHANGE, false, "a node connected"},
	{"node.offline", AUDIT_WITH_CHANGE, false, "a node is away"},
	{"device.added", AUDIT_WITH_CHANGE, false, "a device was found"},
	{"device.verified", AUDIT_WITH_CHANGE, false, "a device has computed what it should"},
	{"device.failed", AUDIT_WITH_CHANGE, false, "a device has failed its verification, or a browser a spot check"},
	{"device.state", AUDIT_WITH_CHANGE, false, "a device is gone, or is back"},
	{"device.drain", AUDIT_WITH_CHANGE, true, "a device takes no new work, or takes it again"},
	{"model.add", AUDIT_WITH_CHANGE, true, "a model was added, and from where"},
	{"model.ready", AUDIT_WITH_CHANGE, false, "a model's file is there, and was read"},
	{"model.failed", AUDIT_WITH_CHANGE, false, "a model's file could not be had, or not be read"},
	{"model.hashed", AUDIT_WITH_CHANGE, false, "the SHA-256 of a file that was added by its path"},
	{"model.remove", AUDIT_WITH_CHANGE, true, "a model was removed"},
	{"instance.delete", AUDIT_WITH_CHANGE, true, "an instance was stopped"},
	{"instance.failed", AUDIT_WITH_CHANGE, false, "an instance has failed for good, and why"},
	{"instance.placed_anew", AUDIT_WITH_CHANGE, false, "an instance goes on after a loss, and where"},
	{"instance.moved", AUDIT_WITH_CHANGE, false,
	 "an instance has moved or changed its format because somebody wanted it so, or for the heat of a device"},
	{"instance.gave_way", AUDIT_WITH_CHANGE, false, "an idle instance made room for another, and how"},
	{"alert.acknowledge", AUDIT_WITH_CHANGE, true, "somebody has seen an alert"},
	{"device.heat", AUDIT_WITH_CHANGE, false,
	 "models on a device get less time for its heat, pause, or work freely again"},
	{"thermal.policy_set", AUDIT_WITH_CHANGE, true,
	 "how a device is kept from its limit was changed, and how it is now"},
	{"alert.rule_set", AUDIT_WITH_CHANGE, true, "a rule of alerts was changed, and how it is now"},
	{"alert.channel_add", AUDIT_WITH_CHANGE, true, "alerts are sent to one more receiver, and to which host"},
	{"alert.channel_remove", AUDIT_WITH_CHANGE, true, "alerts are not sent to a receiver any more"},
	{"server.start", AUDIT_WITH_CHANGE, false, "the server was started; it does not start without this entry"},
	{"audit.rotate", AUDIT_WITH_CHANGE, true, "the next segment was begun"},
	{"audit.witness", AUDIT_WITH_CHANGE, false,
	 "a node holds another log and does not sign this one (`conflict`), or signs it again (`ok`)"},
	{"audit.prune", AUDIT_WITH_CHANGE, false, "which entries' archive is about to be pruned, and by which rule"},
	{"audit.accept", AUDIT_WITH_CHANGE, false,
	 "entries that no head covered were signed, since `--accept-unsigned` said so"},
	{"state.bound", AUDIT_WITH_CHANGE, false,
	 "rows that no other entry names, and all of them at a segment's beginning"},
	{"state.taken", AUDIT_WITH_CHANGE, false, "rows of before there was `state.bound` were taken as they stood"},
	{"state.refused", AUDIT_WITH_CHANGE, false, "a start refused rows that the log does not have so"},
	{"state.settle", AUDIT_WITH_CHANGE, false,
	 "a row that was refused, or was missing, is gone for good, since `exogpu state settle` said so"},

	{"device.verify", AUDIT_BEFORE, true, "a device is verified again"},
	{"instance.create", AUDIT_BEFORE, true, "a model is loaded, or one that was evicted in vain again"},
	{"instance.move", AUDIT_BEFORE, true, "an instance is to go to a better place, or into another format"},
	{"node.refuse", AUDIT_BEFORE, true, "a node that waited was turned away"},
	{"certificate.renew", AUDIT_BEFORE, false, "the server takes its next certificate"},

	{"memory.allocate", AUDIT_BEFORE_ANSWER, true, "memory of a device was allocated"},
	{"memory.free", AUDIT_BEFORE_ANSWER, true, "memory was freed, or taken back by an admin"},
	{"compute.load", AUDIT_BEFORE_ANSWER, true, "a module was loaded"},
	{"compute.unload", AUDIT_BEFORE_ANSWER, true, "a module was unloaded"},

	{"auth.login", AUDIT_AT_ONCE, true, "a session was begun"},
	{"auth.login_code", AUDIT_AT_ONCE, true, "a code was made that logs a browser in"},
	{"auth.redeem", AUDIT_AT_ONCE, true, "a login code was used, and which token it gave"},
	{"session.end", AUDIT_AT_ONCE, false, "a session is over, with the launches and the bytes of all of it"},
	{"session.device_lost", AUDIT_AT_ONCE, false, "a session has lost what it had on a device"},
	{"node.duplicate", AUDIT_AT_ONCE, false, "a second use of a node's certificate was refused"},
	{"infer.chat", AUDIT_AT_ONCE, true, "a request to `/v1/chat/completions` is over, with its tokens"},
	{"infer.completions", AUDIT_AT_ONCE, true, "the same of `/v1/completions`"},
	{"infer.embeddings", AUDIT_AT_ONCE, true, "the same of `/v1/embeddings`"},
	{"infer.rerank", AUDIT_AT_ONCE, true, "the same of `/v1/rerank`"},
	{"infer.messages", AUDIT_AT_ONCE, true, "the same of `/v1/messages`"},
	{"infer.count_tokens", AUDIT_AT_ONCE, true, "the same of `/v1/messages/count_tokens`"},
	{"infer.responses", AUDIT_AT_ONCE, true, "the same of `/v1/responses`"},
	{"ollama.chat", AUDIT_AT_ONCE, true, "the same of `/api/chat`"},
	{"ollama.generate", AUDIT_AT_ONCE, true, "the same of `/api/generate`"},
	{"ollama.embed", AUDIT_AT_ONCE, true, "the same of `/api/embed` and `/api/embeddings`"},
	{"certificate.reload", AUDIT_AT_ONCE, false, "the operator's own certificate was read again"},
	{"alert.channel_test", AUDIT_AT_ONCE, true, "a test message was sent to a receiver of alerts"},
	{"audit.resume", AUDIT_AT_ONCE, false, "the log can be written again, and for how long it could not be"},
	{"server.stop", AUDIT_AT_ONCE, false, "the server was stopped"},

	{"memory.write", AUDIT_COUNTED, true, "bytes were written to devices"},
	{"memory.read", AUDIT_COUNTED, true, "bytes were read from devices"},
	{"memory.copy", AUDIT_COUNTED, true, "bytes were copied between devices"},
	{"memory.fill", AUDIT_COUNTED, true, "memory was filled"},
	{"compute.launch", AUDIT_COUNTED, true, "a kernel was launched"},
	{"compute.run", AUDIT_COUNTED, true, "a kernel was run on what the call brought"},
};
// clang-format on

const struct audit_action *audit_actions(size_t *count)
{
	*count = sizeof actions / sizeof *actions;
	return actions;
}

const struct audit_action *audit_action_find(const char *name)
{
	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
		if (!strcmp(actions[i].name, name))
			return &actions[i];
	return NULL;
}

static bool is_refusal(enum status outcome)
{
	return outcome == STATUS_FORBIDDEN || outcome == STATUS_RATE_LIMITED || outcome == STATUS_UNAUTHENTICATED;
}

bool audit_action_allows(enum audit_use use, const char *name, enum status outcome)
{
	const struct audit_action *action = audit_action_find(name);
	if (!action)
		return use == AUDIT_USE_COUNT && is_refusal(outcome);
	switch (use) {
	case AUDIT_USE_PUT:
		return action->when != AUDIT_COUNTED;
	case AUDIT_USE_WRITE:
		return action->when != AUDIT_WITH_CHANGE && action->when != AUDIT_COUNTED;
	case AUDIT_USE_TELL: // an answer that could not wait for it says so
		return action->when == AUDIT_AT_ONCE || action->when == AUDIT_BEFORE_ANSWER ||
		       (action->asked && outcome);
	case AUDIT_USE_COUNT:
		return action->when == AUDIT_COUNTED || (action->asked && outcome);
	}
	return false;
}

void audit_action_check(enum audit_use use, const char *name, enum status outcome)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;
	const bool allowed = audit_action_allows(use, name, outcome);
	if (!allowed && !atomic_flag_test_and_set(&told))
		log_error("audit",
			  "an entry of the action %s (%s) is not in the table of actions, or is written otherwise",
			  name, status_word(outcome));
	assert(allowed);
	(void)allowed;
}

// ---- the document's table ----

static const char *const whens[AUDIT_WHENS] = {
	[AUDIT_WITH_CHANGE] = "with the change, in one transaction",
	[AUDIT_BEFORE] = "before it is begun",
	[AUDIT_BEFORE_ANSWER] = "before the answer",
	[AUDIT_AT_ONCE] = "at once; no call waits for it",
	[AUDIT_COUNTED] = "counted, within 10 s",
};

enum status audit_actions_print(struct buffer *out)
{
	buffer_append_text(out, "| action | when its entry is on disk | what it tells |\n|---|---|---|\n");
	for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
		buffer_printf(out, "| `%s` | %s | %s |\n", actions[i].name, whens[actions[i].when], actions[i].tells);
	return out->failed ? STATUS_OUT_OF_MEMORY : STATUS_OK;
}
