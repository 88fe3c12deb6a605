/* Decides what happens to a request to a model: a pure function of the instances of the model and of the results of
 * earlier loads.
 *
 * The rules are a table in question.c; the first that applies decides, as in decide.h. requests/requests_choose.c
 * gathers the facts and carries out the decision. Nothing here reads a clock or allocates. Thread: any. */
#pragma once
#include "common/base/status.h"
#include "server/instances/decide/states.h"

#include <stddef.h>
#include <stdint.h>

// For so long after a failed load, or a search that ended without a proof, requests get its error. Then one of them
// starts a new try.
enum { QUESTION_AGAIN_MS = 60000 };
#define QUESTION_UNLIKE_TIMES 1.25 // instances whose rates differ by less count as equally fast

// An instance of the model.
struct question_instance {
	enum instance_state instance_state;
	const char *reason;     // state_reason
	bool holds_model;       // as its file is now; false: it has failed, or the file was removed
	bool requests_wait;     // paused: for it
	bool draining;          // a device that it is on is
	bool stays;             // there is no other place for it, as the last search says
	bool particular;        // created with more than the model: pins, a context, a template
	int64_t failed_ms;      // 0: it has not, or not since the server began
	unsigned request_count; // running and waiting
	double rate;            // tokens a second of one request where it runs; <= 0: not known
};

// Whether there is more memory than when no place was found for the model: free, or held by what may be evicted.
enum question_room { ROOM_NOT_LOOKED, ROOM_SAME, ROOM_MORE };

struct question_seen {
	const char *model_name;
	const struct question_instance *instances; // (count), oldest first
	unsigned count;
	bool ending;   // the server is
	bool loads;    // requests may have models loaded
	bool ready;    // the model's file can be loaded
	bool admin;    // who asks
	bool sees_why; // who asks may know reasons, which name devices and machines
	bool begun;    // an earlier request has the model loaded, and there is no instance yet
	// The error of the last search, if it found no place for the model; NULL: none.
	const struct error *nowhere;
	bool nowhere_proven;
	int64_t nowhere_ms;
	enum question_room room;
};

enum question_action {
	QUESTION_JOINS, // the request joins `instance`
	QUESTION_WAITS, // with the earlier request that has the model loaded
	QUESTION_LOADS, // it has the model loaded
	QUESTION_LOOKS, // find out `room`, then decide again
	QUESTION_REFUSED
};

struct question_decision {
	enum question_action action;
	const char *rule;  // by its name in the table
	unsigned instance; // of QUESTION_JOINS: its number in the list
};

// `error` is filled for QUESTION_REFUSED: STATUS_UNAVAILABLE, or what `nowhere` has.
void question_decide(struct question_decision *out, const struct question_seen *seen, int64_t now_ms,
		     struct error *error);
const char *question_rule_name(unsigned index); // in their order; NULL: there are no more

// The line of an instance, as one more request sees it.
struct question_line {
	unsigned request_count, own_count; // of all; of the same token
	size_t line_tokens, given_tokens;  // of prompts given as tokens: of the waiting ones; of this one
	int64_t line_tokens_most;
	uint32_t context_tokens; // that the model has room for
};
// Whether the request may join. Errors: STATUS_RATE_LIMITED (the line is full, or the token has its share of it),
// STATUS_LIMIT_EXCEEDED (the prompt is too long).
enum status question_admit(const struct question_line *line, struct error *error);
