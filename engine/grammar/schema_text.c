/* Strings of a schema. See schema.h. */
#include "engine/grammar/schema_inside.h"

#include <string.h>

#define HOURS "([01][0-9]|2[0-3])"
#define TIME HOURS ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]" HOURS ":[0-5][0-9])"
#define YEAR "([1-9][0-9]{3}|0([1-9][0-9]{2}|0([1-9][0-9]|0[1-9])))"
#define LEAP_YEAR "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE \
	"(" YEAR \
	"-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]" \
	"))|" LEAP_YEAR "-02-29)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define HOST LABEL "(\\." LABEL "){0,4}"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define HEX_GROUP "[0-9A-Fa-f]{1,4}"
#define SPAN_TIME "T([0-9]{1,4}H([0-9]{1,4}M([0-9]{1,4}S)?)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S)"
#define SPAN_DATE "([0-9]{1,4}Y([0-9]{1,4}M([0-9]{1,4}D)?)?|[0-9]{1,4}M([0-9]{1,4}D)?|[0-9]{1,4}D)"

// Each accepts a part of its format, and every text it accepts is valid: RFC 3339, 4122, 1123, 2673, 4291, 3986; for
// e-mail addresses a form that all programs accept.
static const struct {
	const char *name, *regex;
} formats[] = {
	{"date-time", DATE "T" TIME},
	{"date", DATE},
	{"time", TIME},
	{"duration", "P(" SPAN_DATE "(" SPAN_TIME ")?|" SPAN_TIME "|[0-9]{1,4}W)"},
	{"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
	{"email", "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,3}@" LABEL "(\\." LABEL "){1,4}"},
	{"hostname", HOST},
	{"ipv4", OCTET "(\\." OCTET "){3}"},
	{"ipv6", HEX_GROUP "(:" HEX_GROUP "){7}|::(" HEX_GROUP "(:" HEX_GROUP "){0,5})?"},
	{"uri", "https?://" HOST "(:[1-9][0-9]{0,3})?(/[A-Za-z0-9._~-]{0,64}){0,16}"},
};

static uint32_t of_format(struct schema *schema, const char *name)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (!strcmp(formats[i].name, name))
			return regex_read(schema->builder, &(struct regex){.text = formats[i].regex,
									   .length = strlen(formats[i].regex)});
	return schema_refuse(schema, "format",
			     "is none of date-time, date, time, duration, uuid, email, hostname, ipv4, ipv6, uri");
}

uint32_t schema_text(struct schema *schema, const struct json *json)
{
	struct builder *builder = schema->builder;
	const char *pattern = json_get_string(json, "pattern", NULL), *format = json_get_string(json, "format", NULL);
	const uint32_t least = schema_count(schema, json, "minLength", 0);
	const uint32_t most = schema_count(schema, json, "maxLength", EXPRESSION_ENDLESS);
	uint32_t body;
	if (pattern && (format || least || most != EXPRESSION_ENDLESS))
		return schema_refuse(schema, "pattern",
				     "cannot be combined with a format or a length; put these into the pattern");
	if (format && (least || most != EXPRESSION_ENDLESS))
		return schema_refuse(schema, "format", "cannot be combined with a length");
	if (most < least)
		return schema_refuse(schema, "maxLength", "is less than minLength");
	if (pattern) {
		const struct regex regex = {.text = pattern, .length = strlen(pattern), .search = true, .json = true};
		body = regex_read(builder, &regex);
		if (builder->status == STATUS_INVALID_PARAMS) {
			error_hint(builder->error, "it is the pattern at #%.150s", schema->path);
			schema_note_refused(schema, "pattern");
		}
	} else if (format) {
		body = of_format(schema, format);
	} else {
		body = expression_repeat(builder, schema_common(schema, COMMON_CHARACTER), least, most);
	}
	const uint32_t quote = expression_text(builder, "\"");
	return expression_pair(builder, quote, expression_pair(builder, body, quote));
}
