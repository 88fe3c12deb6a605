/* Functions that the commands of the audit log share. Thread: the process's only one. */
#pragma once
#include "server/cli/commands/commands.h"
#include "server/cli/pins.h"

// --from and --to: a time (RFC 3339), a date (its beginning, UTC), or how long ago ("24h"). 0 where text is NULL.
enum status audit_time(const char *option, const char *text, int64_t *ms, struct error *error);
// Compare the server's head with the one that this user saw last, and remember it. 0, or the verdict to exit with and
// *error; where nothing can be remembered, a line on standard error.
int audit_compare_pin(struct client *client, const struct target *target, struct error *error);
const char *audit_verdict_text(enum journal_verdict verdict);
