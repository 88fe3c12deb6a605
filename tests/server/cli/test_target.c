/* Addresses as people write them, and where a command goes that names none. */
#include "server/cli/target.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static enum status find(struct target *target, const char *data, const char *url, struct error *error)
{
	return target_find(target, &(struct target_wanted){.data = data, .url = url}, error);
}

static void addresses(void **state)
{
	static const struct {
		const char *url, *host; // host NULL: refused
		int port;
		const char *name;
	} cases[] = {
		{"http://127.0.0.1:8080", "127.0.0.1", 8080, "127.0.0.1:8080"},
		{"http://127.0.0.1:8080/", "127.0.0.1", 8080, "127.0.0.1:8080"},
		{"ws://polaris:80/ws", "polaris", 80, "polaris:80"},
		{"HTTP://Polaris.example", "Polaris.example", 52415, "Polaris.example:52415"},
		{"polaris:65535", "polaris", 65535, "polaris:65535"},
		{"http://[::1]:7", "::1", 7, "[::1]:7"},
		{"[fe80::1]", "fe80::1", 52415, "[fe80::1]:52415"},
		{"https://127.0.0.1:8080", "127.0.0.1", 8080, "127.0.0.1:8080"},
		{"WSS://polaris", "polaris", 52415, "polaris:52415"},
		{"httpss://127.0.0.1:8080", NULL, 0, NULL},
		{"ftp://host", NULL, 0, NULL},
		{"://host", NULL, 0, NULL},
		{"", NULL, 0, NULL},
		{"http://", NULL, 0, NULL},
		{"http://:80", NULL, 0, NULL},
		{"http://host:", NULL, 0, NULL},
		{"http://host:0", NULL, 0, NULL},
		{"http://host:65536", NULL, 0, NULL},
		{"http://host:+80", NULL, 0, NULL},
		{"http://host:80:80", NULL, 0, NULL},
		{"http://::1:80", NULL, 0, NULL},
		{"http://[::1", NULL, 0, NULL},
		{"http://[::1]80", NULL, 0, NULL},
		{"http://[]:80", NULL, 0, NULL},
		{"http://[host]:80", NULL, 0, NULL},
		{"http://me@host:80", NULL, 0, NULL},
		{"http://host:80/path", NULL, 0, NULL},
		{"http://host:80/#token=exo_1", NULL, 0, NULL},
		{"http://host:80?x", NULL, 0, NULL},
		{"http://ho st", NULL, 0, NULL},
		{"http://host\r\nx:80", NULL, 0, NULL},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct target target = {0};
		struct error error = {0};
		enum status status = target_parse_url(&target, cases[i].url, "--url", &error);
		if (!!status != !cases[i].host)
			fail_msg("\"%s\": status %d: %s", cases[i].url, status, error.message);
		if (status) {
			assert_int_equal(status, STATUS_INVALID_PARAMS);
			assert_true(error.hint[0]);
			continue;
		}
		assert_string_equal(target.host, cases[i].host);
		assert_int_equal(target.port, cases[i].port);
		assert_string_equal(target.name, cases[i].name);
		assert_int_equal(target.tls,
				 !strncasecmp(cases[i].url, "https", 5) || !strncasecmp(cases[i].url, "wss", 3));
	}
}

static void a_host_is_bounded(void **state)
{
	char url[600];
	struct target target = {0};
	(void)state;
	memset(url, 'a', sizeof url);
	url[255] = 0;
	assert_int_equal(target_parse_url(&target, url, "--url", NULL), STATUS_OK);
	url[255] = 'a';
	url[256] = 0;
	assert_int_equal(target_parse_url(&target, url, "--url", NULL), STATUS_INVALID_PARAMS);
}

static void what_was_named_comes_before_what_is_there(void **state)
{
	char directory[] = "/tmp/exogpu-target-XXXXXX", path[128];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct target target;
	struct error error = {0};
	(void)state;
	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof path, "%s/exogpu.sock", directory);
	memcpy(address.sun_path, path, strlen(path) + 1);
	unsetenv("EXOGPU_TOKEN");
	unsetenv("EXOGPU_URL");

	// Nobody there.
	assert_int_equal(find(&target, directory, NULL, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.hint, directory));

	// A server's socket: no token needed, and it comes before EXOGPU_URL but after --url.
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(fd, 8), 0);
	setenv("EXOGPU_URL", "http://elsewhere:1", 1);
	assert_int_equal(find(&target, directory, NULL, &error), STATUS_OK);
	assert_string_equal(target.socket_path, path);
	assert_string_equal(target.token, "");
	error = (struct error){0};
	assert_int_equal(find(&target, directory, "http://there:2", &error), STATUS_INVALID_PARAMS);
	error = (struct error){0};
	assert_int_equal(find(&target, NULL, "http://there:2", &error), STATUS_UNAUTHENTICATED);
	assert_non_null(strstr(error.message, "EXOGPU_TOKEN"));
	setenv("EXOGPU_TOKEN", " exo_1\r\n", 1);
	assert_int_equal(find(&target, NULL, "http://there:2", &error), STATUS_OK);
	assert_string_equal(target.socket_path, "");
	assert_string_equal(target.host, "there");
	assert_string_equal(target.token, "exo_1");

	// A socket that a killed server left behind: a directory that was named is not left for EXOGPU_URL.
	close(fd);
	assert_int_equal(find(&target, directory, NULL, &error), STATUS_UNAVAILABLE);
	setenv("EXOGPU_DATA", directory, 1);
	assert_int_equal(find(&target, NULL, NULL, &error), STATUS_OK);
	assert_string_equal(target.host, "elsewhere");
	unsetenv("EXOGPU_URL");
	assert_int_equal(find(&target, NULL, NULL, &error), STATUS_UNAVAILABLE);
	unsetenv("EXOGPU_DATA");
	unlink(path);
	rmdir(directory);
}

static void a_directory_too_deep_for_a_socket_says_so(void **state)
{
	char deep[200];
	struct target target;
	struct error error = {0};
	(void)state;
	unsetenv("EXOGPU_URL");
	memset(deep, 'd', sizeof deep);
	deep[0] = '/';
	deep[sizeof deep - 1] = 0;
	assert_int_equal(find(&target, deep, NULL, &error), STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "too long"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses),
		cmocka_unit_test(a_host_is_bounded),
		cmocka_unit_test(what_was_named_comes_before_what_is_there),
		cmocka_unit_test(a_directory_too_deep_for_a_socket_says_so),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
