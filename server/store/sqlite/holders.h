/* Which other programs have a database open, and whether that is dangerous with the installed SQLite.
 * SQLite from 3.7.0 to 3.51.2 (except 3.44.6, 3.50.7 and later ones of these series) may corrupt a WAL
 * database that two connections write or checkpoint at the same moment. This program has one such
 * connection (server/store/inside.h), so only another program can be the second. Inside server/store
 * only. */
#pragma once
#include <stdbool.h>

// Whether a library of that number (SQLITE_VERSION_NUMBER's form) has the fault. A distribution may have mended its own
// without another number; that cannot be seen.
bool holders_matter(int version);
// The process that has the database at `path` open, by the locks that SQLite keeps while it does; 0: nobody, or
// somebody who has not read it yet; -1: somebody in another process namespace. Only before this process opens it:
// closing a file gives up all locks that the process has on it.
int holders_find(const char *path);
// Say it once, in the log, if somebody has it open and that matters. As holders_find.
void holders_warn(const char *path);
