/* See audit_tree.h. */
#include "server/store/audit/audit_tree.h"

#include <string.h>

enum status audit_tree_init(struct audit_tree *tree, struct db *db, struct error *error)
{
	*tree = (struct audit_tree){.count = 0};
	enum status status = db_prepare(db, "SELECT hash FROM audit_nodes WHERE level = ?1 AND place = ?2", &tree->node,
					error);
	if (!status)
		status = db_prepare(db, "SELECT hashes FROM audit_leaves WHERE place = ?1", &tree->leaves, error);
	if (!status)
		status = db_prepare(db, "SELECT seq, leaf FROM audit WHERE seq >= ?1 AND seq < ?2 ORDER BY seq",
				    &tree->rows, error);
	if (status)
		audit_tree_finish(tree);
	return status;
}

void audit_tree_finish(struct audit_tree *tree)
{
	db_finalize(tree->node);
	db_finalize(tree->leaves);
	db_finalize(tree->rows);
	tree->node = tree->leaves = tree->rows = NULL;
}

void audit_tree_forget(struct audit_tree *tree)
{
	tree->count = 0;
}

// From audit_leaves, and what is not there from the entries themselves, as far as they are without a gap.
void audit_tree_load_tile(struct audit_tree *tree, uint64_t place)
{
	tree->place = place;
	tree->count = 0;
	db_bind_integer(tree->leaves, 1, (int64_t)place);
	if (db_step(tree->leaves) == DB_ROW) {
		const void *hashes = db_bytes(tree->leaves, 0);
		size_t bytes = db_length(tree->leaves, 0);
		if (hashes && bytes <= sizeof tree->tile && bytes % TREE_HASH_BYTES == 0) {
			memcpy(tree->tile, hashes, bytes);
			tree->count = bytes / TREE_HASH_BYTES;
		}
	}
	db_reset(tree->leaves);
	if (tree->count == AUDIT_TILE)
		return;
	const uint64_t first = place << AUDIT_TILE_LEVEL;
	db_bind_integer(tree->rows, 1, (int64_t)(first + tree->count));
	db_bind_integer(tree->rows, 2, (int64_t)(first + AUDIT_TILE));
	while (db_step(tree->rows) == DB_ROW && (uint64_t)db_integer(tree->rows, 0) == first + tree->count) {
		const void *leaf = db_bytes(tree->rows, 1);
		if (!leaf || db_length(tree->rows, 1) != TREE_HASH_BYTES)
			break;
		memcpy(&tree->tile[tree->count++], leaf, TREE_HASH_BYTES);
	}
	db_reset(tree->rows);
}

static bool fetch_small(struct audit_tree *tree, struct tree_node *node)
{
	const uint64_t first = node->index << node->level, count = UINT64_C(1) << node->level;
	const uint64_t place = first >> AUDIT_TILE_LEVEL;
	const size_t begin = (size_t)(first & (AUDIT_TILE - 1));
	if (!tree->count || tree->place != place || begin + count > tree->count)
		audit_tree_load_tile(tree, place);
	if (begin + count > tree->count)
		return false;
	struct tree small = {.size = 0};
	for (size_t i = 0; i < count; i++)
		tree_append(&small, &tree->tile[begin + i], NULL, NULL);
	node->hash = small.peaks[0];
	return true;
}

static bool fetch(void *context, struct tree_node *node)
{
	struct audit_tree *tree = context;
	if (node->level < AUDIT_TILE_LEVEL)
		return fetch_small(tree, node);
	db_bind_integer(tree->node, 1, node->level);
	db_bind_integer(tree->node, 2, (int64_t)node->index);
	bool found = db_step(tree->node) == DB_ROW && db_length(tree->node, 0) == TREE_HASH_BYTES;
	if (found)
		memcpy(&node->hash, db_bytes(tree->node, 0), TREE_HASH_BYTES);
	db_reset(tree->node);
	return found;
}

struct tree_source audit_tree_source(struct audit_tree *tree)
{
	return (struct tree_source){.fetch = fetch, .context = tree};
}

enum status audit_tree_at(struct audit_tree *source, uint64_t size, struct tree *tree, struct error *error)
{
	unsigned peaks = 0;
	uint64_t begin = 0;
	*tree = (struct tree){.size = size};
	for (unsigned level = TREE_LEVELS; level-- > 0;) {
		if (!(size >> level & 1))
			continue;
		struct tree_node node = {.level = level, .index = begin >> level};
		if (!fetch(source, &node))
			return error_set(error, STATUS_UNAVAILABLE,
					 "hashes of the audit log's entries from %llu on are missing",
					 (unsigned long long)begin);
		tree->peaks[peaks++] = node.hash;
		begin += UINT64_C(1) << level;
	}
	return STATUS_OK;
}
