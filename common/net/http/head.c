/* See head.h. */
#include "common/net/http/head.h"

#include <string.h>
#include <strings.h>

enum state {
	STATE_BEGIN,
	STATE_EMPTY_LF, // of an empty line before it
	STATE_METHOD,
	STATE_TARGET,
	STATE_VERSION,
	STATE_LINE_LF,
	STATE_FIELD, // the beginning of a line
	STATE_NAME,
	STATE_BEFORE_VALUE,
	STATE_VALUE,
	STATE_VALUE_LF,
	STATE_LAST_LF,
	STATE_OVER
};

enum { METHOD_MOST = 24 };

static const char one_length[] = "Content-Length with a plain number, or chunks and nothing else, says how long it is";
static const char crlf[] = "send printable characters, and end lines with CR LF";

static enum head_result refuse(struct head *head, int status, const char *message, const char *hint)
{
	head->state = STATE_OVER;
	head->status = status;
	head->message = message;
	head->hint = hint;
	return HEAD_REFUSED;
}

static enum head_result refuse_control(struct head *head)
{
	return refuse(head, 400, "the request's header contains a control character", crlf);
}

static bool is_control(uint8_t byte)
{
	return byte < ' ' || byte == 0x7f;
}

static bool is_digit(int byte)
{
	return byte >= '0' && byte <= '9';
}

static bool is_token(uint8_t byte)
{
	return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
	       (byte && strchr("!#$%&'*+-.^_`|~", byte));
}

static bool is_white(int byte)
{
	return byte == ' ' || byte == '\t';
}

// Each byte that is kept was counted in `read`, so there is room for it.
static void keep(struct head *head, struct head_text *text, uint8_t byte)
{
	head->text[head->text_length++] = (char)byte;
	text->length++;
}

static void begin_text(const struct head *head, struct head_text *text)
{
	*text = (struct head_text){.at = (uint16_t)head->text_length};
}

static bool equals(const struct head *head, const struct head_text *text, const char *word)
{
	return text->length == strlen(word) && !memcmp(head->text + text->at, word, text->length);
}

void head_begin(struct head *head)
{
	memset(head, 0, offsetof(struct head, fields));
}

// ---- the request line ----

static enum head_result on_begin(struct head *head, uint8_t byte)
{
	if (byte == '\r' && !head->begun) {
		head->begun = true;
		head->state = STATE_EMPTY_LF;
		return HEAD_MORE;
	}
	if (!is_token(byte))
		return is_control(byte) ? refuse_control(head)
					: refuse(head, 400, "a request begins with its method", crlf);
	head->state = STATE_METHOD;
	begin_text(head, &head->method_text);
	keep(head, &head->method_text, byte);
	return HEAD_MORE;
}

static enum head_result on_method(struct head *head, uint8_t byte)
{
	if (byte == ' ') {
		head->state = STATE_TARGET;
		begin_text(head, &head->target);
		return HEAD_MORE;
	}
	if (is_control(byte))
		return refuse_control(head);
	if (!is_token(byte) || head->method_text.length == METHOD_MOST)
		return refuse(head, 400, "a request begins with its method", "as in GET / HTTP/1.1");
	keep(head, &head->method_text, byte);
	return HEAD_MORE;
}

static enum head_result on_target(struct head *head, uint8_t byte)
{
	if (byte == ' ' && head->target.length) {
		head->state = STATE_VERSION;
		return HEAD_MORE;
	}
	if (is_control(byte))
		return refuse_control(head);
	if (byte == ' ' || byte > '~')
		return refuse(head, 400, "the target of the request is not a path",
			      "percent-encode everything that is not ASCII");
	keep(head, &head->target, byte);
	return HEAD_MORE;
}

static enum head_result on_version(struct head *head, uint8_t byte)
{
	static const char version[] = "HTTP/1.";
	const unsigned at = head->version_at++;
	if (at == sizeof version) {
		if (byte != '\r')
			return is_control(byte) ? refuse_control(head)
						: refuse(head, 400, "the version of HTTP does not end its line", crlf);
		head->state = STATE_LINE_LF;
		return HEAD_MORE;
	}
	const bool minor = at == sizeof version - 1;
	if (minor && (byte == '0' || byte == '1')) {
		head->http_11 = byte == '1';
		return HEAD_MORE;
	}
	if (!minor && byte == (uint8_t)version[at])
		return HEAD_MORE;
	if (is_control(byte))
		return refuse_control(head);
	if (is_digit(byte) && (minor || version[at] == '1'))
		return refuse(head, 505, "this version of HTTP is not supported", "HTTP/1.1");
	return refuse(head, 400, "the request does not say its version of HTTP", "as in GET / HTTP/1.1");
}

// ---- headers ----

static enum head_result on_field(struct head *head, uint8_t byte)
{
	if (byte == '\r') {
		head->state = STATE_LAST_LF;
		return HEAD_MORE;
	}
	if (is_white(byte))
		return refuse(head, 400, "a header continues on a second line", "put it into one line");
	if (is_control(byte))
		return refuse_control(head);
	if (!is_token(byte))
		return refuse(head, 400, "a line is not a header", "as in Host: localhost");
	if (head->field_count == HEAD_FIELDS)
		return refuse(head, 431, "the request has too many headers", "send fewer of them");
	struct head_text *name = &head->fields[head->field_count].name;
	begin_text(head, name);
	head->state = STATE_NAME;
	keep(head, name, (uint8_t)(byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte));
	return HEAD_MORE;
}

static enum head_result on_name(struct head *head, uint8_t byte)
{
	struct head_field *field = &head->fields[head->field_count];
	if (byte == ':') {
		begin_text(head, &field->value);
		head->state = STATE_BEFORE_VALUE;
		return HEAD_MORE;
	}
	if (is_white(byte))
		return refuse(head, 400, "there is white space between a header's name and its colon",
			      "as in Host: localhost");
	if (is_control(byte))
		return refuse_control(head);
	if (!is_token(byte))
		return refuse(head, 400, "a header's name contains an invalid character", "as in Host: localhost");
	keep(head, &field->name, (uint8_t)(byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte));
	return HEAD_MORE;
}

static enum head_result on_value(struct head *head, uint8_t byte)
{
	struct head_text *value = &head->fields[head->field_count].value;
	if (byte == '\r') {
		while (value->length && is_white(head->text[head->text_length - 1])) {
			value->length--;
			head->text_length--;
		}
		head->field_count++;
		head->state = STATE_VALUE_LF;
		return HEAD_MORE;
	}
	if (is_white(byte) && head->state == STATE_BEFORE_VALUE)
		return HEAD_MORE;
	if (is_control(byte) && byte != '\t')
		return refuse_control(head);
	head->state = STATE_VALUE;
	keep(head, value, byte);
	return HEAD_MORE;
}

// ---- what they say, together ----

// How many there are; *first: one of them.
static unsigned find(const struct head *head, const char *name, const struct head_text **first)
{
	unsigned count = 0;
	for (size_t i = 0; i < head->field_count; i++) {
		if (!equals(head, &head->fields[i].name, name))
			continue;
		if (!count++)
			*first = &head->fields[i].value;
	}
	return count;
}

static int hex(char digit)
{
	return is_digit(digit)                ? digit - '0'
	       : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
	       : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
					      : -1;
}

// The byte at `at` of a target that was checked, which moves on.
static int decode(const char *target, size_t *at)
{
	if (target[*at] != '%')
		return (uint8_t)target[(*at)++];
	*at += 3;
	return hex(target[*at - 2]) << 4 | hex(target[*at - 1]);
}

static bool is_path(const struct head *head)
{
	const char *target = head->text + head->target.at;
	const size_t length = head->target.length;
	if (target[0] != '/' && !(length == 1 && target[0] == '*' && head->method == HEAD_OPTIONS))
		return false;
	for (size_t i = 0; i < length && target[i] != '?';) {
		if (target[i] == '%' && (length - i < 3 || hex(target[i + 1]) < 0 || hex(target[i + 2]) < 0))
			return false;
		if (is_control((uint8_t)decode(target, &i)))
			return false;
	}
	return true;
}

static enum head_method method_of(const struct head *head)
{
	return equals(head, &head->method_text, "GET")       ? HEAD_GET
	       : equals(head, &head->method_text, "HEAD")    ? HEAD_HEAD
	       : equals(head, &head->method_text, "POST")    ? HEAD_POST
	       : equals(head, &head->method_text, "OPTIONS") ? HEAD_OPTIONS
							     : HEAD_OTHER;
}

static bool read_number(const char *text, size_t length, size_t *out)
{
	size_t number = 0;
	for (size_t i = 0; i < length; i++) {
		if (!is_digit(text[i]))
			return false;
		number = number > (size_t)1 << 50 ? SIZE_MAX - 1 : number * 10 + (size_t)(text[i] - '0');
	}
	*out = number;
	return length > 0;
}

// The body has one length, or none.
static bool judge_body(struct head *head)
{
	const struct head_text *length = NULL, *coding = NULL;
	const unsigned lengths = find(head, "content-length", &length),
		       codings = find(head, "transfer-encoding", &coding);
	if (lengths + codings > 1)
		return false;
	head->says_length = lengths + codings;
	head->has_body = codings;
	head->chunked = codings;
	if (lengths && !read_number(head->text + length->at, length->length, &head->body_bytes))
		return false;
	head->has_body |= head->body_bytes > 0;
	return !codings ||
	       (head->http_11 && coding->length == 7 && !strncasecmp(head->text + coding->at, "chunked", 7));
}

static enum head_result judge(struct head *head)
{
	static const char *const once[] = {"authorization", "x-api-key",         "origin",
					   "expect",        "sec-websocket-key", "sec-websocket-version"};
	const struct head_text *host = NULL;
	head->state = STATE_OVER;
	head->method = method_of(head);
	if (!is_path(head))
		return refuse(head, 400, "the target of the request is not a path",
			      "as in GET /healthz HTTP/1.1, without encoded control characters");
	const unsigned hosts = find(head, "host", &host);
	if (hosts > 1 || (head->http_11 && !hosts))
		return refuse(head, 400, "a request has one Host", "as in Host: localhost");
	for (size_t i = 0; i < sizeof once / sizeof *once; i++)
		if (find(head, once[i], &host) > 1)
			return refuse(head, 400, "a header is repeated that may occur only once", "send it once");
	if (!judge_body(head))
		return refuse(head, 400, "the request does not say in one way how long it is", one_length);
	head->close = !head->http_11 || head_lists(head, "connection", "close");
	head->expects = head->http_11 && head_lists(head, "expect", "100-continue");
	head->upgrade = head_lists(head, "upgrade", "websocket");
	return HEAD_WHOLE;
}

// ---- byte by byte ----

static enum head_result on_line_end(struct head *head, uint8_t byte)
{
	if (byte != '\n')
		return refuse_control(head); // a CR that ends no line
	if (head->state == STATE_LAST_LF)
		return judge(head);
	head->state = head->state == STATE_EMPTY_LF ? STATE_BEGIN : STATE_FIELD;
	return HEAD_MORE;
}

static enum head_result take_byte(struct head *head, uint8_t byte)
{
	switch ((enum state)head->state) {
	case STATE_BEGIN:
		return on_begin(head, byte);
	case STATE_METHOD:
		return on_method(head, byte);
	case STATE_TARGET:
		return on_target(head, byte);
	case STATE_VERSION:
		return on_version(head, byte);
	case STATE_FIELD:
		return on_field(head, byte);
	case STATE_NAME:
		return on_name(head, byte);
	case STATE_BEFORE_VALUE:
	case STATE_VALUE:
		return on_value(head, byte);
	case STATE_EMPTY_LF:
	case STATE_LINE_LF:
	case STATE_VALUE_LF:
	case STATE_LAST_LF:
		return on_line_end(head, byte);
	case STATE_OVER:
		break;
	}
	return head->status ? HEAD_REFUSED : HEAD_WHOLE;
}

enum head_result head_take(struct head *head, const uint8_t *bytes, size_t length, size_t *taken)
{
	enum head_result result = head->state != STATE_OVER ? HEAD_MORE : head->status ? HEAD_REFUSED : HEAD_WHOLE;
	size_t at = 0;
	while (at < length && result == HEAD_MORE) {
		result = head->read++ < HEAD_BYTES
				 ? take_byte(head, bytes[at++])
				 : refuse(head, 431, "the request's header is too long", "it may have 8 KiB");
	}
	*taken = at;
	return result;
}

// ---- what it says, for others ----

static bool too_long(char *out)
{
	memcpy(out, HEAD_TOO_LONG, sizeof HEAD_TOO_LONG);
	return false;
}

bool head_copy(const struct head *head, const char *name, char *out, size_t size)
{
	size_t length = 0;
	bool any = false;
	for (size_t i = 0; i < head->field_count; i++) {
		const struct head_field *field = &head->fields[i];
		if (!equals(head, &field->name, name))
			continue;
		if (length + (any ? 2 : 0) + field->value.length >= size)
			return too_long(out);
		if (any) {
			memcpy(out + length, ", ", 2);
			length += 2;
		}
		memcpy(out + length, head->text + field->value.at, field->value.length);
		length += field->value.length;
		any = true;
	}
	out[length] = 0;
	return true;
}

bool head_path(const struct head *head, char *out, size_t size)
{
	const char *target = head->text + head->target.at;
	size_t length = 0;
	for (size_t i = 0; i < head->target.length && target[i] != '?';) {
		const bool again = target[i] == '/' && length && out[length - 1] == '/';
		const int byte = decode(target, &i);
		if (again)
			continue;
		if (length + 1 >= size)
			return too_long(out);
		out[length++] = (char)byte;
	}
	out[length] = 0;
	return true;
}

static bool value_lists(const char *value, size_t length, const char *word)
{
	const size_t wanted = strlen(word);
	size_t at = 0;
	while (at < length) {
		while (at < length && (is_white(value[at]) || value[at] == ','))
			at++;
		size_t end = at;
		while (end < length && value[end] != ',')
			end++;
		size_t last = end;
		while (last > at && is_white(value[last - 1]))
			last--;
		if (last - at == wanted && !strncasecmp(value + at, word, wanted))
			return true;
		at = end;
	}
	return false;
}

bool head_lists(const struct head *head, const char *name, const char *word)
{
	for (size_t i = 0; i < head->field_count; i++) {
		const struct head_field *field = &head->fields[i];
		if (equals(head, &field->name, name) &&
		    value_lists(head->text + field->value.at, field->value.length, word))
			return true;
	}
	return false;
}
