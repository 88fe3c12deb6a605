/* All tables of the state and of the history with their columns, for who moves them. A test holds that they are what
 * the migrations of every driver make. Pure. Thread: any. Inside server/store only. */
#pragma once
#include "server/store/store.h"

struct store_table {
	const char *name, *columns; // with ", " between
	int count;                  // of columns
	const char *order;          // the column by which its rows are in the order in which they were put; NULL: none
};
enum { STORE_TABLES = 23 };
extern const struct store_table store_tables[STORE_TABLES]; // what is referred to comes first

struct store_series {                    // a kind of series of the history
	const char *names, *id, *number; // the table of its names, and its columns
	struct store_table minutes;      // the first column is `number`
};
extern const struct store_series store_series[STORE_KINDS];
