/* See server/store/postgres/answer.h. */
#include "server/store/postgres/answer.h"

#include <stdlib.h>
#include <string.h>

bool answer_get(struct postgres *db, const char *sql, struct answer *answer)
{
	*answer = (struct answer){.result = postgres_query(db, sql), .db = db};
	return answer->result != NULL;
}

const char *answer_text(const struct answer *answer, int row, int column)
{
	return answer->db->pq->PQgetvalue(answer->result, row, column);
}

int64_t answer_number(const struct answer *answer, int row, int column)
{
	return strtoll(answer_text(answer, row, column), NULL, 10);
}

int answer_rows(const struct answer *answer)
{
	return answer->db->pq->PQntuples(answer->result);
}

void answer_done(struct answer *answer)
{
	if (answer->result)
		answer->db->pq->PQclear(answer->result);
	answer->result = NULL;
}

bool answer_run(struct postgres *db, const char *sql)
{
	struct answer answer;
	const bool good = answer_get(db, sql, &answer);
	answer_done(&answer);
	return good;
}

bool answer_changes_one(struct postgres *db, const char *sql, bool *answered)
{
	struct answer answer;
	*answered = answer_get(db, sql, &answer);
	const char *tag = *answered ? db->pq->PQcmdStatus(answer.result) : "";
	const size_t length = strlen(tag);
	const bool one = length > 2 && !strcmp(tag + length - 2, " 1");
	answer_done(&answer);
	return one;
}
