/* The list of back ends. Its order is the order of preference: where several see one device, the first that passes
 * verification is used. */
#include "engine/backend.h"

static const struct backend *const backends[] = {
#ifndef EXOGPU_ALONE
	&backend_cuda,
#endif
	&backend_vulkan,
	&backend_cpu,
};

const struct backend *const *backend_list(size_t *count)
{
	*count = sizeof(backends) / sizeof(backends[0]);
	return backends;
}

const struct backend *backend_find(enum backend_kind kind)
{
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
		if (backends[i]->kind == kind)
			return backends[i];
	return NULL;
}
