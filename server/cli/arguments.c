/* See arguments.h. */
#include "server/cli/arguments.h"

#include "server/cli/format.h"

#include <string.h>

const struct cli_flag arguments_common[] = {
	{"data", "DIR", "the data directory of the server to ask (default $EXOGPU_DATA, else $XDG_DATA_HOME/exogpu)",
	 offsetof(struct cli_arguments, data)},
	{"url", "URL", "ask the server at this address instead, with the token in EXOGPU_TOKEN",
	 offsetof(struct cli_arguments, url)},
	{"json", NULL, "print the answer as JSON, in one line", offsetof(struct cli_arguments, json)},
	{"help", NULL, "this text", offsetof(struct cli_arguments, help)},
	{0},
};

static const struct cli_flag *find_in(const struct cli_flag *flags, const char *name, size_t length)
{
	for (; flags && flags->name; flags++)
		if (strlen(flags->name) == length && !memcmp(flags->name, name, length))
			return flags;
	return NULL;
}

static enum status unknown(const struct cli_flag *own, const char *name, size_t length, struct error *error)
{
	struct nearest nearest;
	nearest_start(&nearest, name, length);
	for (const struct cli_flag *flag = own; flag && flag->name; flag++)
		nearest_offer(&nearest, flag->name);
	for (const struct cli_flag *flag = arguments_common; flag->name; flag++)
		nearest_offer(&nearest, flag->name);
	error_set(error, STATUS_INVALID_PARAMS, "there is no option --%.*s", length > 60 ? 60 : (int)length, name);
	if (nearest.best)
		error_hint(error, "did you mean --%s?", nearest.best);
	return STATUS_INVALID_PARAMS;
}

// Reads the flag at argv[*at] and moves *at to its last word.
static enum status take_flag(struct cli_arguments *arguments, const struct cli_flag *own, int argc, char **argv,
			     int *at, struct error *error)
{
	const char *word = argv[*at], *name = !strcmp(word, "-h") ? "help" : word + 2, *value = strchr(name, '=');
	size_t length = value ? (size_t)(value - name) : strlen(name);
	const struct cli_flag *flag = find_in(own, name, length);
	if (!flag)
		flag = find_in(arguments_common, name, length);
	if (!flag)
		return unknown(own, name, length, error);
	char *member = (char *)arguments + flag->offset;
	if (!flag->value) {
		if (value)
			return error_set(error, STATUS_INVALID_PARAMS, "--%s takes no value", flag->name);
		*(bool *)(void *)member = true;
		return STATUS_OK;
	}
	if (value)
		value++;
	else if (*at + 1 < argc)
		value = argv[++*at];
	if (!value || !value[0])
		return error_set(error, STATUS_INVALID_PARAMS, "--%s needs a value: --%s %s", flag->name, flag->name,
				 flag->value);
	*(const char **)(void *)member = value;
	return STATUS_OK;
}

enum status arguments_parse(struct cli_arguments *arguments, const struct cli_flag *own, const char *operand, int argc,
			    char **argv, struct error *error)
{
	bool flags_ended = false;
	*arguments = (struct cli_arguments){0};
	for (int i = 0; i < argc && !arguments->help; i++) {
		const char *word = argv[i];
		if (!flags_ended && !strcmp(word, "--")) {
			flags_ended = true;
		} else if (!flags_ended && (!strncmp(word, "--", 2) || !strcmp(word, "-h"))) {
			enum status status = take_flag(arguments, own, argc, argv, &i, error);
			if (status)
				return status;
		} else if (operand && !arguments->operand) {
			arguments->operand = word;
		} else {
			return error_set(error, STATUS_INVALID_PARAMS, "\"%.60s\" is one argument too many", word);
		}
	}
	if (operand && !arguments->help && (!arguments->operand || !arguments->operand[0]))
		return error_set(error, STATUS_INVALID_PARAMS, "%s is missing", operand);
	return STATUS_OK;
}
