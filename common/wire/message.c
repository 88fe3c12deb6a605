/* See message.h. */
#include "common/wire/message.h"

#include "common/base/bytes.h"
#include "common/base/limits.h"

#include <stdio.h>
#include <string.h>

static bool valid_id(const struct json *id)
{
	int64_t number;
	return json_type(id) == JSON_STRING ? strlen(json_string(id, "")) <= 64
					    : json_type(id) == JSON_NUMBER && !json_integer(id, &number);
}

static enum status classify(struct message *message, struct error *error)
{
	const struct json *head = message->head;
	if (json_type(head) == JSON_ARRAY)
		return error_set(error, STATUS_INVALID_REQUEST, "batches are not supported; send one object a message");
	if (json_type(head) != JSON_OBJECT)
		return error_set(error, STATUS_INVALID_REQUEST, "a message is a JSON object");
	const struct json *id = json_get(head, "id");
	bool null_id = json_type(id) == JSON_NULL;
	if (id && !null_id && !valid_id(id))
		return error_set(error, STATUS_INVALID_REQUEST,
				 "id must be an integer or a string of at most 64 bytes");
	message->id = id;
	if (strcmp(json_get_string(head, "jsonrpc", ""), "2.0") != 0)
		return error_set(error, STATUS_INVALID_REQUEST, "\"jsonrpc\": \"2.0\" is missing");
	message->method = json_get_string(head, "method", NULL);
	message->params = json_get(head, "params");
	message->result = json_get(head, "result");
	message->error = json_get(head, "error");
	if (message->method) {
		if (null_id)
			return error_set(error, STATUS_INVALID_REQUEST, "id must not be null; leave it out to notify");
		if (message->params && json_type(message->params) != JSON_OBJECT)
			return error_set(error, STATUS_INVALID_REQUEST, "params must be an object");
		if (message->result || message->error)
			return error_set(error, STATUS_INVALID_REQUEST, "a call has neither result nor error");
		message->kind = id ? MESSAGE_REQUEST : MESSAGE_NOTIFICATION;
		return STATUS_OK;
	}
	if (json_get(head, "method"))
		return error_set(error, STATUS_INVALID_REQUEST, "method must be a string");
	if (message->result && !message->error && id && !null_id)
		message->kind = MESSAGE_RESULT;
	else if (message->error && !message->result && id && json_type(message->error) == JSON_OBJECT)
		message->kind = MESSAGE_ERROR;
	else
		return error_set(error, STATUS_INVALID_REQUEST, "neither a call nor an answer");
	return STATUS_OK;
}

// The id tells who asked, unless the NUL may be in it.
static enum status refuse_nul(struct message *message, struct error *error)
{
	if (strstr(json_string(message->id, ""), "\xEF\xBF\xBD"))
		message->id = NULL;
	return error_set(error, STATUS_INVALID_REQUEST, "a string holds a NUL (\\u0000), which is not allowed");
}

enum status message_decode_text(struct message *message, const char *text, size_t length, struct error *error)
{
	*message = (struct message){0};
	if (length > LIMIT_HEAD_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the header has %zu bytes; the limit is %d", length,
				 LIMIT_HEAD_BYTES);
	bool nul = false;
	const struct json_text given = {.text = text, .length = length, .nul = &nul};
	enum status status = json_parse_noting(&message->head, &given, error);
	if (!status)
		status = classify(message, error);
	return nul && message->head ? refuse_nul(message, error) : status;
}

enum status message_decode(struct message *message, const uint8_t *bytes, size_t length, struct error *error)
{
	*message = (struct message){0};
	if (length < 4)
		return error_set(error, STATUS_PARSE_ERROR,
				 "a binary frame begins with the length of its header, 4 bytes");
	size_t head = read_u32le(bytes);
	if (head > LIMIT_HEAD_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the header has %zu bytes; the limit is %d", head,
				 LIMIT_HEAD_BYTES);
	if (head > length - 4)
		return error_set(error, STATUS_PARSE_ERROR, "the header should have %zu bytes, but only %zu came", head,
				 length - 4);
	size_t body = length - 4 - head;
	if (body > LIMIT_BODY_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the body has %zu bytes; the limit is %d", body,
				 LIMIT_BODY_BYTES);
	enum status status = message_decode_text(message, (const char *)bytes + 4, head, error);
	message->body = body ? bytes + 4 + head : NULL;
	message->body_bytes = body;
	return status;
}

enum status message_take(struct message *message, struct json *head, struct error *error)
{
	*message = (struct message){.head = head};
	return classify(message, error);
}

void message_copy_head(struct message *out, const struct message *message)
{
	message_take(out, json_copy(message->head), NULL);
}

void message_finish(struct message *message)
{
	json_destroy(&message->head);
	*message = (struct message){0};
}

enum status message_encode(struct buffer *out, const char *head, size_t head_bytes, const void *body, size_t body_bytes)
{
	if (head_bytes > LIMIT_HEAD_BYTES || body_bytes > LIMIT_BODY_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	enum status status = buffer_reserve(out, 4 + head_bytes + body_bytes);
	if (status)
		return status;
	buffer_append_u32le(out, (uint32_t)head_bytes);
	buffer_append(out, head, head_bytes);
	return buffer_append(out, body, body_bytes);
}

enum status message_encode_stream(struct buffer *out, const char *head, size_t head_bytes, const void *body,
				  size_t body_bytes)
{
	if (head_bytes > LIMIT_HEAD_BYTES || body_bytes > LIMIT_BODY_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	enum status status = buffer_reserve(out, 8 + head_bytes + body_bytes);
	if (status)
		return status;
	buffer_append_u32le(out, (uint32_t)(4 + head_bytes + body_bytes));
	return message_encode(out, head, head_bytes, body, body_bytes);
}

enum status message_next(const struct buffer *in, const uint8_t **frame, size_t *frame_bytes, size_t *used)
{
	*used = 0;
	if (in->length < 4)
		return STATUS_OK;
	size_t total = read_u32le(in->data);
	if (total < 4 || total > LIMIT_WORKER_MESSAGE_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	if (in->length - 4 < total)
		return STATUS_OK;
	*frame = in->data + 4;
	*frame_bytes = total;
	*used = 4 + total;
	return STATUS_OK;
}

size_t message_left(const struct buffer *in)
{
	if (in->length < 4)
		return 4 - in->length;
	size_t total = read_u32le(in->data);
	return in->length - 4 < total ? total - (in->length - 4) : 0;
}

static enum status print_member(struct buffer *out, const char *key, const struct json *value)
{
	enum status status = buffer_append_text(out, ",\"");
	if (!status)
		status = buffer_append_text(out, key);
	if (!status)
		status = buffer_append_text(out, "\":");
	return status ? status : json_print(value, out);
}

static enum status print_method(struct buffer *out, const char *method)
{
	enum status status = buffer_append_text(out, ",\"method\":");
	return status ? status : json_print_string(method, out);
}

static enum status print_envelope(struct buffer *out, const struct json *id, bool null_id, const char *key,
				  struct json *value, const char *method)
{
	enum status status = buffer_append_text(out, "{\"jsonrpc\":\"2.0\"");
	if (!status && id)
		status = print_member(out, "id", id);
	else if (!status && null_id)
		status = buffer_append_text(out, ",\"id\":null");
	if (!status && method)
		status = print_method(out, method);
	if (!status && value)
		status = print_member(out, key, value);
	json_destroy(&value);
	return status ? status : buffer_append_byte(out, '}');
}

// The rest of a head whose last member is `key`.
static enum status print_numbers(struct buffer *out, const char *key, const struct message_number *numbers,
				 size_t count)
{
	buffer_append_text(out, ",\"");
	buffer_append_text(out, key);
	buffer_append_text(out, "\":{");
	for (size_t i = 0; i < count; i++) {
		buffer_append_text(out, i ? ",\"" : "\"");
		buffer_append_text(out, numbers[i].name);
		buffer_append_text(out, "\":");
		json_print_integer(numbers[i].value, out);
	}
	return buffer_append_text(out, "}}");
}

enum status message_print_call_of(struct buffer *out, int64_t id, const char *method,
				  const struct message_number *params, size_t count)
{
	buffer_append_text(out, "{\"jsonrpc\":\"2.0\",\"id\":");
	json_print_integer(id, out);
	print_method(out, method);
	return print_numbers(out, "params", params, count);
}

enum status message_print_result_of(struct buffer *out, const struct json *id, const struct message_number *result,
				    size_t count)
{
	buffer_append_text(out, "{\"jsonrpc\":\"2.0\"");
	print_member(out, "id", id);
	return print_numbers(out, "result", result, count);
}

enum status message_print_call(struct buffer *out, const struct json *id, const char *method, struct json *params)
{
	return print_envelope(out, id, false, "params", params, method);
}

enum status message_print_result(struct buffer *out, const struct json *id, struct json *result)
{
	return print_envelope(out, id, true, "result", result ? result : json_new_null(), NULL);
}

enum status message_print_error(struct buffer *out, const struct json *id, const struct error *error)
{
	return message_print_error_with(out, id, error, NULL);
}

enum status message_print_error_with(struct buffer *out, const struct json *id, const struct error *error,
				     struct json *data)
{
	struct json *object = json_new_object();
	if (!data)
		data = json_new_object();
	json_set_integer(object, "code", status_rpc_code(error->status));
	json_set_string(object, "message", error->message[0] ? error->message : status_text(error->status));
	json_set_string(data, "reason", status_word(error->status));
	json_set_string(data, "hint", error->hint[0] ? error->hint : NULL);
	json_set(object, "data", data);
	return print_envelope(out, id, true, "error", object, NULL);
}

void message_read_error(const struct message *message, struct error *error)
{
	*error = (struct error){0};
	int64_t code = json_get_integer(message->error, "code", 0);
	enum status status = status_from_rpc_code(code < INT32_MIN || code > INT32_MAX ? 0 : (int)code);
	error_set(error, status, "%s", json_get_string(message->error, "message", status_text(status)));
	const char *hint = json_get_string(json_get(message->error, "data"), "hint", NULL);
	if (hint)
		error_hint(error, "%s", hint);
}
