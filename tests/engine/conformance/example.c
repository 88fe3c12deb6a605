/* A program of somebody else's, with the installed library and its header: y = 2 x + y on the first device there is.
 *
 *	cc example.c $(pkg-config --cflags --libs exogpu) && ./a.out [BACKEND] */
#include <exogpu/exogpu.h>
#include <stdio.h>
#include <string.h>

struct choice {
	const char *backend; // NULL: any
	char chosen[16], hardware_key[257];
};

static void choose(void *context, const struct exogpu_found_device *device)
{
	struct choice *choice = context;
	if (choice->chosen[0] || device->reason || (choice->backend && strcmp(choice->backend, device->backend)))
		return;
	snprintf(choice->chosen, sizeof(choice->chosen), "%s", device->backend);
	snprintf(choice->hardware_key, sizeof(choice->hardware_key), "%s", device->hardware_key);
}

int main(int argc, char **argv)
{
	struct choice choice = {.backend = argc > 1 ? argv[1] : NULL};
	struct exogpu_device *device = NULL;
	struct exogpu_buffer *x = NULL, *y = NULL;
	struct exogpu_stream *stream = NULL;
	struct exogpu_module *module = NULL;
	struct error error = {0};
	float values[4] = {1, 2, 3, 4};
	enum status status = exogpu_find_devices(choose, &choice, &error);
	struct exogpu_open open = {.backend = choice.chosen, .hardware_key = choice.hardware_key};
	if (!status)
		status = exogpu_device_open(&device, &open, &error);
	if (!status)
		status = exogpu_buffer_create(device, &x, sizeof(values), EXOGPU_MEMORY_DEVICE, &error);
	if (!status)
		status = exogpu_buffer_create(device, &y, sizeof(values), EXOGPU_MEMORY_DEVICE, &error);
	if (!status)
		status = exogpu_stream_create(device, &stream, &error);
	if (!status)
		status = exogpu_module_load(device, &module, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error);
	if (!status)
		status = exogpu_write(x, 0, values, sizeof(values), &error);
	if (!status)
		status = exogpu_write(y, 0, values, sizeof(values), &error);
	struct exogpu_argument arguments[] = {{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = y},
					      {.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = x},
					      {.kind = EXOGPU_ARGUMENT_F32, .f32 = 2},
					      {.kind = EXOGPU_ARGUMENT_U64, .u64 = 4}};
	struct exogpu_launch saxpy = {
		.module = module, .kernel = "saxpy_f32", .arguments = arguments, .argument_count = 4};
	if (!status)
		status = exogpu_launch(stream, &saxpy, &error);
	if (!status)
		status = exogpu_read(values, y, 0, sizeof(values), &error); // behind the launch
	exogpu_module_unload(&module);
	exogpu_stream_destroy(&stream);
	exogpu_buffer_destroy(&y);
	exogpu_buffer_destroy(&x);
	exogpu_device_close(&device, NULL);
	if (status)
		return fprintf(stderr, "%s: %s\n", status_word(status), error.message), 1;
	printf("%s: %g %g %g %g\n", choice.chosen, (double)values[0], (double)values[1], (double)values[2],
	       (double)values[3]);
	return values[0] == 3 && values[1] == 6 && values[2] == 9 && values[3] == 12 ? 0 : 1;
}
