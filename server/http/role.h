/* The role of one of several servers, as /healthz tells it. Thread: any. */
#pragma once
#include "common/base/buffer.h"
#include "server/store/turn.h"

// As members of a JSON object, behind others: `,"role":"follower","since":…,"leader":"https://…","behind_ms":250`.
void role_print(const struct turn *turn, struct buffer *out);
