/* The authority as a server has it that waits for its turn: with nothing that would be written down. See authority.h.
 */
#include "server/security/certificates/authority_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status authority_stand_by(struct authority **out, const struct authority_params *params, struct error *error)
{
	struct authority *authority = calloc(1, sizeof *authority);
	char uri[NET_CERTIFICATE_URI_BYTES];
	bool made;
	*out = authority;
	if (!authority)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	authority->params = *params;
	authority_collect_names(authority, &authority->names);
	enum status status = authority_open_keys(authority, &made, error);
	if (!status) {
		certificate_uri(authority->certificate, uri, sizeof uri);
		const size_t prefix = sizeof CERTIFICATE_AUTHORITY_URI - 1;
		snprintf(authority->uri, sizeof authority->uri, CERTIFICATE_SERVER_URI "%s",
			 strlen(uri) > prefix ? uri + prefix : "");
		status = authority_make_server(authority, &authority->server, error);
	}
	if (!status)
		status = authority_open_own(authority, error);
	if (status)
		authority_destroy(out);
	else
		authority_find_reachable(authority);
	return status;
}
