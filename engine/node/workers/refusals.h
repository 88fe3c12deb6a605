/* Refuses and logs system calls that are not on a worker's list.
 *
 * A worker sends the supervisor's end of its filter with the answer to worker.open or worker.instance, before it has
 * touched a driver or a tenant's code. A later descriptor, or one of another kind, is closed unused. The kernel, not
 * the worker, writes what is read from it: the number of a call. The answer is always EPERM. Each call is logged once
 * in the life of the node; after REFUSALS_OF_WORKER calls of one worker its end is closed, and the kernel then answers
 * ENOSYS, so that a worker in a loop costs the node nothing. Thread: the loop's; refusals_receive and refusals_answer:
 * any. */
#pragma once
#include "common/net/loop.h"
#include "engine/device/info.h"

#include <sys/types.h>

struct refusals;

enum { REFUSALS_OF_WORKER = 256 };

// `listener` is taken. NULL where there is no memory: then the kernel refuses.
void refusals_create(struct refusals **out, struct net_loop *loop, int listener, enum backend_kind backend);
void refusals_destroy(struct refusals **refusals);

// Like recv; *passed: the supervisor's end of a filter that came with it, or -1. With `size` 0 the message is only
// looked at, and stays.
ssize_t refusals_receive(int socket, uint8_t *bytes, size_t size, int *passed);

// Wait for one call and refuse it: its number; REFUSALS_NONE: it has ended meanwhile; REFUSALS_ENDED: so has the
// worker, or this is no such descriptor.
enum { REFUSALS_NONE = -1, REFUSALS_ENDED = -2 };
int refusals_answer(int listener);
