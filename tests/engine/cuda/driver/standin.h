/* The two files of the stand-in, as they share it. */
#pragma once
#include "tests/engine/cuda/driver/driver.h"

enum { STANDIN_USES = 64 };
enum { INVALID_VALUE = 1, OUT_OF_RESOURCES = 701 };

enum op_kind { COPY, FILL, CALL, KERNEL, WAIT };
struct op {
	struct op *next;
	enum op_kind kind;
	uint64_t to, from, bytes, count;
	uint32_t value, width;
	uint8_t *kept; // of a copy from memory that may change at once
	void (*function)(void *);
	void *context;
	const void *module, *graph;
	CUstream other;
	uint64_t other_place;
	uint32_t use_count;
	uint64_t uses[STANDIN_USES];
};

struct CUstream_st {
	struct CUstream_st *next;
	struct op *first, **last;
	uint64_t enqueued, done;
	bool asked, capturing;
	struct op *captured, **captured_last;
	int device;
	double ns; // that the work it was given takes
};

// Behind what the stream has, or into what it captures. A copy of it.
struct op *standin_enqueue(CUstream stream, const struct op *work);
void standin_ops_free(struct op *op);
// The memory there; NULL, and noted, if it is not of one piece.
uint8_t *standin_place(uint64_t address, uint64_t bytes, const char *call);
// Note that work of this kernel uses the memory there, if it is an address.
void standin_note_use(struct op *op, uint64_t address, const char *kernel);
// Whether pending work is of this module, or graph.
bool standin_in_use(const void *what);
// False, and noted, if one is under way.
bool standin_capture_allows(const char *call);
int standin_most_shared(void); // bytes of a block
void standin_fill_launches(struct cuda *driver);
