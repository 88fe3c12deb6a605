/* Answers of PostgreSQL to SQL that is run at once. Inside server/store/postgres only. */
#pragma once
#include "server/store/postgres/inside.h"

struct answer {
	struct pg_result *result;
	const struct postgres *db;
};

// False: it failed, and db->trouble says why. answer_done frees it in either case.
bool answer_get(struct postgres *db, const char *sql, struct answer *answer);
int answer_rows(const struct answer *answer);
const char *answer_text(const struct answer *answer, int row, int column); // until answer_done; "" for NULL
int64_t answer_number(const struct answer *answer, int row, int column);   // 0 if it is none
void answer_done(struct answer *answer);

bool answer_run(struct postgres *db, const char *sql); // what it answers does not matter
// Whether a change by `sql` has met one row. *answered: it was run.
bool answer_changes_one(struct postgres *db, const char *sql, bool *answered);
