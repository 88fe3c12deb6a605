/* SQLite as the store's database: state.db and history.db in the data directory. See db.h. Inside server/store only. */
#pragma once
#include "server/store/db.h"

enum status sqlite_open(struct db **out, const struct db_params *params, struct error *error);
enum status sqlite_set_aside(struct db **db, const struct db_params *params, const char *why, struct error *error);
int64_t sqlite_size(const struct db_params *params);
