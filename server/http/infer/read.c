/* A body as what a worker is asked (generate.start of schema/node.json): what all APIs have in common. Each has a table
 * that says of every parameter what becomes of it; one that is not in it, or that asks for what is not done here, is
 * refused by name. */
#include "server/http/infer/inside.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

enum status reading_wrong(struct reading *reading, const char *what)
{
	return error_set(reading->error, STATUS_INVALID_PARAMS, "%s %s", reading->param, what);
}

enum status reading_refuse(struct reading *reading, const char *hint)
{
	error_set(reading->error, STATUS_INVALID_PARAMS, "%s is not supported here", reading->param);
	if (hint)
		error_hint(reading->error, "%s", hint);
	return STATUS_INVALID_PARAMS;
}

enum status reading_missing(struct reading *reading, const char *param)
{
	reading->param = param;
	return reading_wrong(reading, "is missing");
}

// ---- objects inside ----

static bool has_type(const struct json *value, int as)
{
	const enum json_type type = json_type(value);
	switch (as) {
	case KNOWN_TEXT:
		return type == JSON_STRING;
	case KNOWN_LIST:
		return type == JSON_ARRAY;
	case KNOWN_NOTHING:
		return (type == JSON_ARRAY && !json_count(value)) || (type == JSON_BOOL && !json_bool(value, true));
	}
	return true;
}

enum status reading_known(struct reading *reading, const struct json *object, const struct known *known,
			  const char *whose)
{
	for (const struct json *one = json_first(object); one; one = json_next(one)) {
		const struct known *at = known;
		while (at->name && strcmp(at->name, json_name(one)) != 0)
			at++;
		if (json_type(one) == JSON_NULL)
			continue;
		if (!at->name || (at->as == KNOWN_NOTHING && !has_type(one, at->as)))
			return error_set(reading->error, STATUS_INVALID_PARAMS, "%.64s of %s is not supported here",
					 json_name(one), whose);
		if (!has_type(one, at->as))
			return error_set(reading->error, STATUS_INVALID_PARAMS, "%.64s of %s must be a %s",
					 json_name(one), whose, at->as == KNOWN_TEXT ? "text" : "list");
	}
	return STATUS_OK;
}

// ---- numbers ----

enum status reading_number(struct reading *reading, const struct json *value, double least, double most)
{
	const double number = json_number(value, NAN);
	if (!(number >= least && number <= most))
		return error_set(reading->error, STATUS_INVALID_PARAMS, "%s must be a number from %g to %g",
				 reading->param, least, most);
	json_set_number(reading->sampling, reading->param, number);
	return STATUS_OK;
}

enum status reading_integer(struct reading *reading, const struct json *value, int64_t least, int64_t most,
			    int64_t *out)
{
	if (json_type(value) == JSON_NUMBER && !json_integer(value, out) && *out >= least && *out <= most)
		return STATUS_OK;
	return error_set(reading->error, STATUS_INVALID_PARAMS, "%s must be an integer from %" PRId64 " to %" PRId64,
			 reading->param, least, most);
}

enum status read_top_k(struct reading *reading, const struct json *value)
{
	int64_t number;
	enum status status = reading_integer(reading, value, -1, 1048576, &number);
	if (!status)
		json_set_integer(reading->sampling, "top_k", number < 0 ? 0 : number);
	return status;
}

enum status read_max_tokens(struct reading *reading, const struct json *value)
{
	int64_t number;
	enum status status = reading_integer(reading, value, 1, 16777216, &number);
	if (!status)
		json_set_integer(reading->call, "max_tokens", number);
	return status;
}

enum status read_dimensions(struct reading *reading, const struct json *value)
{
	int64_t *wanted = &reading->answer->dimensions;
	return json_integer(value, wanted) || *wanted < 1 || *wanted > LIMIT_MODEL_WIDTH
		       ? reading_wrong(reading, "must be a whole number from 1 to 65536")
		       : STATUS_OK;
}

// ---- switches ----

enum status reading_bool(struct reading *reading, const struct json *value, bool *out)
{
	*out = json_bool(value, false);
	return json_type(value) == JSON_BOOL ? STATUS_OK : reading_wrong(reading, "must be true or false");
}

enum status read_stream(struct reading *reading, const struct json *value)
{
	return reading_bool(reading, value, &reading->answer->streams);
}

enum status read_energy(struct reading *reading, const struct json *value)
{
	return reading_bool(reading, value, &reading->answer->energy);
}

// Set this parameter of the call to the worker.
static enum status pass_bool(struct reading *reading, const char *name, const struct json *value)
{
	bool wanted;
	const enum status status = reading_bool(reading, value, &wanted);
	if (!status)
		json_set_bool(reading->call, name, wanted);
	return status;
}

enum status read_parallel(struct reading *reading, const struct json *value)
{
	return pass_bool(reading, "parallel_tool_calls", value);
}

enum status read_speculate(struct reading *reading, const struct json *value)
{
	return pass_bool(reading, "speculate", value);
}

// Parameters that are accepted as long as they ask for nothing.
enum status read_nothing(struct reading *reading, const struct json *value)
{
	const bool empty = (json_type(value) == JSON_ARRAY && !json_count(value)) ||
			   (json_type(value) == JSON_BOOL && !json_bool(value, true));
	return empty ? STATUS_OK : reading_refuse(reading, NULL);
}

enum status read_and_ignore(struct reading *reading, const struct json *value)
{
	(void)reading, (void)value;
	return STATUS_OK;
}

// ---- texts ----

enum status read_model(struct reading *reading, const struct json *value)
{
	const char *name = json_string(value, "");
	if (!name[0] || strlen(name) >= sizeof reading->answer->model)
		return reading_wrong(reading, "must be the name of a model");
	memcpy(reading->answer->model, name, strlen(name) + 1);
	return STATUS_OK;
}

enum status read_stop(struct reading *reading, const struct json *value)
{
	const bool one = json_type(value) == JSON_STRING;
	struct json *list = json_new_array();
	json_set(reading->call, "stop", list);
	if (!one && (json_type(value) != JSON_ARRAY || json_count(value) > LIMIT_STOPS))
		return reading_wrong(reading, "must be a text or a list of texts, 16 at most");
	for (const struct json *text = one ? value : json_first(value); text; text = one ? NULL : json_next(text)) {
		const char *bytes = json_string(text, "");
		if (!bytes[0] || strlen(bytes) > 256)
			return reading_wrong(reading, "must be texts of 1 to 256 bytes");
		json_push(list, json_new_string(bytes));
	}
	return STATUS_OK;
}

// ---- the whole ----

// Its name is to blame, and is the body's, which goes; one that is too long to be kept is told in the message alone.
static enum status no_such(struct reading *reading, const char *name)
{
	struct answer *answer = reading->answer;
	if (strlen(name) < sizeof answer->unknown) {
		snprintf(answer->unknown, sizeof answer->unknown, "%s", name);
		reading->param = answer->unknown;
	}
	return error_set(reading->error, STATUS_INVALID_PARAMS, "there is no parameter %.64s here", name);
}

enum status reading_all(struct reading *reading, const struct parameter *parameters)
{
	enum status status = STATUS_OK;
	const int bit = 1 << reading->answer->endpoint;
	for (const struct json *one = json_first(reading->body); one && !status; one = json_next(one)) {
		const struct parameter *at = parameters;
		while (at->name && (!(at->endpoints & bit) || strcmp(at->name, json_name(one)) != 0))
			at++;
		if (json_type(one) == JSON_NULL)
			continue;
		reading->param = at->name;
		if (!at->name)
			status = no_such(reading, json_name(one));
		else if (!at->read)
			status = reading_refuse(reading, NULL);
		else
			status = at->read(reading, one);
	}
	return status;
}

// A request that does not say it gets another seed each time, and a bounded answer.
enum status reading_fill_in(struct reading *reading, int64_t max_tokens)
{
	uint64_t seed = 0;
	if (!json_get(reading->sampling, "seed")) {
		if (RAND_bytes((unsigned char *)&seed, sizeof seed) != 1)
			return error_set(reading->error, STATUS_UNAVAILABLE, "the system gives no random numbers");
		json_set_integer(reading->sampling, "seed", (int64_t)(seed >> 11));
	}
	if (!json_get(reading->call, "max_tokens"))
		json_set_integer(reading->call, "max_tokens", max_tokens);
	json_set(reading->call, "sampling", reading->sampling);
	reading->sampling = NULL;
	return STATUS_OK;
}

static void read_object(struct answer *answer, const struct json *body, struct infer_reading *out)
{
	struct reading reading = {.answer = answer,
				  .body = body,
				  .call = json_new_object(),
				  .sampling = json_new_object(),
				  .error = &out->error};
	out->status = answer->wording->read(&reading);
	out->param = reading.param;
	if (!out->status && !answer_embeds(answer)) {
		out->call = reading.call;
		reading.call = NULL;
	}
	json_destroy(&reading.call);
	json_destroy(&reading.sampling);
}

void infer_read_body(struct answer *answer, const char *body, size_t length, struct infer_reading *out)
{
	struct json *json = NULL;
	*out = (struct infer_reading){0};
	answer->body_bytes = length;
	out->status = json_parse(&json, body, length, &out->error);
	if (!out->status && json_type(json) != JSON_OBJECT)
		out->status = error_set(&out->error, STATUS_INVALID_PARAMS, "the body must be a JSON object");
	if (!out->status)
		read_object(answer, json, out);
	json_destroy(&json);
}

void infer_reading_finish(struct infer_reading *reading)
{
	json_destroy(&reading->call);
}
