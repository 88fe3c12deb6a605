/* Which variables a worker gets. */
#include "engine/node/workers/environment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static void drivers_get_what_they_read(void **state)
{
	static const char *const passed[] = {"HOME=/root",
					     "LD_LIBRARY_PATH=/opt/lib",
					     "VK_DRIVER_FILES=/a.json",
					     "LC_ALL=C",
					     "MESA_SHADER_CACHE_DIR=/c",
					     "CUDA_CACHE_PATH=/c",
					     "XDG_DATA_DIRS=/usr/share",
					     "TZ=UTC",
					     "RADV_DEBUG=x",
					     "CUDA_VISIBLE_DEVICES=0",
					     "EXOGPU_CPU_LEVEL=avx2",
					     "EXOGPU_TEST_STREAM_BYTES=16777216",
					     "HOME"};
	(void)state;
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		if (!environment_passes(passed[i]))
			fail_msg("%s does not pass", passed[i]);
}

static void secrets_stay(void **state)
{
	static const char *const kept[] = {"HF_TOKEN=x",
					   "EXOGPU_TOKEN=x",
					   "EXOGPU_TICKET=x",
					   "http_proxy=http://u:p@h",
					   "HTTPS_PROXY=x",
					   "AWS_SECRET_ACCESS_KEY=x",
					   "NVIDIA_API_KEY=x",
					   "CUDA_API_KEY=x",
					   "MESA_PASSWORD=x",
					   "VK_TOKEN=x",
					   "SSH_AUTH_SOCK=x",
					   "HOMER=x",
					   "HOM=x",
					   "=x",
					   "",
					   "NOTIFY_SOCKET=/run/x",
					   "CREDENTIALS_DIRECTORY=/run/x",
					   "PATHS=VK_"};
	(void)state;
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (environment_passes(kept[i]))
			fail_msg("%s passes", kept[i]);
	assert_true(environment_passes("CUDA_CACHE_PATH=/KEY")); // the value is not looked at
}

static void the_list_keeps_its_order(void **state)
{
	char *const from[] = {"HF_TOKEN=x", "HOME=/root", "A=b", "TZ=UTC", NULL};
	char **list = environment_make(from);
	(void)state;
	assert_non_null(list);
	assert_ptr_equal(list[0], from[1]);
	assert_ptr_equal(list[1], from[3]);
	assert_null(list[2]);
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drivers_get_what_they_read),
		cmocka_unit_test(secrets_stay),
		cmocka_unit_test(the_list_keeps_its_order),
	};
	return cmocka_run_group_tests_name("node/environment", tests, NULL, NULL);
}
