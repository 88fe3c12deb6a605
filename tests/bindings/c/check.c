/* libexogpu_client against a server, for tests/bindings/c.test.mjs: what the calls do, and what wrong ones are
 * answered. EXOGPU_URL and EXOGPU_TOKEN say which server; the words are what to do. Ends with 0, or says the line. */
#include <exogpu/exogpu_client.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error error;

#define CHECK(what) \
	do { \
		if (!(what)) { \
			printf("line %d: %s: %s (%s)\n", __LINE__, #what, error.message, error.hint); \
			exit(1); \
		} \
	} while (0)
// That a call fails so, with a message.
#define FAILS(wanted, call) \
	do { \
		error = (struct error){0}; \
		enum status got = (call); \
		if (got != (wanted) || error.status != got || !error.message[0]) { \
			printf("line %d: %s: %s, %s\n", __LINE__, #call, status_word(got), error.message); \
			exit(1); \
		} \
		error = (struct error){0}; \
	} while (0)

enum { LARGE = 5 * 1024 * 1024 + 12 }; // more than one piece, and no multiple of it

static void count(void *context, const struct exogpu_client_found_device *device)
{
	unsigned *counts = context;
	counts[0]++;
	counts[1] += device->usable && !strcmp(device->backend, "cpu") && device->memory_bytes && device->name[0] &&
		     device->node_id[0] && device->formats == 1u << EXOGPU_FORMAT_BUILTIN;
}

static void check_memory(struct exogpu_client *client, const char *device)
{
	struct exogpu_client_buffer *one = NULL, *other = NULL;
	unsigned char *data = malloc(LARGE), *back = malloc(LARGE);
	char *text = NULL;
	CHECK(data && back);
	for (size_t i = 0; i < LARGE; i++)
		data[i] = (unsigned char)(i * 2654435761u >> 24);
	CHECK(!exogpu_client_buffer_create(client, &one, device, LARGE, &error));
	CHECK(!exogpu_client_buffer_create(client, &other, device, LARGE, &error));
	CHECK(exogpu_client_buffer_bytes(one) == LARGE);
	CHECK(!exogpu_client_read(back, one, 0, LARGE, &error) && !back[0] && !memcmp(back, back + 1, LARGE - 1));
	CHECK(!exogpu_client_write(one, 0, data, LARGE, &error));
	CHECK(!exogpu_client_copy(&(struct exogpu_client_copy){.to = other, .from = one, .bytes = LARGE}, &error));
	CHECK(!exogpu_client_fill(other, 3, 5, 0xab, &error));
	CHECK(!exogpu_client_read(back, other, 0, LARGE, &error));
	memset(data + 3, 0xab, 5);
	CHECK(!memcmp(data, back, LARGE));
	CHECK(!exogpu_client_call(client, "memory.list", NULL, &text, &error));
	CHECK(strstr(text, exogpu_client_buffer_id(one)) && strstr(text, exogpu_client_buffer_id(other)));
	free(text);

	FAILS(STATUS_INVALID_PARAMS, exogpu_client_write(one, LARGE - 3, data, 4, &error));
	FAILS(STATUS_INVALID_PARAMS, exogpu_client_read(back, one, UINT64_MAX, 2, &error));
	FAILS(STATUS_INVALID_PARAMS, exogpu_client_read(NULL, one, 0, 1, &error));
	FAILS(STATUS_INVALID_PARAMS, exogpu_client_buffer_create(client, &other, device, 0, &error));
	FAILS(STATUS_NOT_FOUND,
	      exogpu_client_buffer_create(client, &(struct exogpu_client_buffer *){NULL}, "dev_none", 1, &error));
	FAILS(STATUS_LIMIT_EXCEEDED,
	      exogpu_client_buffer_create(client, &(struct exogpu_client_buffer *){NULL}, device, 1ull << 40, &error));
	FAILS(STATUS_METHOD_NOT_FOUND, exogpu_client_call(client, "memory.lose", "{}", &text, &error));
	FAILS(STATUS_FORBIDDEN, exogpu_client_call(client, "token.list", "{}", &text, &error));
	FAILS(STATUS_PARSE_ERROR, exogpu_client_call(client, "memory.list", "{", &text, &error));
	exogpu_client_buffer_destroy(&one);
	exogpu_client_buffer_destroy(&other);
	exogpu_client_buffer_destroy(&other);
	CHECK(!exogpu_client_call(client, "memory.list", "{}", &text, &error));
	CHECK(!strcmp(text, "{\"allocations\":[]}"));
	free(text);
	free(data);
	free(back);
}

static void check_compute(struct exogpu_client *client, const char *device)
{
	struct exogpu_client_buffer *x = NULL, *y = NULL;
	struct exogpu_client_module *module = NULL;
	float values[4] = {1, 2, 3, 4};
	uint64_t points[EXOGPU_CLIENT_LAUNCHES + 1];
	int64_t ns = -1;
	const int64_t patience_ns = 60ll * 1000000000;
	CHECK(!exogpu_client_buffer_create(client, &x, device, sizeof(values), &error));
	CHECK(!exogpu_client_buffer_create(client, &y, device, sizeof(values), &error));
	CHECK(!exogpu_client_write(x, 0, values, sizeof(values), &error));
	CHECK(!exogpu_client_module_load(client, &module, device, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error));
	const struct exogpu_kernel *kernel = NULL;
	for (unsigned i = 0; (kernel = exogpu_client_module_kernel(module, i)) && strcmp(kernel->name, "saxpy_f32");)
		i++;
	CHECK(kernel && kernel->argument_count == 4 && kernel->arguments[0] == EXOGPU_ARGUMENT_BUFFER);

	struct exogpu_client_argument arguments[] = {{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = y},
						     {.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = x},
						     {.kind = EXOGPU_ARGUMENT_F32, .f32 = 0.5f},
						     {.kind = EXOGPU_ARGUMENT_U64, .u64 = 4}};
	struct exogpu_client_launch launch = {
		.module = module, .kernel = "saxpy_f32", .arguments = arguments, .argument_count = 4};
	for (unsigned i = 0; i < EXOGPU_CLIENT_LAUNCHES; i++)
		CHECK(!exogpu_client_launch(&launch, &points[i], &error));
	FAILS(STATUS_LIMIT_EXCEEDED, exogpu_client_launch(&launch, &points[EXOGPU_CLIENT_LAUNCHES], &error));
	CHECK(!exogpu_client_read(values, y, 0, sizeof(values), &error)); // behind them, none of which is waited for
	for (unsigned i = 0; i < 4; i++)
		CHECK(values[i] == 0.5f * EXOGPU_CLIENT_LAUNCHES * (float)(i + 1));
	for (unsigned i = EXOGPU_CLIENT_LAUNCHES; i-- > 0; ns = -1)
		CHECK(!exogpu_client_wait(client, points[i], patience_ns, &ns, &error) && ns >= 0);
	FAILS(STATUS_NOT_FOUND, exogpu_client_wait(client, points[0], 0, NULL, &error));

	launch.kernel = "saxpy_f64";
	CHECK(!exogpu_client_launch(&launch, points, &error));
	FAILS(STATUS_NOT_FOUND, exogpu_client_wait(client, points[0], patience_ns, NULL, &error));
	launch.kernel = "saxpy_f32";
	arguments[3].u64 = 5; // one more than there are
	CHECK(!exogpu_client_launch(&launch, points, &error));
	FAILS(STATUS_INVALID_PARAMS, exogpu_client_wait(client, points[0], patience_ns, NULL, &error));
	arguments[3].kind = EXOGPU_ARGUMENT_WORD;
	FAILS(STATUS_INVALID_PARAMS, exogpu_client_launch(&launch, points, &error));
	FAILS(STATUS_UNAVAILABLE, exogpu_client_module_load(client, &(struct exogpu_client_module *){NULL}, device,
							    EXOGPU_FORMAT_PTX, "x", 1, &error));
	FAILS(STATUS_UNAVAILABLE, exogpu_client_module_load(client, &(struct exogpu_client_module *){NULL}, device,
							    EXOGPU_FORMAT_WGSL, "x", 1, &error));
	FAILS(STATUS_INVALID_PARAMS, exogpu_client_module_load(client, &(struct exogpu_client_module *){NULL}, device,
							       EXOGPU_FORMAT_SPIRV, "", 0, &error));
	exogpu_client_module_unload(&module);
	exogpu_client_buffer_destroy(&x); // y is left, for the close
}

static void check_connect(void)
{
	struct exogpu_client *client = NULL;
	FAILS(STATUS_UNAUTHENTICATED,
	      exogpu_client_connect(&client, &(struct exogpu_client_connect){.token = "exo_wrong"}, &error));
	FAILS(STATUS_INVALID_PARAMS,
	      exogpu_client_connect(&client, &(struct exogpu_client_connect){.token = "two words"}, &error));
	FAILS(STATUS_INVALID_PARAMS,
	      exogpu_client_connect(&client, &(struct exogpu_client_connect){.url = "ftp://host"}, &error));
	FAILS(STATUS_INVALID_PARAMS,
	      exogpu_client_connect(&client, &(struct exogpu_client_connect){.url = "http://127.0.0.1:9", .ca = "x"},
				    &error));
	FAILS(STATUS_INVALID_PARAMS,
	      exogpu_client_connect(&client,
				    &(struct exogpu_client_connect){.url = "https://127.0.0.1:9", .ca_sha256 = "12"},
				    &error));
	FAILS(STATUS_INVALID_PARAMS,
	      exogpu_client_connect(&client,
				    &(struct exogpu_client_connect){.url = "https://127.0.0.1:9", .ca = "/nowhere"},
				    &error));
	FAILS(STATUS_UNAVAILABLE,
	      exogpu_client_connect(&client, &(struct exogpu_client_connect){.url = "http://127.0.0.1:9"}, &error));
	CHECK(!client);
}

static void *use(void *arg)
{
	struct exogpu_client_buffer *buffer = NULL;
	unsigned char bytes[64], back[64];
	struct exogpu_client *client = ((void **)arg)[0];
	struct error fault = {0};
	memset(bytes, (int)(intptr_t)&bytes >> 8, sizeof(bytes));
	if (exogpu_client_buffer_create(client, &buffer, ((void **)arg)[1], sizeof(bytes), &fault))
		return fault.message[0] ? "create" : "nothing said";
	for (int i = 0; i < 20; i++) {
		bytes[i] = (unsigned char)i;
		if (exogpu_client_write(buffer, 0, bytes, sizeof(bytes), &fault) ||
		    exogpu_client_read(back, buffer, 0, sizeof(back), &fault) || memcmp(bytes, back, sizeof(back)))
			return "write and read";
	}
	return NULL;
}

// Calls of several threads wait for each other.
static void check_threads(struct exogpu_client *client, char *device)
{
	void *arg[] = {client, device}, *fault;
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, use, arg));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], &fault) && !fault);
}

static void connect_as_told(struct exogpu_client **client)
{
	const struct exogpu_client_connect params = {.ca = getenv("CHECK_CA"), .ca_sha256 = getenv("CHECK_SHA256")};
	CHECK(!exogpu_client_connect(client, &params, &error));
}

// Says that it is connected, and waits for a line before it goes on.
static void pause_here(void)
{
	char line[16];
	puts("connected");
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin));
}

int main(int argc, char **argv)
{
	struct exogpu_client *client = NULL;
	char device[EXOGPU_CLIENT_ID_BYTES], *text = NULL;
	unsigned counts[2] = {0};
	struct sigaction pipe;
	const char *what = argc > 1 ? argv[1] : "all";
	if (!strcmp(what, "all")) {
		check_connect();
		connect_as_told(&client);
		CHECK(!exogpu_client_find_devices(client, count, counts, &error) && counts[0] && counts[1] == 1);
		FAILS(STATUS_NOT_FOUND, exogpu_client_choose_device(client, "no such", device, &error));
		CHECK(!exogpu_client_choose_device(client, NULL, device, &error));
		CHECK(!exogpu_client_choose_device(client, argv[2], device, &error) && !strcmp(device, argv[2]));
		check_memory(client, device);
		check_compute(client, device);
		check_threads(client, device);
	} else if (!strcmp(what, "refused")) {
		const struct exogpu_client_connect params = {.ca = getenv("CHECK_CA"),
							     .ca_sha256 = getenv("CHECK_SHA256")};
		FAILS(STATUS_UNAVAILABLE, exogpu_client_connect(&client, &params, &error));
	} else if (!strcmp(what, "late")) { // a server that does not answer
		CHECK(!exogpu_client_connect(&client, &(struct exogpu_client_connect){.timeout_ms = 100}, &error));
		FAILS(STATUS_TIMEOUT, exogpu_client_call(client, "memory.list", NULL, &text, &error));
		FAILS(STATUS_UNAVAILABLE, exogpu_client_call(client, "memory.list", NULL, &text, &error));
	} else { // "pause", and what becomes of a call after it
		connect_as_told(&client);
		pause_here();
		error = (struct error){0};
		enum status status = exogpu_client_call(client, "memory.list", NULL, &text, &error);
		printf("%s\n", status_word(status));
		free(text);
	}
	exogpu_client_close(&client);
	exogpu_client_close(&client);
	sigaction(SIGPIPE, NULL, &pipe);
	CHECK(pipe.sa_handler == SIG_DFL); // as it was
	puts("right");
	return 0;
}
