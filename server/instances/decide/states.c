/* See states.h. */
#include "server/instances/decide/states.h"

// Row: from; column: to.
static const bool may[INSTANCE_STATES][INSTANCE_STATES] = {
	[INSTANCE_STARTING] = {[INSTANCE_LOADING] = true,
			       [INSTANCE_PAUSED] = true, // it was restored at the start of the server
			       [INSTANCE_STOPPING] = true,
			       [INSTANCE_FAILED] = true},
	[INSTANCE_LOADING] =
		{[INSTANCE_RUNNING] = true,
		 [INSTANCE_PAUSED] = true, // its parts were ready, and a node was cut off before that was told
		 [INSTANCE_STOPPING] = true,
		 [INSTANCE_FAILED] = true},
	[INSTANCE_RUNNING] =
		{[INSTANCE_PAUSED] = true, [INSTANCE_STOPPING] = true, [INSTANCE_FAILED] = true}, // its worker has died
												  // too often
	[INSTANCE_PAUSED] = {[INSTANCE_RUNNING] = true, [INSTANCE_STOPPING] = true, [INSTANCE_FAILED] = true},
	[INSTANCE_STOPPING] =
		{[INSTANCE_PAUSED] = true}, // it was unloaded for another, and waits for that one's outcome
	[INSTANCE_FAILED] = {[INSTANCE_STOPPING] = true},
};

bool instance_state_may(enum instance_state from, enum instance_state to)
{
	return (unsigned)from < INSTANCE_STATES && (unsigned)to < INSTANCE_STATES && may[from][to];
}

const char *instance_state_name(enum instance_state state)
{
	switch (state) {
	case INSTANCE_STARTING:
	case INSTANCE_LOADING:
		return "starting";
	case INSTANCE_RUNNING:
		return "running";
	case INSTANCE_PAUSED:
		return "paused";
	case INSTANCE_STOPPING:
		return "stopping";
	case INSTANCE_FAILED:
		return "failed";
	}
	return "";
}
