/* A body as Ollama's clients send it, as what a worker is asked (generate.start of schema/node.json): its parameters.
 * Messages and tools are read in messages.c, options in options.c. */
#include "server/http/infer/ollama/ollama.h"

#include <string.h>

enum {
	CHAT = 1 << ENDPOINT_OLLAMA_CHAT,
	TEXT = 1 << ENDPOINT_OLLAMA_GENERATE,
	EMBED = 1 << ENDPOINT_OLLAMA_EMBED,
	EMBED_ONE = 1 << ENDPOINT_OLLAMA_EMBEDDINGS,
	SHOW = 1 << ENDPOINT_OLLAMA_SHOW,
	PULL = 1 << ENDPOINT_OLLAMA_PULL,
	ASKED = CHAT | TEXT | EMBED | EMBED_ONE | SHOW, // of a model that is here
	ANY = ASKED | PULL,
	ANSWER_TOKENS = 32768, // of an answer, where it is not said
};

// A text, or how long in seconds. How long models stay loaded is the operator's affair.
static enum status read_keep_alive(struct reading *reading, const struct json *value)
{
	return json_type(value) == JSON_STRING || json_type(value) == JSON_NUMBER
		       ? STATUS_OK
		       : reading_wrong(reading, "must be a duration, as in \"5m\" or 300");
}

// "", "json", or a JSON Schema.
static enum status read_format(struct reading *reading, const struct json *value)
{
	const char *text = json_string(value, NULL);
	if (text && !text[0])
		return STATUS_OK;
	if (text && !strcmp(text, "json")) {
		struct json *form = json_new_object();
		json_set_string(form, "kind", "json");
		json_set(reading->call, "form", form);
		return STATUS_OK;
	}
	return json_type(value) == JSON_OBJECT ? reading_set_schema(reading, value)
					       : reading_wrong(reading, "must be json, or a JSON Schema");
}

// true, false, or how much. A model that cannot leave thoughts out has them, and they are not told.
static enum status read_think(struct reading *reading, const struct json *value)
{
	const char *text = json_string(value, NULL);
	const bool wanted = text || json_bool(value, false);
	if (text && strcmp(text, "low") != 0 && strcmp(text, "medium") != 0 && strcmp(text, "high") != 0)
		return reading_wrong(reading, "must be true, false, low, medium or high");
	if (!text && json_type(value) != JSON_BOOL)
		return reading_wrong(reading, "must be true, false, low, medium or high");
	reading->answer->hides_thoughts = !wanted;
	json_set_string(reading->call, "reasoning_effort", text ? text : wanted ? "medium" : "none");
	json_set_bool(reading->call, "effort_optional", !text);
	return STATUS_OK;
}

static enum status read_raw(struct reading *reading, const struct json *value)
{
	bool raw;
	return reading_bool(reading, value, &raw); // with the prompt
}

static enum status read_text(struct reading *reading, const struct json *value)
{
	return json_type(value) == JSON_STRING ? STATUS_OK : reading_wrong(reading, "must be a text");
}

static enum status read_no_images(struct reading *reading, const struct json *value)
{
	(void)value;
	return ollama_no_images(reading, reading->body);
}

static enum status read_no_text(struct reading *reading, const struct json *value)
{
	return json_type(value) == JSON_STRING && !json_string(value, "")[0] ? STATUS_OK
									     : reading_refuse(reading, NULL);
}

// One user's turn, with the system's before it; raw: the text itself.
static enum status read_prompt(struct reading *reading, const struct json *value)
{
	struct turns turns;
	const char *text = json_string(value, NULL), *system = json_get_string(reading->body, "system", "");
	const char *suffix = json_get_string(reading->body, "suffix", "");
	const bool raw = json_get_bool(reading->body, "raw", false) || suffix[0];
	if (!text)
		return reading_wrong(reading, "must be a text");
	if (!text[0]) // the model is to be loaded, and nothing more
		return STATUS_OK;
	if (raw && system[0])
		return reading_wrong(reading,
				     "cannot be raw, or have a suffix, beside a system: write that into the prompt");
	if (raw) {
		struct json *prompt = json_new_object();
		json_set_string(prompt, "text", text);
		if (suffix[0])
			json_set_string(prompt, "suffix", suffix);
		json_set(reading->call, "prompt", prompt);
		return STATUS_OK;
	}
	turns_init(&turns, reading);
	if (system[0]) {
		turns_role(&turns, "system");
		turns_text(&turns, system);
	}
	turns_role(&turns, "user");
	turns_text(&turns, text);
	const enum status status = turns_end(&turns);
	turns_finish(&turns);
	return status;
}

static enum status read_input(struct reading *reading, const struct json *value)
{
	const bool one = json_type(value) == JSON_STRING;
	struct json *inputs = reading->answer->inputs = json_new_array();
	if (!one && (json_type(value) != JSON_ARRAY || json_count(value) > LIMIT_EMBEDDINGS))
		return reading_wrong(reading, "must be a text, or a list of up to 2048 texts");
	for (const struct json *input = one ? value : json_first(value); input; input = one ? NULL : json_next(input)) {
		if (!json_string(input, "")[0])
			return reading_wrong(reading, "must be texts, none of them empty");
		json_push(inputs, json_copy(input));
	}
	return json_count(inputs) ? STATUS_OK : reading_wrong(reading, "must be a text, or a list of texts");
}

static enum status read_embedded(struct reading *reading, const struct json *value)
{
	return json_type(value) == JSON_STRING ? read_input(reading, value) : reading_wrong(reading, "must be a text");
}

// An input that is too long is refused either way, never cut.
static enum status read_truncate(struct reading *reading, const struct json *value)
{
	bool cuts;
	return reading_bool(reading, value, &cuts);
}

static const struct parameter parameters[] = {
	{"model", ANY, read_model},
	{"name", SHOW | PULL, read_model}, // older clients
	{"verbose", SHOW, read_and_ignore},
	{"messages", CHAT, ollama_read_messages},
	{"tools", CHAT, ollama_read_tools},
	{"prompt", TEXT, read_prompt},
	{"system", TEXT, read_text}, // with the prompt
	{"raw", TEXT, read_raw},
	{"images", TEXT, read_no_images},
	{"suffix", TEXT, read_text}, // with the prompt
	{"template", TEXT, read_no_text},
	{"context", TEXT, read_nothing},
	{"prompt", EMBED_ONE, read_embedded},
	{"input", EMBED, read_input},
	{"truncate", EMBED, read_truncate},
	{"dimensions", EMBED, read_dimensions},
	{"stream", CHAT | TEXT | PULL, read_stream},
	{"include_energy", CHAT | TEXT, read_energy},
	{"insecure", PULL, read_nothing},
	{"format", CHAT | TEXT, read_format},
	{"think", CHAT | TEXT, read_think},
	{"options", ASKED, ollama_read_options},
	{"keep_alive", CHAT | TEXT | EMBED | EMBED_ONE, read_keep_alive},
	{"logprobs", CHAT | TEXT, read_nothing},
	{NULL, 0, NULL},
};

// Nothing is asked, as by clients that want a model to be loaded: its prompt is counted, for which it is loaded.
static void ask_nothing(struct reading *reading)
{
	struct json *prompt = json_new_object();
	json_set_string(prompt, "text", " ");
	reading->answer->counts = true;
	json_destroy(&reading->answer->tools);
	json_destroy(&reading->call);
	reading->call = json_new_object();
	json_set(reading->call, "prompt", prompt);
}

static enum status check(struct reading *reading)
{
	const struct answer *answer = reading->answer;
	if (!answer->model[0])
		return reading_missing(reading, "model");
	if (answer_embeds(answer) && !answer->inputs)
		return reading_missing(reading, answer->endpoint == ENDPOINT_OLLAMA_EMBED ? "input" : "prompt");
	return answer->endpoint == ENDPOINT_OLLAMA_CHAT ? reading_check_tools(reading, "format") : STATUS_OK;
}

// keep_alive 0 without a prompt unloads a model.
static bool unloads(const struct reading *reading)
{
	const struct json *given = json_get(reading->body, "keep_alive");
	const char *text = json_string(given, "1");
	return given && (json_number(given, 1) == 0 || !strcmp(text, "0") || !strcmp(text, "0s"));
}

enum status ollama_read(struct reading *reading)
{
	struct answer *answer = reading->answer;
	const bool talks = answer_talks(answer), raw = json_get_bool(reading->body, "raw", false);
	answer->streams = talks || answer->endpoint == ENDPOINT_OLLAMA_PULL; // unless it says otherwise
	enum status status = reading_all(reading, parameters);
	if (!status)
		status = check(reading);
	if (status || !talks)
		return status;
	if (!json_get(reading->call, "prompt")) {
		reading->param = "keep_alive";
		ask_nothing(reading);
		return unloads(reading) ? reading_refuse(reading, "an admin unloads models: exogpu stop MODEL")
					: STATUS_OK;
	}
	if (!raw && !json_get_string(reading->body, "suffix", "")[0])
		json_set_bool(reading->call, "talks", true);
	return reading_fill_in(reading, ANSWER_TOKENS);
}
