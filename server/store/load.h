/* How rows of state.db are read at the start: load.c and load_measured.c. */
#pragma once
#include "server/store/audit/bound.h"
#include "server/store/inside.h"

struct load {
	struct store *store;
	const char *sql;
	bool binds; // its first columns are those of bound_tables[kind], and rows that do not hold are refused
	enum bound_kind kind;
	int64_t limit; // bound to ?1 where the statement has one
	void (*row)(struct db_statement *statement, const struct load *load);
	union { // the caller's
		void (*node)(void *context, const struct store_node *node);
		void (*device)(void *context, const struct store_device *device);
		void (*token)(void *context, const struct store_token *token);
		void (*change)(void *context, const struct store_change *change);
		void (*certificate)(void *context, const struct store_certificate *certificate);
		void (*ticket)(void *context, const struct store_ticket *ticket);
		void (*lend)(void *context, const struct store_lend *lend);
		void (*tab)(void *context, const struct store_tab *tab);
		void (*model)(void *context, const struct store_model *model);
		void (*instance)(void *context, const struct store_instance *instance);
		void (*link)(void *context, const struct store_link *link);
		void (*layer_time)(void *context, const struct store_layer_time *time);
		void (*alert)(void *context, const struct store_alert *alert);
		void (*usage)(void *context, const struct store_usage *usage);
		void (*channel)(void *context, const struct store_channel *channel);
		void (*delivery)(void *context, const struct store_delivery *delivery);
		void (*conversation)(void *context, const struct store_conversation *conversation);
	} call;
	void *context;
};

// Hand each row to load->row. Errors: the database's.
enum status load_rows(struct store *store, const struct load *load, struct error *error);
