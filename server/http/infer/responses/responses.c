/* The words of /v1/responses: its wording, and errors. What is asked is read in read.c, input.c and tools.c, what is
 * answered told in answer.c. */
#include "server/http/infer/responses/responses.h"

// Before the first event it is an error as all of OpenAI's are. Later it is an event with a response that has failed,
// and that has what was said until then.
static int fail(const struct fault *fault, struct json **out)
{
	struct json *plain = NULL, *error = json_new_object();
	const int http = openai_fail(fault, &plain);
	if (!fault->answer) {
		json_destroy(&error);
		*out = plain;
		return http;
	}
	const struct json *inside = json_get(plain, "error");
	json_set_string(error, "code", http < 500 ? json_get_string(inside, "code", "invalid_prompt") : "server_error");
	json_set_string(error, "message", json_get_string(inside, "message", ""));
	responses_close_item(fault->answer, "incomplete");
	struct json *response = responses_object(fault->answer, "failed", json_copy(fault->answer->response.items));
	json_set(response, "error", error);
	*out = responses_event(fault->answer, "response.failed");
	json_set(*out, "response", response);
	json_destroy(&plain);
	return http;
}

void responses_finish(struct answer *answer)
{
	json_destroy(&answer->response.repeats);
	json_destroy(&answer->response.items);
	buffer_finish(&answer->response.text);
}

const struct wording responses_wording = {.id_header = "x-request-id:",
					  .names_events = true,
					  .whole_calls = true,
					  .read = responses_read,
					  .fail = fail,
					  .begin = responses_begin,
					  .tell = responses_tell,
					  .end = responses_end,
					  .model = openai_model,
					  .models = openai_models};
