/* When certificates end, for the rules of alerts. See authority.h. Thread: the loop's. */
#include "server/security/certificates/authority_inside.h"

void authority_each_end(const struct authority *authority, void (*each)(void *context, const struct authority_end *end),
			void *context)
{
	const struct {
		const char *kind;
		const struct certificate_facts *facts;
		bool used;
	} shown[] = {{"authority", &authority->facts, authority->certificate != NULL},
		     {"server", &authority->server.facts, authority->server.certificate != NULL},
		     {"own", &authority->own.facts, authority->own.certificate != NULL}};
	for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
		const struct authority_end end = {.kind = shown[i].kind,
						  .serial = shown[i].facts->serial,
						  .subject = shown[i].facts->subject,
						  .not_after_ms = shown[i].facts->not_after_ms};
		if (shown[i].used)
			each(context, &end);
	}
	for (size_t i = 0; i < authority->node_count; i++) {
		const struct node_certificate *node = &authority->nodes[i];
		const struct authority_end end = {.kind = "node",
						  .serial = node->serial,
						  .subject = node->node_id,
						  .node_id = node->node_id,
						  .not_after_ms = node->not_after_ms};
		if (!node->revoked_ms && !node->issuing)
			each(context, &end);
	}
}
