/* The words of Ollama's API: its wording, and errors. What is asked is read in read.c, messages.c and options.c, what
 * is answered told in answer.c; library.c says which models there are, and pull.c adds them. */
#include "server/http/infer/ollama/ollama.h"

static int fail(const struct fault *fault, struct json **out)
{
	struct json *plain = NULL;
	const int http = openai_fail(fault, &plain);
	*out = json_new_object();
	json_set(*out, "error", json_copy(json_get(json_get(plain, "error"), "message")));
	json_destroy(&plain);
	return http;
}

static enum status serve(struct answer *answer, const struct infer_params *params, struct error *error)
{
	return answer->endpoint == ENDPOINT_OLLAMA_PULL ? ollama_pull_start(answer, params, error)
							: ollama_show(answer, params, error);
}

const struct wording ollama_wording = {.id_header = "x-request-id:",
				       .lines = true,
				       .whole_calls = true,
				       .read = ollama_read,
				       .fail = fail,
				       .begin = ollama_begin,
				       .tell = ollama_tell,
				       .end = ollama_end,
				       .embeddings = ollama_embeddings,
				       .find = ollama_find,
				       .get = ollama_get,
				       .serve = serve};
