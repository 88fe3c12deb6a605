/* The audit log's tree in state.db. Each complete subtree of 256 leaves and more has a
 * row in audit_nodes. Smaller ones are hashed from their leaves when needed: leaves of
 * present entries are beside them, those of archived ones in audit_leaves. So an entry
 * costs its leaf and 0.4 bytes, one inserted row in 128 entries, and a proof reads two
 * rows of leaves and a few nodes. Thread: that of its connection. Inside server/store
 * only. */
#pragma once
#include "common/journal/tree.h"
#include "server/store/db.h"

enum { AUDIT_TILE_LEVEL = 8, AUDIT_TILE = 1 << AUDIT_TILE_LEVEL }; // leaves of a row of audit_leaves

struct audit_tree {
	struct db_statement *node, *leaves, *rows;
	uint64_t place; // of the tile that is in memory; valid while `count` is not 0
	size_t count;   // of its leaves, from the first
	struct tree_hash tile[AUDIT_TILE];
};
// Errors: db_fault's.
enum status audit_tree_init(struct audit_tree *tree, struct db *db, struct error *error);
void audit_tree_finish(struct audit_tree *tree);
// Forget what is in memory: rows may have changed.
void audit_tree_forget(struct audit_tree *tree);
// For proofs.
struct tree_source audit_tree_source(struct audit_tree *tree);
// The leaves of tile `place` that are known, from its first: tree->tile and tree->count.
void audit_tree_load_tile(struct audit_tree *tree, uint64_t place);
// The tree of the first `size` leaves. Errors: STATUS_UNAVAILABLE (a hash that it needs is not there).
enum status audit_tree_at(struct audit_tree *source, uint64_t size, struct tree *tree, struct error *error);
