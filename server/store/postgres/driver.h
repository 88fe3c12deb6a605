/* PostgreSQL as the store's database: schemas exogpu and exogpu_history of the database that a URL names. See db.h.
 * Inside server/store only. */
#pragma once
#include "server/store/db.h"

bool postgres_is_url(const char *url);
// STATUS_CONFLICT, with who has it: another server writes to this database.
enum status postgres_open(struct db **out, const struct db_params *params, struct error *error);
int64_t postgres_size(const struct db_params *params);
