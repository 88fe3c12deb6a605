/* See bottleneck.h. */
#include "server/instances/decide/bottleneck.h"

static bool same(struct bottleneck one, struct bottleneck other)
{
	return one.kind == other.kind && one.stage == other.stage;
}

struct bottleneck bottleneck_settle(struct bottleneck_shown *shown, struct bottleneck called_for)
{
	if (!shown->known || same(called_for, shown->now)) {
		*shown = (struct bottleneck_shown){.now = called_for, .known = true};
		return called_for;
	}
	shown->times = shown->times && same(called_for, shown->next) ? shown->times + 1 : 1;
	shown->next = called_for;
	if (shown->times >= BOTTLENECK_REPORTS)
		*shown = (struct bottleneck_shown){.now = called_for, .known = true};
	return shown->now;
}

const char *bottleneck_name(enum bottleneck_kind kind)
{
	switch (kind) {
	case BOTTLENECK_NONE:
		return "none";
	case BOTTLENECK_STAGE:
		return "stage";
	case BOTTLENECK_WAIT:
		return "wait";
	case BOTTLENECK_HOPS:
		return "hops";
	}
	return "none";
}
