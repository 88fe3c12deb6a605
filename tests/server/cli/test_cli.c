/* The real binary, without a server: help, versions, mistakes, and what each ends with. */
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
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 8 };

static char out[16384], err[16384];

static void read_file(FILE *file, char *text, size_t size)
{
	rewind(file);
	text[fread(text, 1, size - 1, file)] = 0;
	fclose(file);
}

// Run exogpu with these words; its exit status, with what it printed in `out` and `err`.
static int run(const char *const words[WORDS])
{
	int status = -1;
	const char *argv[WORDS + 2] = {EXOGPU_BINARY};
	FILE *out_file = tmpfile(), *err_file = tmpfile();
	assert_non_null(out_file);
	assert_non_null(err_file);
	memcpy(argv + 1, words, WORDS * sizeof *words);
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child) {
		dup2(fileno(out_file), STDOUT_FILENO);
		dup2(fileno(err_file), STDERR_FILENO);
		execv(argv[0], (char **)(uintptr_t)argv);
		_exit(127);
	}
	waitpid(child, &status, 0);
	read_file(out_file, out, sizeof out);
	read_file(err_file, err, sizeof err);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct run_case {
	const char *words[WORDS];
	int status;
	const char *out, *err; // what each must hold; "": nothing at all
};

static void check(const struct run_case *cases, size_t count)
{
	unsetenv("EXOGPU_URL");
	unsetenv("EXOGPU_TOKEN");
	setenv("EXOGPU_DATA", "/nonexistent/exogpu", 1);
	for (size_t i = 0; i < count; i++) {
		int status = run(cases[i].words);
		if (status != cases[i].status || !strstr(out, cases[i].out) || !strstr(err, cases[i].err) ||
		    !cases[i].out[0] != !out[0] || !cases[i].err[0] != !err[0])
			fail_msg("case %zu (%s): exit %d, not %d\nstdout: %s\nstderr: %s", i, cases[i].words[0], status,
				 cases[i].status, out, err);
	}
}

static void help(void **state)
{
	static const struct run_case cases[] = {
		{{"--help"}, 0, "token revoke ID              end a token", ""},
		{{"-h"}, 0, "serve ", ""},
		{{"-h"}, 0, "bench device [DEVICE]        measure how fast", ""},
		{{"help"}, 0, "nodes ", ""},
		{{0}, 2, "", "Usage: exogpu COMMAND"},
		{{"--version"}, 0, "exogpu " EXOGPU_VERSION "\nCUDA kernels: ", ""},
		{{"version"}, 0, "exogpu " EXOGPU_VERSION "\n", ""},
		{{"help", "devices"}, 0, "exogpu devices: ", ""},
		{{"devices", "--help"}, 0, "--json", ""},
		{{"alerts", "channels", "add", "--help"}, 0, "--secret-file FILE", ""},
		{{"help", "alerts", "channels", "test"}, 0, "exogpu alerts channels test ID", ""},
		{{"nodes", "-h"}, 0, "--wide", ""},
		{{"token", "--help"}, 0, "exogpu token create", ""},
		{{"help", "token"}, 0, "exogpu token revoke ID", ""},
		{{"help", "token", "create"}, 0, "--scopes LIST", ""},
		{{"token", "revoke", "--help"}, 0, "Usage: exogpu token revoke ID", ""},
		{{"help", "serve"}, 0, "--listen", ""},
		{{"help", "node"}, 0, "exogpu node", ""},
		{{"help", "version"}, 0, "Usage: exogpu version\n", ""},
		{{"help", "help"}, 0, "Usage: exogpu help [COMMAND]\n", ""},
		{{"version", "--help"}, 0, "Usage: exogpu version", ""},
		{{"help", "token"}, 0, "Usage: exogpu token COMMAND", ""},
		{{"serve", "--help"}, 0, "Usage: exogpu serve [OPTION...]", ""},
		{{"node", "--help"}, 0, "Usage: exogpu node [OPTION...]", ""},
		{{"help", "devices", "nodes"}, 2, "", "\"nodes\" is one argument too many"},
		{{"help", "serve", "x"}, 2, "", "\"x\" is one argument too many"},
		{{"version", "x"}, 2, "", "\"x\" is one argument too many"},
		{{"help", "nonsense"}, 2, "", "there is no command \"nonsense\""},
	};
	(void)state;
	check(cases, sizeof cases / sizeof *cases);
	assert_null(strstr(out, "worker"));
}

static void mistakes(void **state)
{
	static const struct run_case cases[] = {
		{{"device"}, 2, "", "\n  did you mean exogpu devices?"},
		{{"toke"}, 2, "", "did you mean exogpu token?"},
		{{"nonsense"}, 2, "", "exogpu --help"},
		{{""}, 2, "", "there is no command"},
		{{"token"}, 2, "", "Usage: exogpu token COMMAND"},
		{{"token", "crate"}, 2, "", "did you mean exogpu token create?"},
		{{"--json", "devices"}, 2, "", "the command comes first"},
		{{"devices", "--jsn"}, 2, "", "did you mean --json?"},
		{{"devices", "--json=1"}, 2, "", "takes no value"},
		{{"devices", "--wide"}, 2, "", "no option --wide\n  exogpu nodes --wide"},
		{{"devices", "-x"}, 2, "", "no option -x"},
		{{"devices", "--data", "/a", "--url", "b"}, 2, "", "give one of them"},
		{{"devices", "--data", "/a", "--data=/a"}, 2, "", "--data is given twice"},
		{{"devices", "extra", "--json"}, 2, "", "{\"error\":\"invalid_params\",\"message\":\""},
		{{"devices", "extra"}, 2, "", "one argument too many"},
		{{"devices", "--data"}, 2, "", "needs a value"},
		{{"devices", "--data="}, 2, "", "--data must not be empty"},
		{{"devices", "--url", "https:///"}, 2, "", "that is not a host"},
		{{"devices", "--url", "http://x", "--ca", "y"}, 2, "", "--ca is for an address with https://"},
		{{"health", "--url", "https://x", "--ca", "/none"}, 2, "", "--ca: /none cannot be read"},
		{{"token", "revoke"}, 2, "", "ID is missing"},
		{{"token", "revoke", "--all"}, 2, "", "no option --all\n  see: exogpu help token revoke"},
		{{"token", "revoke", "a", "b"}, 2, "", "one argument too many"},
		{{"token", "revoke", "exo_a_b_c"}, 2, "", "by its id"},
		{{"token", "create"}, 2, "", "--name NAME is missing"},
		{{"token", "create", "--name", "n"}, 2, "", "--scopes LIST is missing"},
		{{"token", "create", "--name=n", "--scopes=observ"},
		 2,
		 "",
		 "admin, observe, allocate, compute, infer, join"},
		{{"token", "create", "--name=n", "--scopes=observe,"}, 2, "", "an empty scope between commas"},
		{{"token", "create", "--name=", "--scopes=observe"}, 2, "", "--name must not be empty"},
		{{"token", "create", "--name=n", "--scopes=observe", "--expires=0s"},
		 2,
		 "",
		 "--expires: 0s is not between"},
		{{"token", "create", "--name=n", "--scopes=observe", "--expires=24"}, 2, "", "not a duration"},
		{{"token", "create", "--name=n", "--scopes=observe", "--calls-per-s=nan"}, 2, "", "--calls-per-s"},
		{{"token", "create", "--name=n", "--scopes=observe", "--max-sessions=0"}, 2, "", "--max-sessions"},
		{{"token", "create", "--name=n", "--scopes=observe", "--memory-limit=4Gib/s"},
		 2,
		 "",
		 "--memory-limit: \"4Gib/s\" is not a size"},
		{{"alloc"}, 2, "", "DEVICE is missing"},
		{{"alloc", "cpu"}, 2, "", "SIZE is missing"},
		{{"alloc", "cpu", "lots"}, 2, "", "\"lots\" is not a size\n  for example 512MiB"},
		{{"alloc", "cpu", "1GiB", "2GiB"}, 2, "", "one argument too many"},
		{{"alloc", "free"}, 2, "", "ID is missing"},
		{{"alloc", "list", "x"}, 2, "", "one argument too many"},
		{{"aloc"}, 2, "", "did you mean exogpu alloc?"},
		{{"bench"}, 2, "", "Usage: exogpu bench COMMAND"},
		{{"bench", "devise"}, 2, "", "did you mean exogpu bench device?"},
		{{"bench", "device", "a", "b"}, 2, "", "one argument too many"},
	};
	(void)state;
	check(cases, sizeof cases / sizeof *cases);
}

// serve and node read theirs as the others do.
static void processes(void **state)
{
	static const struct run_case cases[] = {
		{{"serve", "--lisen", "x"}, 2, "", "no option --lisen\n  did you mean --listen?"},
		{{"serve", "--listen"},
		 2,
		 "",
		 "--listen needs a value: --listen ADDRESS:PORT\n  see: exogpu serve --help"},
		{{"serve", "--listen", "52000"}, 2, "", "--listen takes ADDRESS:PORT, as in 127.0.0.1:52415"},
		{{"serve", "--listen", "foo"}, 2, "", "--listen takes ADDRESS:PORT, as in 127.0.0.1:52415"},
		{{"serve", "--listen", "[::1]x"}, 2, "", "--listen takes ADDRESS:PORT"},
		{{"serve", "--lan", "--listen", "::"}, 2, "", "give one of them\n  see: exogpu serve --help"},
		{{"serve", "--lan", "--tls-cert", "x"}, 2, "", "--tls-cert and --tls-key go together"},
		{{"serve", "--tls-name", "x"}, 2, "", "127.0.0.1 is a loopback address"},
		{{"serve", "extra"}, 2, "", "\"extra\" is one argument too many\n  see: exogpu serve --help"},
		{{"node", "--jion", "x"}, 2, "", "exogpu: there is no option --jion\n  did you mean --join?"},
		{{"node", "--join"}, 2, "", "--join needs a value: --join HOST:PORT\n  see: exogpu node --help"},
		{{"node", "extra"}, 2, "", "\"extra\" is one argument too many\n  see: exogpu node --help"},
	};
	(void)state;
	check(cases, sizeof cases / sizeof *cases);
}

static void without_a_server(void **state)
{
	static const struct run_case cases[] = {
		{{"devices"},
		 1,
		 "",
		 "exogpu: no server runs on the data directory /nonexistent/exogpu\n  start one: exogpu serve"},
		{{"nodes", "--data", "/nonexistent/b"}, 1, "", "exogpu serve --data /nonexistent/b"},
		{{"token", "list", "--url", "http://127.0.0.1:1"}, 1, "", "EXOGPU_TOKEN"},
		{{"devices", "--json"}, 1, "", "{\"error\":\"unavailable\",\"message\":\"no server runs"},
		{{"token", "create", "--name=n", "--scopes= admin, join", "--expires=2w"}, 1, "", "no server runs"},
	};
	(void)state;
	check(cases, sizeof cases / sizeof *cases);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(help),
		cmocka_unit_test(mistakes),
		cmocka_unit_test(processes),
		cmocka_unit_test(without_a_server),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
