/* See address.h. */
#include "server/store/postgres/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

bool address_is_postgres(const char *url)
{
	return !strncmp(url, "postgres://", 11) || !strncmp(url, "postgresql://", 13);
}

static void add(struct address *address, const char *keyword, const char *value)
{
	if (address->count + 1 >= sizeof address->keywords / sizeof *address->keywords)
		return;
	address->keywords[address->count] = keyword;
	address->values[address->count++] = value;
}

static const char *option(const struct pq_option *options, const char *keyword)
{
	for (; options && options->keyword; options++)
		if (!strcmp(options->keyword, keyword))
			return options->val && options->val[0] ? options->val : NULL;
	return NULL;
}

static bool is_loopback(const char *host, size_t length)
{
	char text[64];
	struct in_addr v4;
	struct in6_addr v6;
	if (length >= sizeof text)
		return false;
	memcpy(text, host, length);
	text[length] = 0;
	if (!strcmp(text, "localhost"))
		return true;
	if (inet_pton(AF_INET, text, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

// Every one of a list with commas. An empty one, or a path, is a socket of this machine.
static bool all_loopback(const char *hosts)
{
	bool all = true;
	for (const char *at = hosts; at; at = *at ? at + 1 : NULL) {
		const size_t length = strcspn(at, ",");
		all = all && (!length || *at == '/' || *at == '@' || is_loopback(at, length));
		at += length;
		if (!*at)
			break;
	}
	return all;
}

// A host that only the service file or the environment names is taken for another machine.
static bool stays_here(const struct pq_option *options)
{
	const char *host = option(options, "host"), *address = option(options, "hostaddr");
	return (host || address) && all_loopback(address ? address : host);
}

static enum status refuse(struct error *error, const char *what, const char *hint)
{
	error_set(error, STATUS_INVALID_PARAMS, "--store: %s", what);
	error_hint(error, "%s", hint);
	return STATUS_INVALID_PARAMS;
}

static enum status check(const struct pq_option *options, bool here, struct error *error)
{
	const char *mode = option(options, "sslmode");
	if (option(options, "password") || option(options, "sslpassword"))
		return refuse(error, "a password has no place on a command line, which others can read",
			      "leave it out of the URL, and put it into the file that PGPASSFILE names "
			      "(HOST:PORT:DATABASE:USER:PASSWORD, mode 0600) or into the service file");
	if (!here && mode && strcmp(mode, "verify-full") != 0)
		return refuse(error, "to another machine the database's certificate is always verified",
			      "leave sslmode out of the URL, or write sslmode=verify-full; sslrootcert names the "
			      "certificate of who signs it");
	return STATUS_OK;
}

enum status address_parse(struct address *address, const struct libpq *pq, const char *url, const char *application,
			  struct error *error)
{
	static const char *const ours[] = {"sslmode",          "gssencmode",           "connect_timeout",
					   "client_encoding",  "application_name",     "keepalives",
					   "keepalives_idle",  "keepalives_interval",  "keepalives_count",
					   "tcp_user_timeout", "target_session_attrs", "options"};
	char *message = NULL;
	*address = (struct address){.options = pq->PQconninfoParse(url, &message)};
	if (!address->options) {
		// Its message may repeat a password.
		pq->PQfreemem(message);
		return refuse(error, "this is no URL of a PostgreSQL database",
			      "write postgres://USER@HOST/DATABASE, or postgres:///DATABASE?host=/run/postgresql for "
			      "a socket of this machine");
	}
	const bool here = stays_here(address->options);
	enum status status = check(address->options, here, error);
	for (const struct pq_option *one = address->options; !status && one->keyword; one++) {
		bool is_ours = false;
		for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
			is_ours = is_ours || !strcmp(one->keyword, ours[i]);
		if (one->val && one->val[0] && !is_ours)
			add(address, one->keyword, one->val);
	}
	const char *mode = option(address->options, "sslmode");
	add(address, "sslmode", !here ? "verify-full" : mode ? mode : "prefer");
	add(address, "gssencmode", "disable"); // it would stand in for TLS
	add(address, "connect_timeout", "15");
	add(address, "client_encoding", "UTF8");
	add(address, "application_name", application);
	add(address, "keepalives_idle", "10");
	add(address, "keepalives_interval", "5");
	add(address, "keepalives_count", "3");
	add(address, "tcp_user_timeout", "15000");
	add(address, "target_session_attrs", "read-write");
	if (status)
		address_finish(address, pq);
	return status;
}

void address_finish(struct address *address, const struct libpq *pq)
{
	if (address->options)
		pq->PQconninfoFree(address->options);
	address->options = NULL;
}
