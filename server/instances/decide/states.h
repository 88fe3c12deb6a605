/* The states of an instance, and which may follow which: the table against which instance_change (instances_state.c)
 * checks every change. It includes nothing of the server, so that tests can try every pair. Thread: any. */
#pragma once
#include <stdbool.h>

enum instance_state {
	INSTANCE_STARTING, // it has a place, and its workers are asked for; each instance begins so
	INSTANCE_LOADING,  // bytes of the model are fetched or loaded
	INSTANCE_RUNNING,  // all parts are ready: it answers requests
	INSTANCE_PAUSED,   // something of it is lost or in the wrong place: it is mended or placed again, and requests
			   // wait
	INSTANCE_STOPPING, // its workers end; what follows is its removal, or that it waits for the one it was
			   // evicted for
	INSTANCE_FAILED    // for good: it is listed with the reason until somebody removes it
};

enum { INSTANCE_STATES = INSTANCE_FAILED + 1 };

// Whether an instance in the state `from` may get the state `to`. False where they are the same.
bool instance_state_may(enum instance_state from, enum instance_state to);
// The name in the API. "starting" is that of two states: the field "progress" tells them apart.
const char *instance_state_name(enum instance_state state);
