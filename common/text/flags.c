/* See flags.h. */
#include "common/text/flags.h"

#include "common/text/nearest.h"

#include <string.h>

enum { NAME_COLUMNS = 22, HELP_COLUMNS = 74 }; // of a help text: a line has 100

static const struct flag *find_in(const struct flag *flags, const char *name, size_t length)
{
	for (; flags && flags->name; flags++)
		if (strlen(flags->name) == length && !memcmp(flags->name, name, length))
			return flags;
	return NULL;
}

static void offer(struct nearest *nearest, const struct flag *flags)
{
	for (; flags && flags->name; flags++)
		if (flags->help)
			nearest_offer(nearest, flags->name);
}

// `word` as it was typed, its dashes included.
static enum status unknown(const struct flags *flags, const char *word, struct error *error)
{
	struct nearest nearest;
	size_t dashes = strspn(word, "-"), length = strcspn(word, "=");
	error_set(error, STATUS_INVALID_PARAMS, "there is no option %.*s", length > 60 ? 60 : (int)length, word);
	if (length <= dashes)
		return STATUS_INVALID_PARAMS;
	nearest_start(&nearest, word + dashes, length - dashes);
	offer(&nearest, flags->own);
	offer(&nearest, flags->common);
	if (nearest.best)
		error_hint(error, "did you mean --%s?", nearest.best);
	return STATUS_INVALID_PARAMS;
}

// Keeps the value of argv[*at], which is the flag's, and moves *at to its last word.
static enum status take_value(const struct flag *flag, const char **member, int argc, char **argv, int *at,
			      struct error *error)
{
	const char *value = strchr(argv[*at], '=');
	if (value)
		value++;
	else if (*at + 1 < argc)
		value = argv[++*at];
	if (!value)
		return error_set(error, STATUS_INVALID_PARAMS, "--%s needs a value: --%s %s", flag->name, flag->name,
				 flag->value);
	if (!value[0])
		return error_set(error, STATUS_INVALID_PARAMS, "--%s must not be empty", flag->name);
	const bool many = strlen(flag->value) > 3 && !strcmp(flag->value + strlen(flag->value) - 3, "...");
	for (size_t i = 1; *member && many && i < FLAGS_MANY; i++)
		member++;
	if (*member && many)
		return error_set(error, STATUS_INVALID_PARAMS, "--%s is given more than %d times", flag->name,
				 FLAGS_MANY);
	if (*member)
		return error_set(error, STATUS_INVALID_PARAMS, "--%s is given twice", flag->name);
	*member = value;
	return STATUS_OK;
}

static enum status take(const struct flags *flags, void *into, int argc, char **argv, int *at, bool *help,
			struct error *error)
{
	const char *word = argv[*at], *name = !strcmp(word, "-h") ? "help" : word + 2;
	if (word[1] != '-' && strcmp(word, "-h") != 0)
		return unknown(flags, word, error);
	size_t length = strcspn(name, "=");
	const struct flag *flag = find_in(flags->own, name, length);
	if (!flag)
		flag = find_in(flags->common, name, length);
	if (!flag)
		return unknown(flags, word, error);
	char *member = (char *)into + flag->offset;
	if (flag->value)
		return take_value(flag, (const char **)(void *)member, argc, argv, at, error);
	if (name[length])
		return error_set(error, STATUS_INVALID_PARAMS, "--%s takes no value", flag->name);
	*(bool *)(void *)member = true;
	*help = !strcmp(flag->name, "help");
	return STATUS_OK;
}

enum status flags_read(const struct flags *flags, void *into, int argc, char **argv, struct error *error)
{
	bool ended = false, help = false;
	const char **operands = (const char **)(void *)((char *)into + flags->operand_offset),
		   *missing = flags->operands;
	size_t count = 0;
	for (int i = 0; i < argc && !help; i++) {
		const char *word = argv[i];
		if (!ended && !strcmp(word, "--")) {
			ended = true;
		} else if (!ended && word[0] == '-' && word[1]) {
			enum status status = take(flags, into, argc, argv, &i, &help, error);
			if (status)
				return status;
		} else if (missing && word[0]) {
			operands[count++] = word;
			missing = strchr(missing, ' ');
			missing = missing ? missing + 1 : NULL;
		} else {
			return error_set(error, STATUS_INVALID_PARAMS, "\"%.60s\" is one argument too many", word);
		}
	}
	if (missing && missing[0] != '[' && !help)
		return error_set(error, STATUS_INVALID_PARAMS, "%.*s is missing", (int)strcspn(missing, " "), missing);
	return STATUS_OK;
}

// How much of a help text stands on its next line: up to where it breaks by itself, or as many words as fit.
static size_t line_length(const char *text)
{
	const size_t length = strcspn(text, "\n");
	size_t fits = 0;
	for (size_t i = 0; length > HELP_COLUMNS && i <= HELP_COLUMNS; i++)
		if (text[i] == ' ')
			fits = i;
	return fits ? fits : length;
}

// A name wider than its column gets a line of its own.
static void print_flag(const struct flag *flag, FILE *out)
{
	char left[40];
	const char *text = flag->help;
	snprintf(left, sizeof left, "--%s%s%s", flag->name, flag->value ? " " : "", flag->value ? flag->value : "");
	if (strlen(left) > NAME_COLUMNS) {
		fprintf(out, "  %s\n", left);
		left[0] = 0;
	}
	for (size_t length; *text; text += length + (text[length] != 0), left[0] = 0) {
		length = line_length(text);
		fprintf(out, "  %-*s  %.*s\n", NAME_COLUMNS, left, (int)length, text);
	}
}

void flags_print(const struct flag *flags, FILE *out)
{
	for (; flags && flags->name; flags++)
		if (flags->help)
			print_flag(flags, out);
}
