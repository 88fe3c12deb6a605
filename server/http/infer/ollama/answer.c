/* A generated answer in Ollama's words: whole, or as lines of JSON as it comes. A call is told once it is whole; one
 * that is not JSON, because the answer was cut off, is text. */
#include "common/base/clock.h"
#include "server/http/infer/ollama/ollama.h"

#include <string.h>

enum { NS_PER_MS = 1000000 };

static const double NS_MOST = 9007199254740992.0; // 2^53, some 104 days: what a number of JSON holds exactly

static struct json *head(const struct answer *answer)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object();
	json_set_string(json, "model", answer->model);
	json_set_string(json, "created_at", clock_format(clock_wall_ms(), at));
	return json;
}

static struct json *call_json(const struct said_call *call, struct json *input, size_t index)
{
	struct json *json = json_new_object(), *function = json_new_object();
	json_set_string(json, "id", call->id);
	json_set_integer(function, "index", (int64_t)index);
	json_set_string(function, "name", call->name);
	json_set(function, "arguments", input);
	json_set(json, "function", function);
	return json;
}

// Calls that are whole and have not been told; what is none goes to the text. NULL: there are none.
static struct json *fresh_calls(struct answer *answer)
{
	struct said *said = &answer->said;
	struct json *list = NULL;
	for (; said->told < said->whole && said->told < said->count; said->told++) {
		struct said_call *call = &said->calls[said->told];
		struct json *input = said_call_input(call);
		if (!input) {
			buffer_append(&answer->text, call->arguments.data, call->arguments.length);
		} else {
			list = list ? list : json_new_array();
			json_push(list, call_json(call, input, said->told));
		}
		buffer_clear(&call->arguments);
	}
	return list;
}

// Take what has gathered, in a message or a response. False: nothing has.
static bool put_fresh(struct answer *answer, struct json *json)
{
	const bool chat = answer->endpoint == ENDPOINT_OLLAMA_CHAT;
	struct json *calls = fresh_calls(answer), *into = chat ? json_new_object() : json;
	struct buffer *thoughts = &answer->said.thoughts;
	if (answer->hides_thoughts)
		buffer_clear(thoughts);
	const bool anything = calls || thoughts->length || answer->text.length;
	if (chat)
		json_set_string(into, "role", "assistant");
	json_set_string(into, chat ? "content" : "response", buffer_text(&answer->text));
	if (thoughts->length)
		json_set_string(into, "thinking", buffer_text(thoughts));
	if (calls)
		json_set(into, "tool_calls", calls);
	if (chat)
		json_set(json, "message", into);
	buffer_clear(&answer->text);
	buffer_clear(thoughts);
	return anything;
}

// A worker says how long something took, and may say anything.
static double bounded_ns(double ns)
{
	return ns < NS_MOST ? ns : NS_MOST;
}

void ollama_put_durations(struct json *json, const struct json *end)
{
	static const char *const names[][2] = {{"load_duration", "queued_ms"},
					       {"prompt_eval_duration", "prompt_ms"},
					       {"eval_duration", "generate_ms"}};
	double all = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const double ns = bounded_ns(json_get_number(end, names[i][1], 0) * NS_PER_MS);
		json_set_integer(json, names[i][0], (int64_t)ns);
		all += ns;
	}
	json_set_integer(json, "total_duration", (int64_t)bounded_ns(all));
}

static void put_end(struct json *json, const struct ending *ending)
{
	json_set_bool(json, "done", true);
	json_set_string(json, "done_reason", ending->cut ? "length" : "stop");
	ollama_put_durations(json, ending->end);
	json_set_integer(json, "prompt_eval_count", json_get_integer(ending->end, "prompt_tokens", 0));
	json_set_integer(json, "eval_count", json_get_integer(ending->end, "generated_tokens", 0));
	answer_put_foreseen(json, ending->end, "count");
	answer_put_energy(json, ending->end);
	answer_put_provenance(json, ending->end);
}

// ---- of the wording ----

void ollama_begin(struct answer *answer)
{
	(void)answer; // the first line has the first text
}

void ollama_tell(struct answer *answer)
{
	struct json *json = head(answer);
	if (!put_fresh(answer, json)) {
		json_destroy(&json);
		return;
	}
	json_set_bool(json, "done", false);
	answer_event(answer, json);
}

void ollama_end(struct answer *answer, const struct ending *ending)
{
	struct json *json = head(answer);
	put_fresh(answer, json);
	if (answer->counts) {
		json_set_bool(json, "done", true);
		json_set_string(json, "done_reason", "load");
	} else {
		put_end(json, ending);
	}
	if (answer->begun)
		answer_event(answer, json);
	else
		answer_json(answer, json);
}

struct json *ollama_embeddings(const struct answer *answer, struct json *values, uint64_t prompt_tokens)
{
	struct json *json = json_new_object();
	if (answer->endpoint == ENDPOINT_OLLAMA_EMBEDDINGS) {
		json_set(json, "embedding", json_copy(json_first(values)));
		json_destroy(&values);
		return json;
	}
	json_set_string(json, "model", answer->model);
	json_set(json, "embeddings", values);
	json_set_integer(json, "prompt_eval_count", (int64_t)prompt_tokens);
	return json;
}
