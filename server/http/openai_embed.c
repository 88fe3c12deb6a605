/* POST /v1/embeddings: one input after the other, since each waits in the model's line like any request. */
#include "common/base/base64.h"
#include "server/http/openai_inside.h"

#include <stdlib.h>
#include <string.h>

static void finish(struct answer *answer)
{
	struct json *json = json_new_object(), *usage = json_new_object();
	json_set_string(json, "object", "list");
	json_set(json, "data", answer->results);
	answer->results = NULL;
	json_set_string(json, "model", answer->model);
	json_set_integer(usage, "prompt_tokens", (int64_t)answer->prompt_tokens);
	json_set_integer(usage, "total_tokens", (int64_t)answer->prompt_tokens);
	json_set(json, "usage", usage);
	answer_json(answer, json);
}

void answer_embed(struct answer *answer)
{
	struct error error = {0};
	struct json *call = json_new_object(), *prompt = json_new_object();
	const struct json *input = answer->next_input;
	if (!input) {
		json_destroy(&prompt);
		json_destroy(&call);
		finish(answer);
		return;
	}
	json_set(prompt, json_type(input) == JSON_STRING ? "text" : "tokens", json_copy(input));
	json_set(call, "prompt", prompt);
	if (answer_generate(answer, call, &error))
		answer_fail(answer, &error, error.status == STATUS_NOT_FOUND ? "model" : NULL);
}

// Little-endian floats in base64, as clients ask for where they do not say that they want numbers.
static struct json *encode(const struct json *values)
{
	size_t count = json_count(values), at = 0;
	float *floats = malloc((count ? count : 1) * sizeof(*floats));
	char *text = malloc(BASE64_TEXT_BYTES(count * sizeof(*floats)));
	struct json *json = NULL;
	if (floats && text) {
		for (const struct json *one = json_first(values); one; one = json_next(one))
			floats[at++] = (float)json_number(one, 0);
		base64_encode(floats, count * sizeof(*floats), text);
		json = json_new_string(text);
	}
	free(floats);
	free(text);
	return json;
}

void answer_embedded(struct answer *answer, enum status status, const struct json *result, const struct error *error)
{
	const struct json *values = json_get(result, "embedding");
	if (status) {
		answer_fail(answer, error, NULL);
		return;
	}
	struct json *one = json_new_object();
	if (!answer->results)
		answer->results = json_new_array();
	json_set_string(one, "object", "embedding");
	json_set_integer(one, "index", (int64_t)json_count(answer->results));
	json_set(one, "embedding", answer->base64 ? encode(values) : json_copy(values));
	json_push(answer->results, one);
	answer->prompt_tokens += (uint64_t)json_get_integer(result, "prompt_tokens", 0);
	answer->next_input = json_next(answer->next_input);
	answer_embed(answer);
}
