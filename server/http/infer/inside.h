/* The inside of /v1, which knows no API's words: a request, and what is said to it. Thread: the loop's.
 *
 *     body --wording.read--> parameters of generate.start --> worker --> struct said --wording.tell, end--> client
 *
 * An API is a struct wording and the files that it calls: openai*.c, anthropic*.c, responses/,
 * ollama/. */
#pragma once
#include "common/base/limits.h"
#include "server/http/infer/infer.h"
#include "server/http/infer/said.h"

enum endpoint {
	ENDPOINT_UNKNOWN,
	ENDPOINT_CHAT,
	ENDPOINT_COMPLETIONS,
	ENDPOINT_EMBEDDINGS,
	ENDPOINT_RERANK,
	ENDPOINT_MESSAGES,
	ENDPOINT_COUNT_TOKENS,
	ENDPOINT_RESPONSES,
	ENDPOINT_OLLAMA_CHAT,
	ENDPOINT_OLLAMA_GENERATE,
	ENDPOINT_OLLAMA_EMBED,
	ENDPOINT_OLLAMA_EMBEDDINGS,
	ENDPOINT_OLLAMA_SHOW,
	ENDPOINT_OLLAMA_PULL,
	ENDPOINT_COUNT,
};

enum { REQUEST_ID_BYTES = 48 };

// A piece of Anthropic's content, or of the output of a response.
enum block_kind { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_CALL };

// The facts of a request for its trace. Without a trace (NULL) nobody reads them.
struct traced {
	struct trace *trace;
	bool tls, asked, counted; // asked: a worker was; counted: tokens were
	bool whole, broke;        // all of its answer was given; it ended with an error after it had begun
	int status;               // of HTTP; 0: it was not answered
	const char *fault;        // why it failed: static; NULL: it did not
	uint64_t input_tokens, output_tokens;
};

// A POST, from its headers to the last byte of its answer.
struct answer {
	struct answer *next, **link;
	struct infer *infer;
	const struct wording *wording;
	enum endpoint endpoint;
	struct caller caller;
	struct net_exchange *exchange; // NULL before the body
	bool reading, gone;            // the parser has it; its client has gone meanwhile
	size_t body_bytes;             // of the request
	struct generation *generation; // NULL: none, or none any more
	struct generation_run *run;    // of the last one; NULL: it is not traced
	struct traced traced;
	char origin[256]; // of a page that may read the answer; ""
	char id[48], request_id[REQUEST_ID_BYTES];
	char retry_after[24]; // seconds, where it is known how many
	int64_t created_s;
	// The request.
	char model[MODEL_NAME_BYTES];
	char unknown[65];                        // a parameter that there is not, by its name
	bool streams, wants_usage, echo, energy; // energy: its joules are wanted
	bool hides_thoughts;                     // they are not told
	bool counts;                             // the tokens of the prompt are counted, and nothing is generated
	int logprobs;                            // -1: none; else how many of the most likely ones beside each token
	struct json *tools;                      // that the model may call; NULL: none
	// The part of the answer that has come and is not being sent.
	bool begun; // the events have
	struct buffer text;
	struct said said;     // of a chat
	struct json *choices; // TokenChoices; NULL: none
	// How many these are with their alternatives, counted in `infer`; of a request for several choices: those of
	// the choices that have ended.
	size_t held_choices;
	// With echo: characters of the prompt, which come before any token, and from which offsets are to be counted.
	uint64_t echoed;
	bool generates; // a token has come
	uint64_t prompt_tokens;
	// Of Anthropic's content and of the output of a response: the block that is open, which number it has, whether
	// one is a call, and when the last event was sent.
	struct {
		enum block_kind open;
		int64_t index, told_ms;
		bool called;
	} blocks;
	// Of a response.
	struct {
		struct json *repeats; // what its object repeats of the request
		struct json *items;   // of its events: those that are whole (array); NULL: it has no events
		struct buffer text;   // of the item that is open
		char id[48];          // of that item
		int64_t events;       // so many have been made
		size_t bytes;         // of all its texts
		bool encloses;        // thoughts come as encrypted_content too
	} response;
	struct ollama_pull *pull; // of a model; NULL: none
	// Of a request for several choices, which has no generation of its own: each choice is an answer that tells
	// through it. Of a choice: whose it is, and which.
	struct {
		struct answer *of;
		struct answer **all; // (count), by their index; owned
		size_t count, left;  // left: those that have not ended
		int64_t index, each; // each: the choices of one prompt
		struct json **ended; // (count), owned: those that were asked for whole, as they are told
		struct json *sum;    // tokens of those that have ended, as in generate.end
		size_t bytes;        // of the texts of all, where these are asked for whole
	} several;
	struct json *sampling; // what its tokens are drawn by, as generation_sampling has it; NULL: not known yet
	// Embeddings and rankings.
	struct json *
		inputs; // (array), each text or tokens; documents, each text; prompts, as a worker is asked, if several
	struct json *query; // of a ranking
	int64_t top_n;      // of its documents, at most; 0: all
	bool returns_documents;
	int64_t dimensions;           // of an embedding; 0: all
	size_t input_tokens;          // that they are given as
	bool counted;                 // these, by infer.c
	struct embedding *embeddings; // one for each; NULL: not asked for yet
	bool base64;
};

// ---- an API's words ----

struct reading;

// Why a request is not answered, for an API to say it.
struct fault {
	const struct error *error;
	const char *param; // that is to blame; NULL: none, or not known
	bool of_model;     // a model's worker says so, of what `endpoint` was asked
	enum endpoint endpoint;
	const char *request_id;
	struct answer *answer; // whose events have begun; NULL: there are none
};

// An answer is over.
struct ending {
	bool cut;               // by the number of tokens that it may have
	const struct json *end; // params of generate.end, or with `counts` the answer of generate.start
};

struct wording {
	const char *id_header; // of the request's id, with its colon
	bool lines;            // an event is a line of JSON; else server-sent
	bool names_events;     // an event has a line with its `type` before its data
	bool whole_calls;      // a call is told once it is whole; one that is broken is text
	// Read the body of a request into reading->answer and reading->call. Thread: any that has the answer. Errors:
	// STATUS_INVALID_PARAMS, with the parameter in reading->param.
	enum status (*read)(struct reading *reading);
	int (*fail)(const struct fault *fault, struct json **out);       // the HTTP status, and a body or an event
	void (*begin)(struct answer *answer);                            // the first events
	void (*tell)(struct answer *answer);                             // events for what has gathered
	void (*end)(struct answer *answer, const struct ending *ending); // the whole answer, or the last events
	// GET /v1/models; NULL: it has `get`.
	struct json *(*model)(const struct model_record *model, bool loaded);
	struct json *(*models)(struct json *list); // of all; `list` is taken
	// The rest may be NULL. A GET. Errors: STATUS_METHOD_NOT_FOUND.
	enum status (*get)(const struct infer_params *params, const char *path, struct json **out, struct error *error);
	// The model that its clients call so; NULL: there is none.
	const struct model_record *(*find)(const struct models *models, const char *name);
	// Answer what no worker is asked, at once or later: answer_serves.
	enum status (*serve)(struct answer *answer, const struct infer_params *params, struct error *error);
	// Embeddings, whole; `values` (one of each input) is taken.
	struct json *(*embeddings)(const struct answer *answer, struct json *values, uint64_t prompt_tokens);
};
extern const struct wording openai_wording, anthropic_wording, responses_wording, ollama_wording;

// ---- infer.c ----
// Another answer of the same request, without an exchange of its own and in no list. NULL: there is no memory.
struct answer *answer_copy(const struct answer *answer);
void answer_free(struct answer *answer); // all that it has; what it generates is cancelled
// So many more choices are held (or fewer). False: there is no room for them, and nothing was counted.
bool infer_hold_choices(struct infer *infer, size_t more);
void infer_let_go_of_choices(struct infer *infer, size_t fewer);
const char *const *infer_origins(const struct infer *infer);                // that may read answers; may be NULL
int64_t infer_wait_s(const struct infer *infer, const struct token *token); // as instances_wait_s
// Ask a worker: `call` is taken. Errors: generation_start's.
enum status answer_generate(struct answer *answer, struct json *call, struct error *error);
// The parameters that every such request has; the caller adds `ended` and its context.
struct generation_params answer_question(const struct answer *answer, struct json *call);
enum status answer_ask(struct answer *answer, struct generation **out, const struct generation_params *params,
		       struct error *error);
void answer_refused(const struct answer *answer, enum status status); // a question was; for the audit log
struct infer_reading;
void infer_read_through(struct answer *answer, struct infer_reading *reading); // its body is read: go on

// ---- reply.c ----
enum { REPLY_HEADERS = 8 };
// The origin that may read the answer; "" if none may that asks.
const char *reply_origin(const char *const *cors_origins, const char *origin);
// The headers stay in `headers` until the response is sent. `wording` and `id`: of the request that is answered; NULL:
// it is a preflight.
void reply_add_headers(struct net_response *response, struct net_header headers[REPLY_HEADERS],
		       const char *const *cors_origins, const char *origin, const struct wording *wording,
		       const char *id);
// A body of JSON, which is taken, in the response's own buffer. One that does not fit: status 500.
void reply_fill(struct net_response *response, int status, struct json *json);
void reply_fail(struct net_response *response, const struct wording *wording, const struct fault *fault);
// Answer, or end the events, with an error. `param`: which parameter is to blame; may be NULL.
void answer_fail(struct answer *answer, const struct error *error, const char *param);
// The same with what became of a question to a model.
void answer_fail_model(struct answer *answer, const struct error *error);
// Answer whole; `json` is taken. One that is longer than LIMIT_BODY_BYTES is an error instead.
void answer_json(struct answer *answer, struct json *json);
// Send an event; `json` is taken; NULL: the mark of the end.
void answer_event(struct answer *answer, struct json *json);
void answer_begin_events(struct answer *answer);
void answer_end(struct answer *answer); // the events

// ---- read.c ----
// The outcome of reading a body.
struct infer_reading {
	enum status status;
	struct error error; // STATUS_PARSE_ERROR, STATUS_INVALID_PARAMS
	struct json *call;  // what a worker is asked; NULL for embeddings, whose inputs stand in the answer
	const char *param;  // that is to blame
};
// Parse a body and read it. Thread: any that has the answer.
void infer_read_body(struct answer *answer, const char *body, size_t length, struct infer_reading *out);
void infer_reading_finish(struct infer_reading *reading);

struct reading {
	struct answer *answer;
	const struct json *body;
	struct json *call, *sampling;
	const char *param;  // that is being read, or is to blame
	const char *effort; // of Anthropic's output_config; NULL: none
	struct error *error;
};

// A parameter of an API: one that is not in its table is refused by name. null counts as absent.
struct parameter {
	const char *name;
	int endpoints;                                                          // bits, 1 << ENDPOINT_*
	enum status (*read)(struct reading *reading, const struct json *value); // NULL: it is refused
};
// Read all members of the body. The table ends with a NULL name. Errors: STATUS_INVALID_PARAMS.
enum status reading_all(struct reading *reading, const struct parameter *parameters);
// Note that the parameter is wrong: "PARAM WHAT". Returns STATUS_INVALID_PARAMS.
enum status reading_wrong(struct reading *reading, const char *what);
enum status reading_refuse(struct reading *reading, const char *hint); // it is not supported; the hint may be NULL
enum status reading_missing(struct reading *reading, const char *param);
enum status reading_bool(struct reading *reading, const struct json *value, bool *out);
// A number into `sampling`, under the name of the parameter.
enum status reading_number(struct reading *reading, const struct json *value, double least, double most);
enum status reading_integer(struct reading *reading, const struct json *value, int64_t least, int64_t most,
			    int64_t *out);
// The rest that a question to a model has: a seed, and how many tokens it may have where that was not said.
enum status reading_fill_in(struct reading *reading, int64_t max_tokens);
// Of an object inside a parameter: what is known, and may be there without being read.
struct known {
	const char *name;
	enum { KNOWN_READ, KNOWN_TEXT, KNOWN_LIST, KNOWN_NOTHING } as; // NOTHING: false, or an empty list
};
// That it has nothing else. `known` ends with a NULL name; null counts as absent.
enum status reading_known(struct reading *reading, const struct json *object, const struct known *known,
			  const char *whose);
enum status reading_set_schema(struct reading *reading, const struct json *schema); // that the answer has to keep
// Readers for tables.
enum status read_top_k(struct reading *reading, const struct json *value);
enum status read_max_tokens(struct reading *reading, const struct json *value);
enum status read_stream(struct reading *reading, const struct json *value);
enum status read_energy(struct reading *reading, const struct json *value);    // include_energy
enum status read_speculate(struct reading *reading, const struct json *value); // whether foreseen tokens are computed
enum status read_model(struct reading *reading, const struct json *value);
enum status read_dimensions(struct reading *reading, const struct json *value);
enum status read_stop(struct reading *reading, const struct json *value);
enum status read_parallel(struct reading *reading, const struct json *value);   // parallel_tool_calls
enum status read_nothing(struct reading *reading, const struct json *value);    // it is taken if it asks for nothing
enum status read_and_ignore(struct reading *reading, const struct json *value); // it changes no answer

// ---- tools.c ----
// A function as the API names its parts. Members that are absent, or null, are NULL.
struct function {
	const char *name;
	const struct json *description, *parameters, *strict;
};
bool infer_is_function(const char *name); // it may be one's name
// Add it to the tools of the answer. Errors: STATUS_INVALID_PARAMS.
enum status reading_add_function(struct reading *reading, const struct function *function);
// What is to be called: `mode` none, auto or required; `name` of the only function, or NULL.
void reading_choose_tool(struct reading *reading, const char *mode, const char *name);
// Once all are read: what of tools must fit each other. `form`: the parameter that demands one. Errors:
// STATUS_INVALID_PARAMS.
enum status reading_check_tools(struct reading *reading, const char *form);

// ---- turns.c ----
struct turns {
	struct reading *reading;
	struct json *list; // of messages, of the call's prompt
	const char *role;  // of the turn that is being read; NULL: none yet
	bool spoken;       // it has a text, if an empty one
	struct buffer text, thoughts;
	struct json *calls; // NULL: none
};
void turns_init(struct turns *turns, struct reading *reading); // the prompt of its call becomes theirs
void turns_finish(struct turns *turns);
void turns_role(struct turns *turns, const char *role); // who says what follows: system, user or assistant; it stays
// Texts of one turn are paragraphs; those of an answer follow each other as they came.
void turns_text(struct turns *turns, const char *text);
void turns_thought(struct turns *turns, const char *text);
bool turns_is_id(const char *id); // it may be a call's
// `arguments` are a JSON object. Errors: STATUS_INVALID_PARAMS.
enum status turns_call(struct turns *turns, const char *id, const char *name, const char *arguments);
void turns_result(struct turns *turns, const char *id, const char *text); // what a tool answered
enum status turns_end(struct turns *turns);                               // all is read. Errors: STATUS_INVALID_PARAMS

// ---- openai_*.c ----
// Each reads one parameter into the call. Errors: STATUS_INVALID_PARAMS.
enum status openai_read(struct reading *reading); // of the wording
enum status openai_read_messages(struct reading *reading, const struct json *value);
enum status openai_read_tools(struct reading *reading, const struct json *value);
enum status openai_read_tool_choice(struct reading *reading, const struct json *value);
enum status openai_read_effort(struct reading *reading, const struct json *value);
enum status openai_read_form(struct reading *reading, const struct json *value); // response_format
// Of the wording.
int openai_fail(const struct fault *fault, struct json **out);
struct json *openai_model(const struct model_record *model, bool loaded);
struct json *openai_models(struct json *list);
void openai_begin(struct answer *answer);
void openai_tell(struct answer *answer);
void openai_end(struct answer *answer, const struct ending *ending);

// ---- anthropic_*.c ----
enum status anthropic_read(struct reading *reading);
enum status anthropic_read_messages(struct reading *reading, const struct json *value);
enum status anthropic_read_tools(struct reading *reading, const struct json *value);
void anthropic_begin(struct answer *answer);
void anthropic_tell(struct answer *answer);
void anthropic_end(struct answer *answer, const struct ending *ending);

// ---- responses/ ----
void responses_finish(struct answer *answer); // what it holds of a response is freed

// ---- ollama/ ----
void ollama_pull_leave(struct answer *answer);                     // nothing more of it is told
enum status ollama_no_such(const char *path, struct error *error); // STATUS_METHOD_NOT_FOUND

// ---- parse.c ----
struct infer_parser;
enum status infer_parser_create(struct infer_parser **out, struct net_loop *loop, struct error *error);
void infer_parser_destroy(struct infer_parser **parser); // answers that it had are read through no more
// Read the body (copied) on the parser's thread; infer_read_through follows. Errors: STATUS_RATE_LIMITED,
// STATUS_OUT_OF_MEMORY.
enum status infer_parser_take(struct infer_parser *parser, struct answer *answer, const uint8_t *body, size_t length,
			      struct error *error);

// ---- traced.c ----
void traced_begin(struct answer *answer, struct traces *traces, const struct net_request *request);
struct generation_run *traced_run(struct answer *answer); // of a choice; NULL: the request is not traced
// The request is answered, or begins to be; `error`: with that, which may come in the middle of an answer.
void traced_answered(struct answer *answer, int status, const struct error *error);
void traced_tokens(struct answer *answer, uint64_t input, uint64_t output);
void traced_ended(struct answer *choice, const struct json *end); // `end`: as struct generation_params has it
// The answer goes: the trace of a request goes to the collector. `path`: of its endpoint.
void traced_finish(struct answer *answer, const char *path);

// ---- answer.c ----
// The callbacks for struct generation_params, with the answer as context.
void answer_started(void *context, uint64_t prompt_tokens);
void answer_delta(void *context, const struct json *delta);
void answer_ended(void *context, enum status status, const struct json *end, const struct error *error);
void answer_drop_choices(struct answer *answer);
void answer_keep_choices(struct answer *answer); // they wait in another form, until the whole request is answered
void answer_flush(struct answer *answer);        // an event for what has gathered
// Generate no more, and say why.
void answer_give_up(struct answer *answer, enum status status, const char *why);

// Whether several inputs are asked for at once: embeddings, or documents that are ranked.
static inline bool answer_embeds(const struct answer *answer)
{
	return answer->endpoint == ENDPOINT_EMBEDDINGS || answer->endpoint == ENDPOINT_RERANK ||
	       answer->endpoint == ENDPOINT_OLLAMA_EMBED || answer->endpoint == ENDPOINT_OLLAMA_EMBEDDINGS;
}

// Whether no worker is asked.
static inline bool answer_serves(const struct answer *answer)
{
	return answer->endpoint == ENDPOINT_OLLAMA_SHOW || answer->endpoint == ENDPOINT_OLLAMA_PULL;
}

// Whether it is a chat: thoughts and calls are looked for in what comes.
static inline bool answer_talks(const struct answer *answer)
{
	return answer->endpoint == ENDPOINT_CHAT || answer->endpoint == ENDPOINT_MESSAGES ||
	       answer->endpoint == ENDPOINT_RESPONSES || answer->endpoint == ENDPOINT_OLLAMA_CHAT ||
	       answer->endpoint == ENDPOINT_OLLAMA_GENERATE;
}

// The joules of a request that has asked for them, as generate.end or an embedding's answer has them.
void answer_put_energy(struct json *usage, const struct json *end);
// How the answer came about, as `end` has it: format_changes, where the format of the weights changed between two of
// its tokens; prefill, where another device computed the prompt.
void answer_put_provenance(struct json *json, const struct json *end);
// How many of the foreseen tokens that were computed for a request were chosen, and how many were not:
// accepted_prediction_UNIT and rejected_prediction_UNIT. Nothing if none were computed.
void answer_put_foreseen(struct json *usage, const struct json *end, const char *unit);

// ---- openai_several.c ----
static inline struct answer *answer_whole(struct answer *answer) // the request's, of a choice
{
	return answer->several.of ? answer->several.of : answer;
}
// Whether more than one choice is asked for.
bool answer_has_several(const struct answer *answer);
// Generate all choices: `call` (taken) is for the first. Errors: generation_start's, STATUS_OUT_OF_MEMORY.
enum status answer_generate_several(struct answer *answer, struct json *call, struct error *error);
// A choice has ended: its usage is added to that of the others. Returns whether it was the last.
bool answer_choice_ended(struct answer *choice, const struct json *end);
void answer_cancel_several(struct answer *answer); // nothing more is generated
void answer_finish_several(struct answer *answer); // all choices are freed

// ---- openai_embed.c ----
// Whether `count` embeddings (1 and more), each as long as this one (numbers, or base64), fit into an answer.
bool answer_has_room(const struct json *embedding, size_t count);

// Ask for the embeddings of all inputs, and answer once they are there.
void answer_embed(struct answer *answer);
void answer_embed_finish(struct answer *answer); // what is under way is cancelled
