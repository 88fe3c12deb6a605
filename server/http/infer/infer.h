/* /v1 and /api: models as the clients of other services know them.
 *
 *     GET /v1/models, /v1/models/{name}
 *     POST /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/rerank
 *     POST /v1/messages, /v1/messages/count_tokens
 *     POST /v1/responses
 *     GET /api/version, /api/tags, /api/ps
 *     POST /api/chat, /api/generate, /api/embed, /api/embeddings, /api/show, /api/pull
 *
 * Scope `infer`; for /api/pull `admin`. What a request asks for and this does not do is refused by name: nothing is
 * passed over that would change the answer. Errors have the shape of their API, with hints in their message. Answers
 * come whole, or with `stream` as server-sent events while they are generated.
 *
 *   infer.c      routes, who may, the life of a request
 *   read.c       a body as what a worker is asked; parse.c the same of large ones, on another thread
 *   tools.c      the functions that a model may call
 *   traced.c     the trace of a request, where a collector is configured
 *   said.c       what a model says: thoughts, text, calls; answer.c hands it on
 *   openai*.c    OpenAI's words for all of this; anthropic*.c Anthropic's,
 *                responses/ those of OpenAI's /v1/responses, ollama/ Ollama's
 *
 * Thread: the loop's. */
#pragma once
#include "server/http/access.h"

struct infer;

struct infer_params {
	const struct access *access;
	struct net_loop *loop;
	struct models *models;
	struct instances *instances;
	struct cluster *cluster;
	struct audit *audit;
	struct traces *traces;           // NULL: no traces are made
	const char *const *cors_origins; // ends with NULL; may be NULL
	bool load_on_demand;             // a question loads its model; without it only of who may create instances
};
enum status infer_create(struct infer **out, const struct infer_params *params, struct error *error);
void infer_destroy(struct infer **infer);
bool infer_answering(const struct infer *infer); // somebody waits, or has not got all of an answer

bool infer_takes(const char *path);
bool infer_origin_named(const struct infer *infer, const char *origin); // by the operator: its pages may use /v1
// As struct net_handler has them, with the struct infer instead of its context.
void infer_get(struct infer *infer, const struct net_request *request, struct net_response *response);
void infer_options(struct infer *infer, const struct net_request *request, struct net_response *response);
bool infer_post(struct infer *infer, const struct net_request *request, void **user, struct net_response *response);
void infer_posted(void *user, struct net_exchange *exchange, const uint8_t *body, size_t length);
void infer_misread(void *user, struct net_exchange *exchange, const struct error *error);
void infer_sent(void *user, struct net_exchange *exchange);
void infer_over(void *user);
