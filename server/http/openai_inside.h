/* The inside of /v1, for openai*.c. Thread: the loop's. */
#pragma once
#include "common/base/limits.h"
#include "server/http/openai.h"
#include "server/http/openai_said.h"

enum endpoint { ENDPOINT_UNKNOWN, ENDPOINT_CHAT, ENDPOINT_COMPLETIONS, ENDPOINT_EMBEDDINGS, ENDPOINT_RERANK };

// A POST, from its headers to the last byte of its answer.
struct answer {
	struct answer *next, **link;
	struct openai *openai;
	enum endpoint endpoint;
	struct caller caller;
	struct net_exchange *exchange; // NULL before the body
	bool reading, gone;            // the parser has it; its client has gone meanwhile
	struct generation *generation; // NULL: none, or none any more
	char origin[256];              // of a page that may read the answer; ""
	char id[48];
	int64_t created_s;
	// The request.
	char model[MODEL_NAME_BYTES];
	char unknown[65]; // a parameter that there is not, by its name
	bool streams, wants_usage, echo;
	int logprobs;       // -1: none; else how many of the most likely ones beside each token
	struct json *tools; // that the model may call; NULL: none
	// The part of the answer that has come and is not being sent.
	bool begun; // the events have
	struct buffer text;
	struct said said;     // of a chat
	struct json *choices; // TokenChoices; NULL: none
	size_t held_choices;  // how many these are with their alternatives, counted in `openai`
	// With echo: characters of the prompt, which come before any token, and from which offsets are to be counted.
	uint64_t echoed;
	bool generates; // a token has come
	uint64_t prompt_tokens;
	struct json *sampling; // what its tokens are drawn by, as generation_sampling has it; NULL: not known yet
	// Embeddings and rankings.
	struct json *inputs; // (array), each text or tokens; documents, each text
	struct json *query;  // of a ranking
	int64_t top_n;       // of its documents, at most; 0: all
	bool returns_documents;
	int64_t dimensions;           // of an embedding; 0: all
	size_t input_tokens;          // that they are given as
	bool counted;                 // these, by openai.c
	struct embedding *embeddings; // one for each; NULL: not asked for yet
	bool base64;
};

// ---- openai.c ----
// So many more choices are held (or fewer). False: there is no room for them, and nothing was counted.
bool openai_hold_choices(struct openai *openai, size_t more);
void openai_let_go_of_choices(struct openai *openai, size_t fewer);
// Fill the response with OpenAI's shape of an error. `param`: which parameter is to blame; may be NULL.
void openai_fail(struct net_response *response, const struct error *error, const char *param);
// Answer, or end the events, with an error.
void answer_fail(struct answer *answer, const struct error *error, const char *param);
// The same with what became of a question to a model: a prompt that is too long for it has a code of its own.
void answer_fail_model(struct answer *answer, const struct error *error);
// Answer whole; `json` is taken.
void answer_json(struct answer *answer, struct json *json);
// Send an event; `json` is taken; NULL: the mark of the end.
void answer_event(struct answer *answer, struct json *json);
void answer_begin_events(struct answer *answer);
// Ask a worker: `call` is taken. Errors: generation_start's.
enum status answer_generate(struct answer *answer, struct json *call, struct error *error);
// The parameters that every such request has; the caller adds `ended` and its context.
struct generation_params answer_question(const struct answer *answer, struct json *call);
enum status answer_ask(struct answer *answer, struct generation **out, const struct generation_params *params,
		       struct error *error);
void answer_refused(const struct answer *answer, enum status status); // a question was; for the audit log
struct openai_reading;
void openai_read_through(struct answer *answer, struct openai_reading *reading); // its body is read: go on

// ---- openai_read.c ----
// Read the body into the answer, and into what a worker is asked: *call, to be destroyed by the caller (NULL for
// embeddings, whose inputs stand in the answer). Errors: STATUS_INVALID_PARAMS, with the parameter in *param.
enum status openai_read(struct answer *answer, const struct json *body, struct json **call, const char **param,
			struct error *error);

// The outcome of reading a body.
struct openai_reading {
	enum status status;
	struct error error;
	struct json *call; // as openai_read has it
	const char *param;
};
// Parse a body and read it. Thread: any that has the answer.
void openai_read_body(struct answer *answer, const char *body, size_t length, struct openai_reading *out);
void openai_reading_finish(struct openai_reading *reading);

struct reading {
	struct answer *answer;
	const struct json *body;
	struct json *call, *sampling;
	const char *param; // that is to blame
	struct error *error;
};
// Note that the parameter is wrong: "PARAM WHAT". Returns STATUS_INVALID_PARAMS.
enum status openai_wrong(struct reading *reading, const char *what);

// ---- openai_messages.c, openai_tools.c ----
// Each reads one parameter into the call. Errors: STATUS_INVALID_PARAMS.
enum status openai_read_messages(struct reading *reading, const struct json *value);
enum status openai_read_tools(struct reading *reading, const struct json *value);
enum status openai_read_tool_choice(struct reading *reading, const struct json *value);
enum status openai_read_effort(struct reading *reading, const struct json *value);
// Once all are read: what of tools must fit each other. Errors: the same.
enum status openai_check_tools(struct reading *reading);
bool openai_is_function(const char *name); // it may be one's name

// ---- openai_form.c ----
// A response_format into the `form` of a call. Errors: STATUS_INVALID_PARAMS.
enum status openai_read_form(const struct json *value, struct json *call, struct error *error);

// ---- openai_parse.c ----
struct openai_parser;
enum status openai_parser_create(struct openai_parser **out, struct net_loop *loop, struct error *error);
void openai_parser_destroy(struct openai_parser **parser); // answers that it had are read through no more
// Read the body (copied) on the parser's thread; openai_read_through follows. Errors: STATUS_RATE_LIMITED,
// STATUS_OUT_OF_MEMORY.
enum status openai_parser_take(struct openai_parser *parser, struct answer *answer, const uint8_t *body, size_t length,
			       struct error *error);

// ---- openai_answer.c ----
// The callbacks for struct generation_params, with the answer as context.
void answer_started(void *context, uint64_t prompt_tokens);
void answer_delta(void *context, const struct json *delta);
void answer_ended(void *context, enum status status, const struct json *end, const struct error *error);
void answer_drop_choices(struct answer *answer);
void answer_flush(struct answer *answer); // an event for what has gathered

// Whether several inputs are asked for at once: embeddings, or documents that are ranked.
static inline bool answer_embeds(const struct answer *answer)
{
	return answer->endpoint == ENDPOINT_EMBEDDINGS || answer->endpoint == ENDPOINT_RERANK;
}

// ---- openai_embed.c ----
// Ask for the embeddings of all inputs, and answer once they are there.
void answer_embed(struct answer *answer);
void answer_embed_finish(struct answer *answer); // what is under way is cancelled
