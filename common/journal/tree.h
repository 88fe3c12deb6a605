/* The Merkle tree of RFC 6962 (section 2.1): a leaf is SHA-256(0 || bytes), a node SHA-256(1 ||
 * left || right). Only the roots of complete subtrees are kept in memory, the largest first. A
 * proof needs inner nodes of the past; their owner (server/store keeps those of complete
 * subtrees) supplies them by callback. Proofs are checked without trusting their source. Pure.
 * Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { TREE_HASH_BYTES = 32, TREE_LEVELS = 64, TREE_PROOF_HASHES = 2 * TREE_LEVELS };

struct tree_hash {
	uint8_t bytes[TREE_HASH_BYTES];
};

struct tree {
	uint64_t size;                       // leaves
	struct tree_hash peaks[TREE_LEVELS]; // one for each bit of size that is set, the highest first
};

// The root of the complete subtree of 2^level leaves that begins at leaf index << level; index counts such subtrees.
struct tree_node {
	unsigned level;
	uint64_t index;
	struct tree_hash hash;
};

void tree_hash_leaf(const void *bytes, size_t length, struct tree_hash *leaf);
// Add a leaf. `made` (may be NULL) is told every subtree that is complete with it, the leaf itself (level 0) first.
void tree_append(struct tree *tree, const struct tree_hash *leaf,
		 void (*made)(void *context, const struct tree_node *node), void *context);
// The root of an empty tree: SHA-256 of nothing.
void tree_root(const struct tree *tree, struct tree_hash *root);
unsigned tree_peaks(uint64_t size); // how many peaks a tree of that size has

// Fetches a complete subtree's root by level and index; false: it is not known.
struct tree_source {
	bool (*fetch)(void *context, struct tree_node *node);
	void *context;
};
struct tree_proof {
	size_t count;
	struct tree_hash hashes[TREE_PROOF_HASHES];
};
// Errors: STATUS_INVALID_PARAMS (index or size out of range), STATUS_NOT_FOUND (the source lacks a node).
enum status tree_prove_inclusion(const struct tree_source *source, uint64_t index, uint64_t size,
				 struct tree_proof *proof, struct error *error);
enum status tree_prove_consistency(const struct tree_source *source, uint64_t from, uint64_t to,
				   struct tree_proof *proof, struct error *error);
// Whether the tree of `size` leaves with this root has `leaf` at `index`.
bool tree_check_inclusion(const struct tree_hash *leaf, uint64_t index, uint64_t size, const struct tree_hash *root,
			  const struct tree_proof *proof);
// Whether the tree of `to` leaves continues the one of `from` leaves. from == 0: always; from == to: the same root and
// an empty proof.
bool tree_check_consistency(uint64_t from, const struct tree_hash *from_root, uint64_t to,
			    const struct tree_hash *to_root, const struct tree_proof *proof);
