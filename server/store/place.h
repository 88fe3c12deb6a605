/* Where the tables of a data directory are: DIRECTORY/store holds the URL of a database, once one was used, so that
 * every command and every later start finds the same one, and none begins with tables of before. Without that file
 * they are in the directory itself. A URL has no password. Thread: any. Inside server/store only. */
#pragma once
#include "common/base/status.h"

enum { PLACE_BYTES = 1024 };
// url: "" where there is no such file. Errors: STATUS_UNAVAILABLE, STATUS_INVALID_PARAMS (it holds something else).
enum status place_read(const char *directory, char url[PLACE_BYTES], struct error *error);
// url NULL: the tables are in the directory from now on. On disk when this returns.
enum status place_write(const char *directory, const char *url, struct error *error);
