/* /v1: models as OpenAI's clients know them.
 *
 *     GET /v1/models, /v1/models/{name}
 *     POST /v1/chat/completions, /v1/completions, /v1/embeddings
 *
 * Scope `infer`. What a request asks for and this does not do is refused by name: nothing is passed over that would
 * change the answer. Errors have OpenAI's shape, with hints in their message. Answers come whole, or with `stream` as
 * server-sent events while they are generated: what a slow client has not taken gathers into fewer, larger events.
 *
 *   openai.c          routes, who may, the life of a request
 *   openai_read.c     a body as what a worker is asked
 *   openai_parse.c    the same of large ones, on another thread
 *   openai_answer.c   what it generates as an answer
 *   openai_embed.c    embeddings
 *
 * Thread: the loop's. */
#pragma once
#include "server/http/access.h"

struct openai;

struct openai_params {
	const struct access *access;
	struct net_loop *loop;
	struct models *models;
	struct instances *instances;
	struct audit *audit;
	const char *const *cors_origins; // ends with NULL; may be NULL
	bool load_on_demand;             // a question loads its model; without it only of who may create instances
};
enum status openai_create(struct openai **out, const struct openai_params *params, struct error *error);
void openai_destroy(struct openai **openai);
bool openai_answering(const struct openai *openai); // somebody waits, or has not got all of an answer

bool openai_takes(const char *path);
bool openai_origin_named(const struct openai *openai, const char *origin); // by the operator: its pages may use /v1
// As struct net_handler has them, with the struct openai instead of its context.
void openai_get(struct openai *openai, const struct net_request *request, struct net_response *response);
void openai_options(struct openai *openai, const struct net_request *request, struct net_response *response);
bool openai_post(struct openai *openai, const struct net_request *request, void **user, struct net_response *response);
void openai_posted(void *user, struct net_exchange *exchange, const uint8_t *body, size_t length);
void openai_misread(void *user, struct net_exchange *exchange, const struct error *error);
void openai_sent(void *user, struct net_exchange *exchange);
void openai_over(void *user);
