/* What a collector answers to a batch of spans that it takes (OTLP's ExportTraceServiceResponse, in JSON): that it
 * rejects some of them all the same, or has something to say. Pure. Thread: any. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct partial {
	uint64_t rejected;
	char message[256]; // for a person: one line, without control characters; may be ""
};
// False: everything was taken, and nothing said. What is no such answer counts as that.
bool partial_read(const char *text, size_t length, struct partial *out);
