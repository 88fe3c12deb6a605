/* See settings.h. */
#include "server/traces/settings.h"

#include "common/json/json.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char endpoint_name[] = "OTEL_EXPORTER_OTLP_ENDPOINT", traces_name[] = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		  headers_name[] = "OTEL_EXPORTER_OTLP_HEADERS", service_name[] = "OTEL_SERVICE_NAME";

// As OpenTelemetry has it, one that is empty is not set.
static const char *variable(const char *name)
{
	const char *value = getenv(name);
	return value && *value ? value : NULL;
}

// ---- headers ----

static bool is_name(const char *text, size_t length)
{
	static const char letters[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	for (size_t i = 0; i < length; i++)
		if (!strchr(letters, text[i]))
			return false;
	return length > 0 && length <= 64;
}

// A header that the message has already, or that says where it ends.
static bool is_taken(const char *text, size_t length)
{
	static const char *const names[] = {"connection", "content-length", "content-type", "expect",
					    "transfer-encoding"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (length == strlen(names[i]) && !strncasecmp(text, names[i], length))
			return true;
	return false;
}

static int digit(char byte)
{
	return byte >= '0' && byte <= '9'   ? byte - '0'
	       : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
	       : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
					    : -1;
}

// Percent-decoded, visible ASCII and blanks alone, so that no value ends its line.
static bool decode(const char *text, size_t length, char *out)
{
	for (size_t i = 0; i < length; i++) {
		int byte = (unsigned char)text[i];
		if (byte == '%') {
			const int high = i + 2 < length ? digit(text[i + 1]) : -1,
				  low = high < 0 ? -1 : digit(text[i + 2]);
			if (low < 0)
				return false;
			byte = 16 * high + low;
			i += 2;
		}
		if (byte < ' ' || byte > '~')
			return false;
		*out++ = (char)byte;
	}
	*out = 0;
	return true;
}

static void trim(const char **text, size_t *length)
{
	while (*length && strchr(" \t", **text))
		++*text, --*length;
	while (*length && strchr(" \t", (*text)[*length - 1]))
		--*length;
}

static enum status add_field(struct traces_settings *settings, const char *text, size_t length, struct error *error)
{
	const char *equals = memchr(text, '=', length);
	const char *name = text, *value = equals ? equals + 1 : text;
	size_t name_length = equals ? (size_t)(equals - text) : 0, value_length = length - (size_t)(value - text);
	trim(&name, &name_length);
	trim(&value, &value_length);
	if (!is_name(name, name_length) || settings->field_count == TRACES_FIELDS || length > TRACES_FIELD_BYTES) {
		error_set(error, STATUS_INVALID_PARAMS, "%s holds no list of headers", headers_name);
		error_hint(error, "write name=value, with commas between them and percent-encoded values; 8 at most");
		return STATUS_INVALID_PARAMS;
	}
	if (is_taken(name, name_length)) {
		error_set(error, STATUS_INVALID_PARAMS, "%s has %.*s, which this server sets itself", headers_name,
			  (int)name_length, name);
		error_hint(error, "leave it out");
		return STATUS_INVALID_PARAMS;
	}
	char *field = malloc(name_length + value_length + 3);
	if (!field)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	settings->fields[settings->field_count++] = field;
	memcpy(field, name, name_length);
	memcpy(field + name_length, ": ", 2);
	if (value_length && decode(value, value_length, field + name_length + 2))
		return STATUS_OK;
	OPENSSL_cleanse(field + name_length + 2, value_length + 1); // what was decoded
	error_set(error, STATUS_INVALID_PARAMS, "%s has %s", headers_name,
		  value_length ? "a value that no header may have" : "a header without a value");
	error_hint(error, value_length ? "percent-encode what is no letter or digit, such as a blank as %%20"
				       : "give it a value, or leave it out");
	return STATUS_INVALID_PARAMS;
}

enum status traces_settings_headers(struct traces_settings *settings, const char *text, struct error *error)
{
	enum status status = STATUS_OK;
	while (*text && !status) {
		const size_t length = strcspn(text, ",");
		const char *one = text;
		size_t rest = length;
		trim(&one, &rest);
		if (rest)
			status = add_field(settings, one, rest, error);
		text += length + (text[length] == ',');
	}
	return status;
}

// ---- where to ----

// `base`: the path of traces is put behind it.
static enum status take_url(struct traces_settings *settings, const char *name, const char *url, bool base,
			    struct error *error)
{
	const size_t scheme = !strncmp(url, "https://", 8) ? 8 : !strncmp(url, "http://", 7) ? 7 : 0;
	size_t length = strlen(url);
	while (base && length > scheme && url[length - 1] == '/')
		length--;
	bool good = scheme && url[scheme] != '/' && length <= 1024 && fetch_origin(url, settings->origin);
	for (size_t i = 0; good && i < length; i++)
		good = url[i] > ' ' && url[i] <= '~' && !strchr("?#@", url[i]);
	if (good) {
		snprintf(settings->url, sizeof settings->url, "%.*s%s", (int)length, url, base ? "/v1/traces" : "");
		return STATUS_OK;
	}
	error_set(error, STATUS_INVALID_PARAMS,
		  "%s takes http:// or https://, a host and perhaps a path, without a user, a query or a fragment",
		  name);
	error_hint(error,
		   "as in http://127.0.0.1:4318; what a collector wants to recognise this server by goes into "
		   "%s",
		   headers_name);
	return STATUS_INVALID_PARAMS;
}

static enum status take_service(struct traces_settings *settings, struct error *error)
{
	const char *name = variable(service_name);
	const size_t length = name ? strlen(name) : 0;
	snprintf(settings->service, sizeof settings->service, "%s", name ? name : "exogpu");
	if (length < sizeof settings->service && (!name || json_utf8(name, length)))
		return STATUS_OK;
	error_hint(error, "choose a shorter name");
	return error_set(error, STATUS_INVALID_PARAMS, "%s takes at most %zu bytes of UTF-8", service_name,
			 sizeof settings->service - 1);
}

enum status traces_settings_read(struct traces_settings *settings, const char *otlp, struct error *error)
{
	enum status status = STATUS_OK;
	const char *traces = variable(traces_name), *endpoint = variable(endpoint_name);
	*settings = (struct traces_settings){0};
	if (otlp)
		status = take_url(settings, "--otlp", otlp, true, error);
	else if (traces)
		status = take_url(settings, traces_name, traces, false, error);
	else if (endpoint)
		status = take_url(settings, endpoint_name, endpoint, true, error);
	if (!status && settings->url[0])
		status = take_service(settings, error);
	char *headers = getenv(headers_name);
	if (!status && settings->url[0] && headers)
		status = traces_settings_headers(settings, headers, error);
	if (headers)
		OPENSSL_cleanse(headers, strlen(headers));
	unsetenv(headers_name);
	if (status)
		traces_settings_finish(settings);
	return status;
}

void traces_settings_finish(struct traces_settings *settings)
{
	for (size_t i = 0; i < settings->field_count; i++) {
		OPENSSL_cleanse(settings->fields[i], strlen(settings->fields[i]));
		free(settings->fields[i]);
	}
	settings->field_count = 0;
}
