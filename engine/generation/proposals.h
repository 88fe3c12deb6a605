/* Which tokens a request may go on with, by its own text: where its last tokens stood before, what followed them then
 * is proposed. A step that has rows for proposed tokens tells for each of them whether it would have been chosen, so
 * one step may give several tokens (generator.h).
 *
 * Proposals are followed whether or not they go into a step: each token that comes shows whether the one that was
 * foreseen was right. The share of right ones, by how long a part of the text agrees, says how many are worth their
 * rows. So a text that does not repeat itself is found out without rows. What is spent on rows in vain is bounded, too:
 * a request has a credit of a fortieth of its steps, and of what accepted tokens have saved. The decision depends on
 * the text and the prices of rows alone. Pure. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
	PROPOSALS_MOST = 15,                 // in a step, of one request
	PROPOSALS_LEAST = 2,                 // tokens that must agree
	PROPOSALS_LONG = 16,                 // tokens that are compared at most
	PROPOSALS_BACK = 16384,              // tokens of the text that are searched, the newest
	PROPOSALS_ROWS = PROPOSALS_MOST + 1, // of a step, with the others' rows
	PROPOSALS_KINDS = 4
};

// The time of a step of `rows` rows, in units of a step of one row: of[rows - 1]. A step whose first layers are on
// other machines takes a round trip through the network besides computing. The round trip hardly grows with the rows,
// so the longer it takes, the cheaper is a further row.
enum { ROW_TIMES = 5 }; // of 1, 2, 4, 8 and 16 rows
struct row_prices {
	float of[PROPOSALS_ROWS];
	double computed[ROW_TIMES], network[ROW_TIMES]; // seconds
	uint32_t trips[ROW_TIMES];                      // round trips that were measured; 0: `network` is not known
};
// From the times that computing takes in steps of 1, 2, 4, 8 and 16 rows; a time of 0 is not known. Forgets all round
// trips.
void row_prices_set(struct row_prices *prices, const double times[ROW_TIMES]);
// A step of so many rows, while no other one was in flight, took so many seconds from sending to return, without the
// time in the parts elsewhere.
void row_prices_trip(struct row_prices *prices, uint32_t rows, double seconds);

struct proposals {
	uint32_t next;                // where in the text the foreseen token is; 0: none is foreseen
	uint32_t agreed;              // tokens before it that are as the last of the text
	float right[PROPOSALS_KINDS]; // the share of foreseen tokens that were right, by `agreed`
	float credit;                 // steps that may be lost
};
void proposals_init(struct proposals *proposals);
// The text's last token, tokens[count - 1], has come.
void proposals_follow(struct proposals *proposals, const uint32_t *tokens, uint32_t count);
// The share that so many proposals add to the time of a step of `rows` rows.
float proposals_price(const struct row_prices *prices, uint32_t rows, uint32_t count);
// A step with rows for proposals of this price, or of none, is back; the credit grows by one for each further token
// that it gave.
void proposals_settle(struct proposals *proposals, float price);
// How many tokens to propose, at most `most`, in a step that has `rows` rows without them, each of which gives a token.
// They are tokens[next], tokens[next + 1] ...; where these reach the end of the text they go on with the proposals.
uint32_t proposals_count(struct proposals *proposals, const uint32_t *tokens, uint32_t count, uint32_t most,
			 uint32_t rows, const struct row_prices *prices);
// Where in the text the longest part stands that agrees with its end, the newest of equals: the index of the token
// behind it. 0: none agrees by PROPOSALS_LEAST tokens. *agreed: by how many, at most PROPOSALS_LONG.
uint32_t proposals_find(const uint32_t *tokens, uint32_t count, uint32_t *agreed);
