/* The Vulkan device that tests of a session's worker use, if there is one. */
#pragma once
#include "tests/engine/worker/worker_test.h"

static char vulkan_key[257]; // "" where there is no Vulkan device

// A group's setup: the contract, and the device.
static int find_vulkan(void **state)
{
	struct worker worker;
	struct answer answer;
	if (load_contract(state))
		return 1;
	worker_start(&worker, NULL);
	int id = post(&worker, worker.node, "worker.enumerate", NULL, 0, "'backend':'vulkan'");
	expect(worker.node, &answer, id, "worker.enumerate", STATUS_OK);
	const struct json *device = json_first(json_get(answer.message.result, "devices"));
	snprintf(vulkan_key, sizeof(vulkan_key), "%s", json_get_string(device, "hardware_key", ""));
	answer_finish(&answer);
	worker_end(&worker, NULL, 0);
	if (!vulkan_key[0])
		print_message("skipped: no Vulkan device here, not even llvmpipe (apt-get install "
			      "mesa-vulkan-drivers)\n");
	return 0;
}
