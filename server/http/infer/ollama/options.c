/* `options` of Ollama's requests: how tokens are drawn. What says how a model is loaded changes no answer of one that
 * is. */
#include "server/http/infer/ollama/ollama.h"

#include <math.h>
#include <string.h>

enum { TOKENS_MOST = 16777216 };

// An option and its name in `sampling`; NULL: the option is ignored.
static const struct option {
	const char *name, *sampling;
	double least, most;
} numbers[] = {{"temperature", "temperature", 0, 2},
	       {"top_p", "top_p", 0, 1},
	       {"min_p", "min_p", 0, 1},
	       {"repeat_penalty", "repetition_penalty", 0.01, 10},
	       {"presence_penalty", "presence_penalty", -2, 2},
	       {"frequency_penalty", "frequency_penalty", -2, 2},
	       // These do nothing with the one value that they may have.
	       {"typical_p", NULL, 1, 1},
	       {"tfs_z", NULL, 1, 1},
	       {"mirostat", NULL, 0, 0},
	       {0}};
static const char *const of_loading[] = {"num_ctx",  "num_batch",  "num_gpu",      "main_gpu",     "num_thread",
					 "num_keep", "use_mmap",   "use_mlock",    "low_vram",     "f16_kv",
					 "numa",     "vocab_only", "mirostat_tau", "mirostat_eta", "draft_num_predict",
					 NULL};

static enum status wrong(struct reading *reading, const char *name, const char *what)
{
	return error_set(reading->error, STATUS_INVALID_PARAMS, "options.%.64s %s", name, what);
}

static enum status read_number(struct reading *reading, const struct option *option, const struct json *value)
{
	const double number = json_number(value, NAN);
	if (!(number >= option->least && number <= option->most))
		return error_set(reading->error, STATUS_INVALID_PARAMS,
				 option->sampling ? "options.%s must be a number from %g to %g"
						  : "options.%s is not supported here: it may be %g",
				 option->name, option->least, option->most);
	if (option->sampling)
		json_set_number(reading->sampling, option->sampling, number);
	return STATUS_OK;
}

static enum status read_integer(struct reading *reading, const char *name, const struct json *value)
{
	int64_t number;
	if (json_type(value) != JSON_NUMBER || json_integer(value, &number))
		return wrong(reading, name, "must be an integer");
	if (!strcmp(name, "seed"))
		json_set_integer(reading->sampling, "seed", number & INT64_C(0x1FFFFFFFFFFFFF));
	else if (!strcmp(name, "top_k") && number >= -1 && number <= 1048576)
		json_set_integer(reading->sampling, "top_k", number < 0 ? 0 : number);
	else if (!strcmp(name, "num_predict") && (number == -1 || number == -2))
		json_set_integer(reading->call, "max_tokens", TOKENS_MOST); // until the context is full
	else if (!strcmp(name, "num_predict") && number > 0 && number <= TOKENS_MOST)
		json_set_integer(reading->call, "max_tokens", number);
	else
		return wrong(reading, name, "is out of range");
	return STATUS_OK;
}

static bool is_one_of(const char *name, const char *const *names)
{
	while (*names && strcmp(*names, name) != 0)
		names++;
	return *names != NULL;
}

static enum status read_option(struct reading *reading, const struct json *value)
{
	static const char *const integers[] = {"seed", "top_k", "num_predict", NULL};
	const char *name = json_name(value);
	for (const struct option *one = numbers; one->name; one++)
		if (!strcmp(one->name, name))
			return read_number(reading, one, value);
	if (is_one_of(name, integers))
		return read_integer(reading, name, value);
	if (is_one_of(name, of_loading))
		return STATUS_OK;
	if (!strcmp(name, "speculate")) {
		reading->param = "options.speculate";
		return read_speculate(reading, value);
	}
	if (strcmp(name, "stop") != 0)
		return wrong(reading, name, "is not supported here");
	reading->param = "options.stop";
	return read_stop(reading, value);
}

enum status ollama_read_options(struct reading *reading, const struct json *value)
{
	enum status status = STATUS_OK;
	if (json_type(value) != JSON_OBJECT)
		return reading_wrong(reading, "must be an object");
	for (const struct json *one = json_first(value); one && !status; one = json_next(one))
		if (json_type(one) != JSON_NULL)
			status = read_option(reading, one);
	return status;
}
