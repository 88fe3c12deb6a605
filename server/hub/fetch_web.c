/* See fetch_web.h. */
#include "server/hub/fetch_web.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/list.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_MS = 15000, STALL_S = 30, TRUSTED_HOSTS = 16 };

struct web {
	CURLM *multi;
	char hosts[TRUSTED_HOSTS][FETCH_ORIGIN_BYTES]; // that may be private
	struct web_question *questions;
	bool proxied; // the environment names a proxy
};

struct web_question {
	struct web_question *next, **link;
	struct web *web;
	struct web_params params;
	CURL *easy;
	struct curl_slist *fields;
	char url[FETCH_URL_BYTES], origin[FETCH_ORIGIN_BYTES]; // origin: where it was asked first
	char *token, *accept, *if_range;
	struct fetch_headers headers;
	unsigned redirects;
	bool posts;
	bool begun, wanted, enough, refused_private, may_be_private;
	int64_t until_ms; // steady; 0: none
};

static bool environment_has_proxy(void)
{
	static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *value = getenv(names[i]);
		if (value && *value)
			return true;
	}
	return false;
}

enum status web_create(struct web **out, const char *const *trusted, size_t count, struct error *error)
{
	*out = NULL;
	struct web *web = calloc(1, sizeof *web);
	if (web && !curl_global_init(CURL_GLOBAL_DEFAULT))
		web->multi = curl_multi_init();
	if (!web || !web->multi) {
		free(web);
		return error_set(error, STATUS_OUT_OF_MEMORY, "libcurl cannot be used");
	}
	for (size_t i = 0; i < count && i < TRUSTED_HOSTS; i++)
		if (trusted[i])
			fetch_host(trusted[i], web->hosts[i]);
	web->proxied = environment_has_proxy();
	curl_multi_setopt(web->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)LIMIT_FETCH_CONNECTIONS_ALL);
	*out = web;
	return STATUS_OK;
}

static void secret_free(char *text)
{
	if (text)
		OPENSSL_cleanse(text, strlen(text));
	free(text);
}

void web_cancel(struct web_question **pointer)
{
	struct web_question *question = *pointer;
	*pointer = NULL;
	if (!question)
		return;
	LIST_REMOVE(question, link);
	if (question->easy) {
		curl_multi_remove_handle(question->web->multi, question->easy);
		curl_easy_cleanup(question->easy);
	}
	for (struct curl_slist *field = question->fields; field; field = field->next)
		OPENSSL_cleanse(field->data, strlen(field->data));
	curl_slist_free_all(question->fields);
	secret_free(question->token);
	free(question->accept);
	free(question->if_range);
	free(question);
}

void web_destroy(struct web **pointer)
{
	struct web *web = *pointer;
	if (!web)
		return;
	*pointer = NULL;
	while (web->questions) {
		struct web_question *question = web->questions;
		web_cancel(&question);
	}
	curl_multi_cleanup(web->multi);
	curl_global_cleanup();
	free(web);
}

// ---- what libcurl calls ----

static size_t on_header(char *line, size_t size, size_t count, void *context)
{
	struct web_question *question = context;
	fetch_headers_take(&question->headers, line, size * count);
	return question->headers.excessive ? 0 : size * count;
}

static bool is_redirect(long status)
{
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *context)
{
	struct web_question *question = context;
	const struct web_params *params = &question->params;
	const long status = question->headers.status;
	if (is_redirect(status) && !question->posts)
		return 0; // what it says besides is not wanted
	if (!question->begun) {
		question->begun = true;
		question->wanted = params->begin ? params->begin(params->context, &question->headers, question->url)
						 : status == 200 || status == 206;
	}
	if (!question->wanted || !params->body(params->context, (const uint8_t *)bytes, size * count)) {
		question->enough = true;
		return 0;
	}
	return size * count;
}

// Before a connection is made: `address` is the one that the name has now.
static curl_socket_t on_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct web_question *question = context;
	(void)purpose;
	const bool private = fetch_is_private(&address->addr);
	if (private && !question->may_be_private && !question->web->proxied) {
		question->refused_private = true;
		return CURL_SOCKET_BAD;
	}
	if (private) // nobody else comes to it by a connection that is there already
		curl_easy_setopt(question->easy, CURLOPT_FORBID_REUSE, 1L);
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

// ---- a step ----

static bool add_line(struct web_question *question, const char *line)
{
	struct curl_slist *grown = curl_slist_append(question->fields, line);
	if (grown)
		question->fields = grown;
	return grown != NULL;
}

static bool add_field(struct web_question *question, const char *name, const char *value)
{
	char line[1024];
	int length = snprintf(line, sizeof line, "%s: %s", name, value);
	const bool added = length > 0 && (size_t)length < sizeof line && add_line(question, line);
	OPENSSL_cleanse(line, sizeof line);
	return added;
}

static bool set_fields(struct web_question *question)
{
	char origin[FETCH_ORIGIN_BYTES], value[700];
	const struct web_params *params = &question->params;
	bool good = fetch_origin(question->url, origin);
	for (struct curl_slist *field = question->fields; field; field = field->next)
		OPENSSL_cleanse(field->data, strlen(field->data));
	curl_slist_free_all(question->fields);
	question->fields = NULL;
	if (good && question->token && !strcmp(origin, question->origin)) {
		snprintf(value, sizeof value, "Bearer %s", question->token);
		good = add_field(question, "Authorization", value);
		OPENSSL_cleanse(value, sizeof value);
	}
	if (good && question->accept)
		good = add_field(question, "Accept", question->accept);
	if (good && params->first >= 0) {
		snprintf(value, sizeof value, "bytes=%lld-%lld", (long long)params->first, (long long)params->last);
		good = add_field(question, "Range", value);
	}
	if (good && question->if_range)
		good = add_field(question, "If-Range", question->if_range);
	for (size_t i = 0; good && params->post && i < params->post->field_count; i++)
		good = add_line(question, params->post->fields[i]);
	return good;
}

static void set_options(struct web_question *question)
{
	CURL *easy = question->easy;
	curl_easy_setopt(easy, CURLOPT_URL, question->url);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, question->fields);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "exogpu/" EXOGPU_VERSION);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); // a connection for each range
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, question);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, question);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, question);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, question);
	curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	if (!question->may_be_private && question->web->proxied)
		curl_easy_setopt(easy, CURLOPT_NOPROXY, ""); // none goes around the proxy by itself
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); // a name that does not resolve holds up no stop
#endif
	if (question->posts) {
		curl_easy_setopt(easy, CURLOPT_POST, 1L);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, question->params.post->body);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)question->params.post->length);
	}
	if (question->until_ms) {
		int64_t left = question->until_ms - clock_steady_ms();
		curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(left < 1 ? 1 : left));
	}
}

// One of those that the operator named.
static bool is_trusted(const struct web *web, const char *host)
{
	bool trusted = false;
	for (size_t i = 0; i < TRUSTED_HOSTS; i++)
		trusted |= !strcmp(host, web->hosts[i]);
	return trusted;
}

// The given URL of a GET may be anywhere. A redirect may lead to private addresses of the given host and operator's
// hosts only, and a POST may go to private addresses of the latter only.
static bool may_be_private(const struct web_question *question)
{
	char host[FETCH_ORIGIN_BYTES], given[FETCH_ORIGIN_BYTES];
	if (!question->posts && !question->redirects && !question->params.from)
		return true;
	if (!fetch_host(question->url, host) || !fetch_host(question->origin, given))
		return false;
	return (!question->posts && !strcmp(host, given)) || is_trusted(question->web, host);
}

bool web_is_trusted(const struct web *web, const char *url)
{
	char host[FETCH_ORIGIN_BYTES];
	return fetch_host(url, host) && is_trusted(web, host);
}

bool web_may_post(const struct web *web, const char *url)
{
	char host[FETCH_ORIGIN_BYTES];
	struct sockaddr_in four = {.sin_family = AF_INET};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	if (!fetch_host(url, host))
		return false;
	if (is_trusted(web, host))
		return true;
	if (inet_pton(AF_INET, host, &four.sin_addr) == 1)
		return !fetch_is_private((const struct sockaddr *)&four);
	const size_t length = strlen(host);
	if (host[0] == '[' && host[length - 1] == ']') {
		host[length - 1] = 0;
		// An address with a zone is one of a local network.
		return inet_pton(AF_INET6, host + 1, &six.sin6_addr) == 1 &&
		       !fetch_is_private((const struct sockaddr *)&six);
	}
	return strcmp(host, "localhost") != 0;
}

static bool start_step(struct web_question *question)
{
	if (question->easy) {
		curl_multi_remove_handle(question->web->multi, question->easy);
		curl_easy_cleanup(question->easy);
	}
	question->may_be_private = may_be_private(question);
	question->easy = curl_easy_init();
	fetch_headers_init(&question->headers);
	question->begun = question->enough = false;
	if (!question->easy || !set_fields(question))
		return false;
	set_options(question);
	return !curl_multi_add_handle(question->web->multi, question->easy);
}

enum status web_ask(struct web *web, const struct web_params *params, struct web_question **out, struct error *error)
{
	*out = NULL;
	struct web_question *question = calloc(1, sizeof *question);
	if (!question)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a download");
	question->web = web;
	question->params = *params;
	question->posts = params->post != NULL;
	LIST_PUSH(&web->questions, question, link);
	const char *given = params->from ? params->from : params->url;
	question->token = params->token ? strdup(params->token) : NULL;
	question->accept = params->accept ? strdup(params->accept) : NULL;
	question->if_range = params->if_range ? strdup(params->if_range) : NULL;
	question->until_ms = params->limit_ms ? clock_steady_ms() + params->limit_ms : 0;
	int length = snprintf(question->url, sizeof question->url, "%s", params->url);
	enum status status = STATUS_OK;
	if (length < 0 || (size_t)length >= sizeof question->url || !fetch_origin(given, question->origin))
		status = error_set(error, STATUS_INVALID_PARAMS, "this is not a URL that can be fetched");
	else if (!start_step(question))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a download");
	if (status)
		web_cancel(&question);
	*out = question;
	return status;
}

// ---- its end ----

static enum status stop(struct web_answer *answer, const char *what)
{
	answer->final = true;
	return error_set(&answer->error, STATUS_UNAVAILABLE, "%s", what);
}

// To where a redirect leads. STATUS_PENDING: it is on its way.
static enum status follow(struct web_question *question, struct web_answer *answer)
{
	char url[FETCH_URL_BYTES];
	const struct web_params *params = &question->params;
	if (params->redirect)
		params->redirect(params->context, &question->headers);
	if (++question->redirects > LIMIT_FETCH_REDIRECTS)
		return stop(answer, "it is redirected too often");
	if (!fetch_resolve(question->url, question->headers.location, url))
		return stop(answer, "it is redirected to nowhere");
	if (!strncmp(question->url, "https:", 6) && strncmp(url, "https:", 6) != 0)
		return stop(answer, "it is redirected from https to http, which anybody on the way could change");
	snprintf(question->url, sizeof question->url, "%s", url);
	if (!start_step(question))
		return error_set(&answer->error, STATUS_OUT_OF_MEMORY, "no memory for a download");
	return STATUS_PENDING;
}

static enum status judge(struct web_question *question, CURLcode code, struct web_answer *answer)
{
	char host[FETCH_ORIGIN_BYTES];
	fetch_host(question->url, host);
	if (question->headers.excessive)
		return stop(answer, "the server's answer has too many headers");
	if (question->refused_private) {
		answer->final = true;
		return error_set(&answer->error, STATUS_FORBIDDEN,
				 question->posts
					 ? "%.100s is an address of a private network"
					 : "it is redirected to %.100s, which is an address of a private network",
				 host);
	}
	if (is_redirect(question->headers.status) && !question->posts &&
	    (code == CURLE_OK || code == CURLE_WRITE_ERROR))
		return follow(question, answer);
	if (code == CURLE_OK || (code == CURLE_WRITE_ERROR && question->enough))
		return STATUS_OK;
	answer->final = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
	return error_set(&answer->error, code == CURLE_OPERATION_TIMEDOUT ? STATUS_TIMEOUT : STATUS_UNAVAILABLE,
			 "%.100s: %s", host, curl_easy_strerror(code));
}

static void finish(struct web_question *question, CURLcode code)
{
	struct web_answer answer = {.headers = &question->headers, .url = question->url};
	answer.status = judge(question, code, &answer);
	if (answer.status == STATUS_PENDING)
		return;
	question->params.done(question->params.context, &answer);
	web_cancel(&question);
}

void web_run(struct web *web, int wait_ms)
{
	int running, left;
	CURLMsg *message;
	curl_multi_poll(web->multi, NULL, 0, wait_ms, NULL);
	curl_multi_perform(web->multi, &running);
	while ((message = curl_multi_info_read(web->multi, &left))) {
		struct web_question *question = NULL;
		const CURLcode code = message->data.result;
		if (message->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&question);
		finish(question, code);
	}
}

void web_wake(struct web *web)
{
	curl_multi_wakeup(web->multi);
}
