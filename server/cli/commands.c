/* See commands.h. */
#include "server/cli/commands.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "server/cli/client.h"
#include "server/cli/format.h"

#include <string.h>

static enum status print_json(const struct json *result, struct error *error)
{
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES + LIMIT_BODY_BYTES);
	enum status status = json_print(result, &text);
	if (status)
		error_set(error, status, "the answer cannot be printed: %s", status_text(status));
	else
		printf("%s\n", buffer_text(&text));
	buffer_finish(&text);
	return status;
}

int command_call(const struct cli_arguments *arguments, const char *method, struct json *params, struct json **result,
		 struct error *error)
{
	struct target target;
	*result = NULL;
	enum status status = target_find(&target, arguments->data, arguments->url, error);
	if (status) {
		json_destroy(&params);
		return status == STATUS_INVALID_PARAMS ? 2 : 1;
	}
	status = client_call(&target, method, params, result, error);
	if (!status && arguments->json) {
		status = print_json(*result, error);
		json_destroy(result);
	}
	return status ? 1 : 0;
}

static bool fits(const struct json *member, const char *key, const char *id)
{
	return member && !strcmp(json_get_string(member, key, ""), id);
}

const struct json *command_find(const struct json *list, const char *key, const char *id, const struct json *from)
{
	if (fits(from, key, id))
		return from;
	if (from && fits(json_next(from), key, id))
		return json_next(from);
	for (const struct json *one = json_first(list); one; one = json_next(one))
		if (fits(one, key, id))
			return one;
	return NULL;
}

int64_t command_age_ms(const struct json *object, const char *name)
{
	int64_t at, now = clock_wall_ms();
	if (clock_parse(json_get_string(object, name, ""), &at))
		return -1;
	return at < now ? now - at : 0;
}

void command_print_text(FILE *out, const char *before, const char *text)
{
	char line[1280];
	snprintf(line, sizeof line, "%s%s", before, text);
	text_clean(line);
	for (size_t length = strlen(line); length && line[length - 1] == ' '; length--)
		line[length - 1] = 0;
	fprintf(out, "%s\n", line);
}
