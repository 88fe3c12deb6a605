/* The suite that the stages of every back end pass alike (engine/stage.h), against the reference in double precision.
 *
 * A back end's test is a program of one call, as for the conformance suite: stage_conformance_run("cpu"). Every test
 * gets a device that was opened for it, and makes its own models, of every format, family and kind of shape. How far
 * numbers may be from the reference is worked out for each model and text: by what the coarsest roundings that a stage
 * is allowed do to them (tests/engine/model/reference.h), times three for the worst number, since another rounding errs
 * elsewhere, and times two and a half for a row's root mean square. */
#pragma once
#include "engine/stage.h"
#include "tests/engine/conformance/conformance.h"
#include "tests/engine/model/reference.h"
#include "tests/tools/model_file.h"

// clang-format off
#define STAGE_TESTS(X)                                                                                      \
	X(stage_formats) X(stage_mixed) X(stage_pairs) X(stage_experts) X(stage_experts_turns)              \
	X(stage_shapes)                                                                             \
	X(stage_widths) X(stage_wide) X(stage_positions) X(stage_large) X(stage_chunks)             \
	X(stage_long) X(stage_batch)                                                                \
	X(stage_many) X(stage_ranges) X(stage_host_layers) X(stage_outputs) X(stage_equals) X(stage_candidates) \
	X(stage_no_numbers) X(stage_zeroed) X(stage_repeats) X(stage_loading)                       \
	X(stage_loading_fails) X(stage_refusals) X(stage_slices) X(stage_slices_repeat)             \
	X(stage_slices_ranges) X(stage_slices_memory) X(stage_slices_refusals)          \
	X(stage_states) X(stage_architectures) X(stage_narrow) X(stage_timed)                       \
	X(stage_experts_many) X(stage_alike) X(stage_encoders) X(stage_ranks)                    \
	X(stage_pages) X(stage_pages_bytes) X(stage_pages_between)
// clang-format on
#define X(name) void test_##name(void **state);
STAGE_TESTS(X)
#undef X

// The whole program. 77 where the back end has no device here.
int stage_conformance_run(const char *backend);

// ---- what the tests are written with; a fault fails the test ----

enum { STAGE_TEST_PAGES = 40, STAGE_TEST_ROWS = 256, STAGE_TEST_SEQUENCES = 72 };

// A model and where its weights are asked for.
struct staged {
	struct conformance *c;
	struct model_file_open file;
	const struct model_shape *shape;
	struct reference *reference;
	float *rope;
	uint8_t *lent;                  // the bytes of the last tensor: gone with the next
	unsigned asked[16][ROLE_COUNT]; // how often, of each layer
	uint32_t last_layer;            // that was asked for, with whether they came in order
	bool in_order;
	uint64_t asked_bytes, told_bytes; // in all; by progress
	unsigned fail_at;                 // the so manieth tensor is refused
	bool fail_progress;
	uint32_t slices; // in how many staged_create makes a stage, all on the device; 0: whole
};
void staged_open(struct staged *staged, struct conformance *c, const struct model_file *file);
void staged_close(struct staged *staged);
// For the whole model, with room for all that the tests do; for one stage.
struct stage_params staged_params(struct staged *staged);
struct stage *staged_create(struct staged *staged);
// Whether this back end computes with rows of this model's lengths; if not, that it says so.
bool staged_fits(struct staged *staged);
// Whether this back end makes stages in slices; if not, that it says so.
bool staged_slices(struct staged *staged);

// Whether the tests take a part of their cases: where a processor stands for a GPU, and with a sanitizer, all of them
// take minutes. Each value of a dimension (formats, families, scalings, sizes of a step) is then tried with some values
// of the others, but for EXOGPU_TEST_ALL=1. The plain build tries all of them with the processor's own stages.
bool stage_tests_are_brief(const struct conformance *c);

// Tokens of a text that no other seed has.
void make_text(uint32_t *tokens, uint32_t count, uint32_t vocabulary, uint32_t seed);

enum expected_kind { EXPECTED_ACTIVATIONS, EXPECTED_HIDDEN, EXPECTED_LOGITS, EXPECTED_KINDS };
struct expected {
	struct reference_result exact;
	uint32_t columns[EXPECTED_KINDS];
	double most[EXPECTED_KINDS], rms[EXPECTED_KINDS]; // that a number, and a row, may be off
};
// `run` without a rounding.
void expect(struct expected *expected, const struct staged *staged, const struct reference_run *run);
void expected_finish(struct expected *expected);
// One row (columns of the kind) against the expected row.
void check_row(const struct expected *expected, enum expected_kind kind, uint32_t row, const float *got,
	       const char *what);

// New tokens of one sequence, and everything that is known of them after a step.
struct stage_job {
	const uint32_t *tokens; // of the sequence, from its beginning
	uint32_t position, count;
	const uint32_t *pages;
};
struct stage_answer {
	uint32_t rows;
	float *logits, *hidden;
	uint32_t *argmax;
};
void answer_finish(struct stage_answer *answer);
// Outputs of all rows.
void step(const struct staged *staged, struct stage *stage, const struct stage_job *jobs, uint32_t count,
	  struct stage_answer *answer);
// Rows of an answer from `first` on against those of the sequence from `position` on: logits, hidden, argmax.
void check_answer(const struct expected *expected, const struct stage_answer *answer, uint32_t first, uint32_t position,
		  uint32_t count, const char *what);
// Both of the above, of one job.
void step_and_check(const struct staged *staged, struct stage *stage, const struct expected *expected,
		    const struct stage_job *job, const char *what);
