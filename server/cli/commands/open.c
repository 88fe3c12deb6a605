/* `exogpu open`: the dashboard in this desktop's browser, logged in by a code that works once.
 *
 * Everybody on the machine can read the arguments of xdg-open and of the browser. So these get the path of a page that
 * only its owner can read, and the page leads to the address with the code. It lies in the home directory, and not in a
 * hidden one or in /tmp: browsers that came as a snap read only there. It is removed once the code was used. */
#include "common/files/private_file.h"
#include "server/cli/commands/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum { LASTS_S = 60 }; // a login code

static bool has_desktop(void)
{
	const char *x11 = getenv("DISPLAY"), *wayland = getenv("WAYLAND_DISPLAY");
	return (x11 && x11[0]) || (wayland && wayland[0]);
}

// The server's own, so it is looked at before it stands in a page.
static bool is_plain(const char *url)
{
	return (!strncmp(url, "http://", 7) || !strncmp(url, "https://", 8)) && !strpbrk(url, "\"'<>&\\ \t\r\n");
}

// ---- the page ----

struct page {
	char folder[4000], path[4096];
};

static enum status page_write(struct page *page, const char *url, struct error *error)
{
	char text[2048];
	const char *home = getenv("HOME"), *parent = home && home[0] == '/' ? home : "/tmp";
	snprintf(page->folder, sizeof page->folder, "%s/exogpu-open-XXXXXX", parent);
	if (!mkdtemp(page->folder)) { // mode 0700
		error_errno(error, STATUS_UNAVAILABLE, errno, "no folder for the page can be made in %s", parent);
		error_hint(error, "exogpu open --print prints the address instead");
		page->folder[0] = 0;
		return STATUS_UNAVAILABLE;
	}
	snprintf(page->path, sizeof page->path, "%s/login.html", page->folder);
	const int length = snprintf(text, sizeof text,
				    "<!doctype html>\n<meta charset=\"utf-8\">\n"
				    "<meta name=\"referrer\" content=\"no-referrer\">\n"
				    "<meta http-equiv=\"refresh\" content=\"0; url=%s\">\n"
				    "<title>exogpu</title>\n<p><a href=\"%s\">Open the dashboard</a>\n",
				    url, url);
	if (length < 0 || (size_t)length >= sizeof text)
		return error_set(error, STATUS_INTERNAL, "the server gave an address that is too long for a page");
	const struct private_file file = {.path = page->path, .bytes = text, .length = (size_t)length};
	return private_file_write(&file, error);
}

static void page_remove(const struct page *page)
{
	if (!page->folder[0])
		return;
	unlink(page->path);
	rmdir(page->folder);
}

// ---- the browser ----

// It is not waited for: with some browsers xdg-open ends when the window is closed.
static enum status start_browser(const char *path, struct error *error)
{
	pid_t pid;
	sigset_t none, all;
	char *argv[] = {(char *)"xdg-open", (char *)path, NULL};
	posix_spawnattr_t attributes;
	posix_spawn_file_actions_t files;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	posix_spawn_file_actions_init(&files);
	for (int fd = 0; fd < 3; fd++)
		posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
	const int failure = posix_spawnp(&pid, argv[0], &files, &attributes, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	if (!failure)
		return STATUS_OK;
	error_errno(error, STATUS_UNAVAILABLE, failure, "xdg-open cannot be started");
	error_hint(error, "install xdg-utils, or: exogpu open --print");
	return STATUS_UNAVAILABLE;
}

// ---- until it is logged in ----

struct waiting {
	const char *code_id;
	bool used;
};

static bool on_notice(void *context, const char *method, const struct json *params)
{
	struct waiting *waiting = context;
	const struct json *entry = json_get(params, "data");
	if (strcmp(method, "event") != 0 || strcmp(json_get_string(entry, "action", ""), "auth.redeem") != 0 ||
	    strcmp(json_get_string(entry, "target", ""), waiting->code_id) != 0)
		return true;
	waiting->used = true;
	return false;
}

static enum status subscribe(struct client *client, struct error *error)
{
	struct json *params = json_new_object(), *topics = json_new_array(), *answer = NULL;
	json_push(topics, json_new_string("audit"));
	json_set(params, "topics", topics);
	const enum status status = client_ask(
		client, &(struct client_call){.method = "events.subscribe", .params = params}, &answer, error);
	json_destroy(&answer);
	return status;
}

static enum status open_page(struct client *client, const struct json *made, struct error *error)
{
	struct page page = {0};
	struct waiting waiting = {.code_id = json_get_string(made, "code_id", "")};
	const char *url = json_get_string(made, "url", "");
	if (!is_plain(url))
		return error_set(error, STATUS_INTERNAL, "the server gave an address that no browser should open");
	enum status status = page_write(&page, url, error);
	if (!status)
		status = start_browser(page.path, error);
	if (!status) {
		fprintf(stderr, "opening the dashboard in the browser\n");
		alarm(LASTS_S);
		status = client_stay(client, on_notice, &waiting, error);
		alarm(0);
	}
	page_remove(&page);
	if (!status && !waiting.used) {
		error_set(error, STATUS_TIMEOUT, "the browser has not opened the page");
		error_hint(error, "exogpu open --print prints an address that you can open yourself");
		status = STATUS_TIMEOUT;
	}
	return status;
}

static int run_browser(const struct cli_arguments *arguments, struct error *error)
{
	static struct target target;
	struct client *client = NULL;
	struct json *made = NULL;
	int result = command_open(arguments, &target, &client, error);
	if (result)
		return result;
	enum status status = client_catch(client, error);
	if (!status)
		status = subscribe(client, error);
	if (!status)
		status = client_ask(client, &(struct client_call){.method = "auth.login_code"}, &made, error);
	if (!status)
		status = open_page(client, made, error);
	json_destroy(&made);
	client_close(&client);
	return status ? 1 : 0;
}

static int run_print(const struct cli_arguments *arguments, struct error *error)
{
	struct json *made = NULL;
	int result = command_call(arguments, "auth.login_code", NULL, &made, error);
	if (made) {
		command_print_text(stdout, "", json_get_string(made, "url", ""));
		fprintf(stderr, "Whoever opens it first, within %d s, is logged in; it works once.\n", LASTS_S);
	}
	json_destroy(&made);
	return result;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	if (arguments->print || arguments->json || !has_desktop())
		return run_print(arguments, error);
	return run_browser(arguments, error);
}

static const struct flag flags[] = {
	{"print", NULL, "print the address, and start no browser", offsetof(struct cli_arguments, print)},
	{0},
};

const struct cli_command open_command = {
	.name = "open",
	.summary = "open the dashboard in the browser, logged in",
	.more = "The browser is logged in by a code that works once, within 60 s, and gets a token of its own for 24 "
		"h.\n"
		"No token stands in an address. Without a desktop the address is printed, as with --print.\n",
	.flags = flags,
	.run = run,
};
