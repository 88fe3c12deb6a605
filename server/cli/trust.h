/* Whose word is taken for a server that is reached by TLS.
 *
 * The first of these that there is: the file that --ca names, that of EXOGPU_CA, the authority of the data directory,
 * the system's authorities. "system" instead of a file means these. What is named comes before what is found, so that
 * one who has a cluster here can reach another. Under a cluster's own authority a server is known by the cluster's id,
 * by whatever name it was reached; under any other by the host's name. Thread: any, while nobody changes the
 * environment. */
#pragma once
#include "common/base/status.h"

#include <stdint.h>

struct trust {
	char from[256];           // for messages: the file, "the system's authorities"
	char authority_pem[8192]; // "": the system's
	bool pinned;              // the authority that has this SHA-256, which the server sends along
	uint8_t authority_sha256[32];
	char server_uri[128]; // "": by the host's name
};
// `ca` is what --ca said, or NULL; `directory` the data directory. Errors: STATUS_INVALID_PARAMS (a file that was named
// cannot be read or holds no certificate), with hints.
enum status trust_find(struct trust *trust, const char *ca, const char *directory, struct error *error);
// The file `path` alone; `origin` ("--ca") is for the message. Errors: as above.
enum status trust_read(struct trust *trust, const char *path, const char *origin, struct error *error);
