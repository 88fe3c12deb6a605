/* See target.h. */
#include "server/cli/target.h"

#include "common/files/paths.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	DEFAULT_PORT = 52415,
	EXPLAIN_MS = 2000,
	PATH_BYTES = 4096,
	HOST_BYTES = sizeof((struct target *)0)->host,
};

static enum status bad_url(const char *url, const char *origin, const char *why, struct error *error)
{
	error_set(error, STATUS_INVALID_PARAMS, "%s %.80s: %s", origin, url, why);
	error_hint(error, "http://HOST:PORT or https://HOST:PORT, the address that exogpu serve prints");
	return STATUS_INVALID_PARAMS;
}

static bool is_host(const char *text, size_t length, bool brackets)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
	static const char numeric[] = "0123456789abcdefABCDEF:.";
	return length && length < HOST_BYTES && strspn(text, brackets ? numeric : letters) >= length;
}

static bool parse_port(const char *text, size_t length, int *port)
{
	if (!length || length > 5 || strspn(text, "0123456789") < length)
		return false;
	*port = (int)strtol(text, NULL, 10); // ends at the first byte that is no digit
	return *port > 0 && *port <= 65535;
}

static bool is_scheme(const char *url, size_t length, const char *scheme)
{
	return length == strlen(scheme) && !strncasecmp(url, scheme, length);
}

enum status target_parse_url(struct target *target, const char *url, const char *origin, struct error *error)
{
	const char *rest = strstr(url, "://"), *host = rest ? rest + 3 : url;
	size_t scheme = rest ? (size_t)(rest - url) : 0, whole = strcspn(host, "/?#"), length = whole;
	target->tls = is_scheme(url, scheme, "https") || is_scheme(url, scheme, "wss");
	if (rest && !target->tls && !is_scheme(url, scheme, "http") && !is_scheme(url, scheme, "ws"))
		return bad_url(url, origin, "only http://, https://, ws:// and wss:// addresses are known", error);
	if (memchr(host, '@', length) || strchr(host + whole, '?') || strchr(host + whole, '#'))
		return bad_url(url, origin,
			       "an address must not contain a user, query or token; the token goes into EXOGPU_TOKEN",
			       error);
	if (host[whole] && strcmp(host + whole, "/") != 0 && strcmp(host + whole, "/ws") != 0)
		return bad_url(url, origin, "an address ends with its port", error);
	bool brackets = host[0] == '[';
	const char *end = brackets ? memchr(host, ']', length) : memchr(host, ':', length);
	target->port = DEFAULT_PORT;
	if (brackets && !end)
		return bad_url(url, origin, "the bracket ] is missing", error);
	const char *colon = brackets ? end + 1 : end;
	if (colon && colon < host + length &&
	    (*colon != ':' || !parse_port(colon + 1, (size_t)(host + length - colon - 1), &target->port)))
		return bad_url(url, origin, "the port is a number from 1 to 65535", error);
	if (end)
		length = (size_t)(end - host);
	if (brackets) {
		host++;
		length--;
	}
	if (!is_host(host, length, brackets))
		return bad_url(url, origin, "that is not a host", error);
	snprintf(target->host, sizeof target->host, "%.*s", (int)length, host);
	snprintf(target->name, sizeof target->name, brackets ? "[%s]:%d" : "%s:%d", target->host, target->port);
	return STATUS_OK;
}

// EXOGPU_TOKEN, which a file's last line end or a copied blank may surround.
static enum status take_token(struct target *target, struct error *error)
{
	static const char blank[] = " \t\r\n";
	const char *text = getenv("EXOGPU_TOKEN");
	text = text ? text + strspn(text, blank) : "";
	size_t length = strlen(text);
	while (length && strchr(blank, text[length - 1]))
		length--;
	if (!length) {
		error_set(error, STATUS_UNAUTHENTICATED, "the server at %s needs a token, and EXOGPU_TOKEN is not set",
			  target->name);
		error_hint(error, "export EXOGPU_TOKEN=exo_…; on the server's machine it is in DATA/admin.token, or: "
				  "exogpu token create --name NAME --scopes observe");
		return STATUS_UNAUTHENTICATED;
	}
	if (length >= sizeof target->token) {
		error_set(error, STATUS_INVALID_PARAMS, "EXOGPU_TOKEN is too long for a token");
		error_hint(error, "a token begins with exo_ and is one word; copy it again");
		return STATUS_INVALID_PARAMS;
	}
	snprintf(target->token, sizeof target->token, "%.*s", (int)length, text);
	return STATUS_OK;
}

static enum status use_url(struct target *target, const struct target_wanted *wanted, const char *url,
			   const char *directory, struct error *error)
{
	enum status status = target_parse_url(target, url, wanted->url ? "--url" : "EXOGPU_URL", error);
	if (!status && target->tls)
		status = trust_find(&target->trust, wanted->ca, directory, error);
	else if (!status && wanted->ca)
		status = error_set(error, STATUS_INVALID_PARAMS, "--ca is for an address with https://");
	return status || wanted->anonymous ? status : take_token(target, error);
}

// STATUS_OK if somebody listens; else 0 < errno says why not.
static enum status try_socket(const char *path, int *why)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof address.sun_path) {
		*why = ENAMETOOLONG;
		return STATUS_UNAVAILABLE;
	}
	memcpy(address.sun_path, path, strlen(path) + 1);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int done = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&address, sizeof address);
	*why = errno;
	if (fd >= 0)
		close(fd);
	return done < 0 && *why != EAGAIN ? STATUS_UNAVAILABLE : STATUS_OK; // EAGAIN: alive, with a full queue
}

enum status target_find(struct target *target, const struct target_wanted *wanted, struct error *error)
{
	char directory[PATH_BYTES], socket_path[PATH_BYTES];
	const char *elsewhere = getenv("EXOGPU_URL"), *data = wanted->data;
	int why = 0;
	*target = (struct target){0};
	if (wanted->url && data)
		return error_set(error, STATUS_INVALID_PARAMS, "--data and --url each name a server: give one of them");
	enum status status = paths_data_directory(data, directory, sizeof directory, error);
	if (!status && wanted->url)
		return use_url(target, wanted, wanted->url, directory, error);
	if (!status)
		status = paths_join(directory, PATHS_SOCKET_NAME, socket_path, sizeof socket_path, error);
	if (status)
		return status;
	if (!try_socket(socket_path, &why)) {
		snprintf(target->socket_path, sizeof target->socket_path, "%.*s", LIMIT_SOCKET_PATH_BYTES, socket_path);
		snprintf(target->name, sizeof target->name, "%.290s", directory);
		return STATUS_OK;
	}
	if (!data && elsewhere && elsewhere[0])
		return use_url(target, wanted, elsewhere, directory, error);
	if (why == EACCES || why == EPERM) {
		error_set(error, STATUS_FORBIDDEN, "the data directory %.200s belongs to somebody else", directory);
		error_hint(error, "run this as its owner, or name the server with --url and a token in EXOGPU_TOKEN");
		return STATUS_FORBIDDEN;
	}
	if (why == ENAMETOOLONG) {
		error_set(error, STATUS_INVALID_PARAMS,
			  "the path of the data directory is too long for a socket: %.200s", directory);
		error_hint(error, "%s may have at most %d bytes", "DIR/" PATHS_SOCKET_NAME, LIMIT_SOCKET_PATH_BYTES);
		return STATUS_INVALID_PARAMS;
	}
	error_set(error, STATUS_UNAVAILABLE, "no server runs on the data directory %.200s", directory);
	error_hint(error, "start one: exogpu serve%s%.100s; or name another: --url URL, with EXOGPU_TOKEN",
		   data ? " --data " : "", data ? data : "");
	return STATUS_UNAVAILABLE;
}

// 0, or the errno value of the connection.
static int try_address(const struct addrinfo *address)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), result = 0;
	socklen_t length = sizeof result;
	if (fd < 0)
		return errno;
	if (connect(fd, address->ai_addr, address->ai_addrlen) < 0)
		result = errno;
	if (result == EINPROGRESS) {
		struct pollfd wait = {.fd = fd, .events = POLLOUT};
		if (poll(&wait, 1, EXPLAIN_MS) == 1)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &length);
		else
			result = ETIMEDOUT;
	}
	close(fd);
	return result;
}

static void explain_tls(const struct target *target, const char *fault, struct error *error)
{
	error_set(error, STATUS_UNAVAILABLE, "the server at %s cannot be trusted (by %.120s): %s", target->name,
		  target->trust.from, fault[0] ? fault : "its handshake failed");
	// Whoever gets it over the network must compare it with what the server itself says.
	if (strstr(fault, "authority"))
		error_hint(error,
			   "copy DATA/tls/authority.pem from its machine; or get https://%.100s/ca.pem and compare "
			   "its SHA-256 with the line \"authority:\" in its log. Then: --ca FILE",
			   target->name);
}

void target_explain(const struct target *target, const char *fault, struct error *error)
{
	char port[16];
	struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = NULL;
	if (target->socket_path[0]) {
		error_set(error, STATUS_UNAVAILABLE, "the server on %s did not take the connection", target->name);
		error_hint(error, "it may be starting or stopping: try again, and look at its log");
		return;
	}
	snprintf(port, sizeof port, "%d", target->port);
	int resolved = getaddrinfo(target->host, port, &wanted, &found);
	if (resolved) {
		error_set(error, STATUS_UNAVAILABLE, "the host %.200s is not known: %s", target->host,
			  gai_strerror(resolved));
		error_hint(error, "check the name, and that this machine can look names up");
		return;
	}
	int why = found ? try_address(found) : EHOSTUNREACH;
	freeaddrinfo(found);
	if (why) {
		error_errno(error, STATUS_UNAVAILABLE, why, "no server can be reached at %s", target->name);
		error_hint(error, "is exogpu serve running there, and listening on that address?");
		return;
	}
	if (target->tls) {
		explain_tls(target, fault, error);
		return;
	}
	error_set(error, STATUS_UNAVAILABLE, "what listens at %s is not an exogpu server, or does not go by that name",
		  target->name);
	error_hint(error, "use the address exactly as exogpu serve printed it, with https:// where it says so");
}
