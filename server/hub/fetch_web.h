/* HTTP requests by libcurl, many at a time. A request is a GET, or a POST with a body
 * (struct web_post), which follows no redirect. The redirects of a GET are followed here one by one, so that each step
 * is checked: at most LIMIT_FETCH_REDIRECTS; never from https to http; an access token goes only to the origin that it
 * was given for; the address of a redirect must be public, unless the operator named its host or the request itself
 * went to it. The address is checked when the connection is made, so a name that later resolves to another address
 * gains nothing. If the environment sets a proxy, the proxy must check addresses. Thread: the fetcher's. Owns the
 * connections. */
#pragma once
#include "server/hub/fetch_header.h"

struct web;
struct web_question;

struct web_answer {
	enum status status; // STATUS_OK: an answer came, whatever HTTP says; else it broke, or may not be asked
	bool final;         // asking again changes nothing
	struct error error; // what and why, unless STATUS_OK
	const struct fetch_headers *headers; // of the last step
	const char *url;                     // of the last step
};

// What is posted. The body must last until `done` or web_cancel; the header fields are copied.
struct web_post {
	const char *body;
	size_t length;
	const char *const *fields; // (field_count) "Name: value"
	size_t field_count;
};

struct web_params {
	const char *url;
	const char *from;     // where redirects led from to `url` before; NULL: `url` was given as it is
	const char *token;    // NULL: none; sent to the origin of the URL that was given, alone
	const char *accept;   // NULL: anything
	const char *if_range; // NULL: none
	int64_t first, last;  // first -1: no range
	int64_t limit_ms;     // of all of it; 0: only that something comes
	// NULL: a GET. Else a POST: its host must have a public address, unless the operator named the host, and a
	// redirect is its answer.
	const struct web_post *post;
	// Headers of a redirect, before it is followed; may be NULL.
	void (*redirect)(void *context, const struct fetch_headers *headers);
	// Decides whether the body of an answer that is no redirect is wanted. NULL: the bodies of 200 and 206 are.
	bool (*begin)(void *context, const struct fetch_headers *headers, const char *url);
	bool (*body)(void *context, const uint8_t *bytes, size_t length); // false: enough
	void (*done)(void *context, const struct web_answer *answer);     // the question is gone after this
	void *context;
};

// `trusted`: URLs whose hosts the operator named; (count), NULL ones are left out.
enum status web_create(struct web **out, const char *const *trusted, size_t count, struct error *error);
void web_destroy(struct web **web); // `done` is not called
enum status web_ask(struct web *web, const struct web_params *params, struct web_question **out, struct error *error);
void web_cancel(struct web_question **question); // `done` is not called; not from inside body or begin
// Work, and wait `wait_ms` at most for something to do.
void web_run(struct web *web, int wait_ms);
void web_wake(struct web *web); // end that wait; any thread
// Whether the host of a URL may be posted to, as far as that is known before its name is resolved: it is one that the
// operator named, or no private address.
bool web_may_post(const struct web *web, const char *url);
bool web_is_trusted(const struct web *web, const char *url); // the operator named its host
