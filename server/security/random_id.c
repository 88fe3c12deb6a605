/* See random_id.h. */
#include "server/security/random_id.h"

#include <openssl/rand.h>
#include <stdio.h>

enum status random_id(const char *prefix, char *out, size_t size)
{
	unsigned char random[8];
	if (RAND_bytes(random, sizeof random) != 1)
		return STATUS_UNAVAILABLE;
	snprintf(out, size, "%s%02x%02x%02x%02x%02x%02x%02x%02x", prefix, random[0], random[1], random[2], random[3],
		 random[4], random[5], random[6], random[7]);
	return STATUS_OK;
}
