/* Spot checks of parts in browsers (parts_spot.c). Thread: the loop's. */
#pragma once
#include "server/instances/parts/parts_inside.h"

struct spot;

// All hops are connected and checked: what passes the tab is looked at from now on. Nothing for other parts.
void parts_spot_begin(struct part *part);
// A hop is broken, or the parts end: what is being checked is given up.
void parts_spot_end(struct part *part);
