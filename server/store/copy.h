/* A store moved as a whole, from a data directory's files into a PostgreSQL or back: every table of state and history,
 * as it was at one moment, in one transaction at the target. The audit log is then verified there, with the archives,
 * and must end with the same signed head. The log's keys and archives are files of the data directory in both cases,
 * and stay where they are. Nothing is changed at the source. Thread: any; no server may run on either. */
#pragma once
#include "common/base/status.h"

#include <stdint.h>

struct store_copy_params {
	const char *from, *to; // a directory with state.db, or postgres://…
	const char *data;      // the data directory whose audit/ belongs to the log
};
struct store_copied {
	int64_t rows, minutes; // of the state, of the history
	uint64_t entries;      // of the audit log, that were verified
};
// Errors: STATUS_CONFLICT (the target holds something already; a server has one of them; the source is of another
// version, or does not verify), STATUS_NOT_FOUND (there is no source), those of opening either; all with hints. Unless
// it returns STATUS_OK the target is as it was, or empty.
enum status store_copy(const struct store_copy_params *params, struct store_copied *copied, struct error *error);
