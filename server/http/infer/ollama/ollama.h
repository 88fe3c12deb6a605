/* Ollama's API, as a wording of what is inside (server/http/infer/inside.h). Thread: the loop's; what reads a body, any
 * that has the answer. */
#pragma once
#include "server/http/infer/inside.h"

// ---- read.c: parameters ----
enum status ollama_read(struct reading *reading); // of the wording

// ---- messages.c ----
enum status ollama_read_messages(struct reading *reading, const struct json *value);
enum status ollama_read_tools(struct reading *reading, const struct json *value);
enum status ollama_no_images(struct reading *reading, const struct json *object); // it has none

// ---- options.c ----
enum status ollama_read_options(struct reading *reading, const struct json *value);

// ---- answer.c ----
void ollama_begin(struct answer *answer);
void ollama_tell(struct answer *answer);
void ollama_end(struct answer *answer, const struct ending *ending);
// Durations in ns, 2^53 at most, of the milliseconds that `end` (generate.end) says.
void ollama_put_durations(struct json *json, const struct json *end);
struct json *ollama_embeddings(const struct answer *answer, struct json *values, uint64_t prompt_tokens);

// ---- library.c: which models there are ----
const struct model_record *ollama_find(const struct models *models, const char *name);
enum status ollama_get(const struct infer_params *params, const char *path, struct json **out, struct error *error);
enum status ollama_show(struct answer *answer, const struct infer_params *params, struct error *error);

// ---- pull.c ----
// Errors: those of models_add.
enum status ollama_pull_start(struct answer *answer, const struct infer_params *params, struct error *error);
