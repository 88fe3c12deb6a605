/* See db.h: what is the same for all drivers, and the choice of one. */
#include "server/store/db.h"

#include "server/store/postgres/driver.h"
#include "server/store/sqlite/driver.h"

enum status db_open(struct db **out, const struct db_params *params, struct error *error)
{
	return params->url ? postgres_open(out, params, error) : sqlite_open(out, params, error);
}

void db_close(struct db **db)
{
	if (*db)
		(*db)->driver->close(*db);
	*db = NULL;
}

enum status db_set_aside(struct db **db, const struct db_params *params, const char *why, struct error *error)
{
	if (params->url)
		return error_set(error, STATUS_UNAVAILABLE, "%s; its tables are left as they are", why);
	return sqlite_set_aside(db, params, why, error);
}

bool db_is_url(const char *text)
{
	return postgres_is_url(text);
}

int64_t db_size(const struct db_params *params)
{
	return params->url ? postgres_size(params) : sqlite_size(params);
}

struct db_value db_value(struct db_statement *row, int column)
{
	struct db_value value = {.type = db_type(row, column)};
	switch (value.type) {
	case DB_NULL:
		break;
	case DB_INTEGER:
		value.integer = db_integer(row, column);
		break;
	case DB_REAL:
		value.real = db_real(row, column);
		break;
	case DB_TEXT:
		value.bytes = db_text(row, column);
		value.length = db_length(row, column);
		break;
	case DB_BYTES:
		value.bytes = db_bytes(row, column);
		value.length = db_length(row, column);
		break;
	}
	return value;
}
