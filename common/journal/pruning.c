/* See pruning.h. */
#include "common/journal/pruning.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ACTION "audit.prune"

void pruning_print(const struct pruning *pruning, char text[PRUNING_TEXT_BYTES])
{
	snprintf(text, PRUNING_TEXT_BYTES, "%" PRIu64 " of the entries %" PRIu64 " to %" PRIu64, pruning->removed,
		 pruning->first, pruning->last);
}

bool pruning_parse(struct pruning *pruning, const struct journal_entry *entry)
{
	char again[PRUNING_TEXT_BYTES];
	if (strcmp(entry->action, ACTION) != 0 || strcmp(entry->actor, "server") != 0 ||
	    strcmp(entry->outcome, "ok") != 0 ||
	    sscanf(entry->target, "%" SCNu64 " of the entries %" SCNu64 " to %" SCNu64, &pruning->removed,
		   &pruning->first, &pruning->last) != 3)
		return false;
	pruning_print(pruning, again); // no other way to write these numbers
	return !strcmp(again, entry->target) && pruning->first <= pruning->last && pruning->last < entry->seq &&
	       pruning->removed && pruning->removed <= pruning->last - pruning->first + 1;
}

bool pruning_keeps(const struct journal_entry *entry)
{
	return !strcmp(entry->action, ACTION);
}
