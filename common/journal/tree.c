/* See tree.h. Each thread creates OpenSSL's context once and reuses it,
 * because finding the algorithm costs more than hashing an entry. Hashing
 * can fail only if that first allocation fails. Then the program ends: the
 * caller is about to record what happened and must not continue without a
 * record. */
#include "common/journal/tree.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAF_PREFIX = 0, NODE_PREFIX = 1 };

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static _Noreturn void give_up(void)
{
	fputs("exogpu: no memory to hash with\n", stderr);
	abort();
}

static void free_context(void *context)
{
	EVP_MD_CTX_free(context);
}

static void make_key(void)
{
	if (pthread_key_create(&key, free_context))
		give_up();
}

static EVP_MD_CTX *thread_context(void)
{
	pthread_once(&key_once, make_key);
	EVP_MD_CTX *context = pthread_getspecific(key);
	if (context)
		return context;
	context = EVP_MD_CTX_new();
	if (!context || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 || pthread_setspecific(key, context))
		give_up();
	return context;
}

static void hash(uint8_t prefix, const void *bytes, size_t length, struct tree_hash *out)
{
	EVP_MD_CTX *context = thread_context();
	unsigned written = 0;
	if (EVP_DigestInit_ex(context, NULL, NULL) != 1 || EVP_DigestUpdate(context, &prefix, 1) != 1 ||
	    EVP_DigestUpdate(context, bytes, length) != 1 || EVP_DigestFinal_ex(context, out->bytes, &written) != 1 ||
	    written != TREE_HASH_BYTES)
		give_up();
}

// out may be left or right.
static void hash_pair(const struct tree_hash *left, const struct tree_hash *right, struct tree_hash *out)
{
	const struct tree_hash pair[2] = {*left, *right};
	hash(NODE_PREFIX, pair, sizeof(pair), out);
}

void tree_hash_leaf(const void *bytes, size_t length, struct tree_hash *leaf)
{
	hash(LEAF_PREFIX, bytes, length, leaf);
}

unsigned tree_peaks(uint64_t size)
{
	return (unsigned)__builtin_popcountll(size);
}

void tree_append(struct tree *tree, const struct tree_hash *leaf,
		 void (*made)(void *context, const struct tree_node *node), void *context)
{
	struct tree_node node = {.index = tree->size, .hash = *leaf};
	unsigned peaks = tree_peaks(tree->size);
	if (made)
		made(context, &node);
	for (; node.index & 1; node.index >>= 1) {
		hash_pair(&tree->peaks[--peaks], &node.hash, &node.hash);
		node.level++;
		if (made)
			made(context, &(struct tree_node){node.level, node.index >> 1, node.hash});
	}
	tree->peaks[peaks] = node.hash;
	tree->size++;
}

void tree_root(const struct tree *tree, struct tree_hash *root)
{
	unsigned peaks = tree_peaks(tree->size);
	if (!peaks) {
		unsigned written = 0;
		if (EVP_Digest("", 0, root->bytes, &written, EVP_sha256(), NULL) != 1)
			give_up();
		return;
	}
	*root = tree->peaks[--peaks];
	while (peaks)
		hash_pair(&tree->peaks[--peaks], root, root);
}

// The largest power of two below count, which is 2 or more: where RFC 6962 splits a tree.
static uint64_t split(uint64_t count)
{
	return UINT64_C(1) << (63 - __builtin_clzll(count - 1));
}

// The root of the leaves [begin, end), of which begin is a multiple of a power of two that is not below their number.
static enum status range_root(const struct tree_source *source, uint64_t begin, uint64_t end, struct tree_hash *root,
			      struct error *error)
{
	struct tree tree = {.size = end - begin};
	unsigned peaks = 0;
	for (unsigned level = TREE_LEVELS; level-- > 0;) {
		if (!(tree.size >> level & 1))
			continue;
		struct tree_node node = {.level = level, .index = begin >> level};
		if (!source->fetch(source->context, &node))
			return error_set(error, STATUS_NOT_FOUND,
					 "the hash of subtree %llu of level %u is not stored here",
					 (unsigned long long)node.index, level);
		tree.peaks[peaks++] = node.hash;
		begin += UINT64_C(1) << level;
	}
	tree_root(&tree, root);
	return STATUS_OK;
}

// Proofs are found from the root down, and written from the leaves up.
static void reverse(struct tree_proof *proof)
{
	for (size_t i = 0; i < proof->count / 2; i++) {
		struct tree_hash kept = proof->hashes[i];
		proof->hashes[i] = proof->hashes[proof->count - 1 - i];
		proof->hashes[proof->count - 1 - i] = kept;
	}
}

enum status tree_prove_inclusion(const struct tree_source *source, uint64_t index, uint64_t size,
				 struct tree_proof *proof, struct error *error)
{
	enum status status = STATUS_OK;
	proof->count = 0;
	if (index >= size)
		return error_set(error, STATUS_INVALID_PARAMS, "a tree of %llu entries has no entry %llu",
				 (unsigned long long)size, (unsigned long long)index);
	for (uint64_t begin = 0, end = size; !status && end - begin > 1;) {
		uint64_t middle = begin + split(end - begin);
		struct tree_hash *next = &proof->hashes[proof->count++];
		if (index < middle) {
			status = range_root(source, middle, end, next, error);
			end = middle;
		} else {
			status = range_root(source, begin, middle, next, error);
			begin = middle;
		}
	}
	reverse(proof);
	return status;
}

enum status tree_prove_consistency(const struct tree_source *source, uint64_t from, uint64_t to,
				   struct tree_proof *proof, struct error *error)
{
	enum status status = STATUS_OK;
	proof->count = 0;
	if (from > to)
		return error_set(error, STATUS_INVALID_PARAMS, "%llu entries do not continue %llu",
				 (unsigned long long)to, (unsigned long long)from);
	if (!from)
		return STATUS_OK;
	uint64_t begin = 0, end = to;
	while (!status && from < end) {
		uint64_t middle = begin + split(end - begin);
		struct tree_hash *next = &proof->hashes[proof->count++];
		if (from <= middle) {
			status = range_root(source, middle, end, next, error);
			end = middle;
		} else {
			status = range_root(source, begin, middle, next, error);
			begin = middle;
		}
	}
	// What is left ends where the older tree ends. Its root is known to the reader if it is that tree as a whole.
	if (!status && begin)
		status = range_root(source, begin, end, &proof->hashes[proof->count++], error);
	reverse(proof);
	return status;
}

// The checks are those of RFC 9162, sections 2.1.3.2 and 2.1.4.2, which has the same tree. Of the node that the proof
// has reached, `place` is its index in its level and `last` the index of that level's last node.
struct climb {
	uint64_t place, last;
};

static bool is_right(const struct climb *climb)
{
	return climb->place & 1 || climb->place == climb->last;
}

// To the level above; a right-most node that has no sibling there goes on up until it has one.
static void rise(struct climb *climb)
{
	while (!(climb->place & 1) && climb->place) {
		climb->place >>= 1;
		climb->last >>= 1;
	}
	climb->place >>= 1;
	climb->last >>= 1;
}

bool tree_check_inclusion(const struct tree_hash *leaf, uint64_t index, uint64_t size, const struct tree_hash *root,
			  const struct tree_proof *proof)
{
	if (index >= size || proof->count > TREE_PROOF_HASHES)
		return false;
	struct climb climb = {index, size - 1};
	struct tree_hash reached = *leaf;
	for (size_t i = 0; i < proof->count; i++) {
		if (!climb.last)
			return false;
		if (is_right(&climb)) {
			hash_pair(&proof->hashes[i], &reached, &reached);
			rise(&climb);
		} else {
			hash_pair(&reached, &proof->hashes[i], &reached);
			climb.place >>= 1;
			climb.last >>= 1;
		}
	}
	return !climb.last && !memcmp(&reached, root, sizeof(reached));
}

bool tree_check_consistency(uint64_t from, const struct tree_hash *from_root, uint64_t to,
			    const struct tree_hash *to_root, const struct tree_proof *proof)
{
	if (from > to || proof->count > TREE_PROOF_HASHES)
		return false;
	if (!from)
		return !proof->count;
	if (from == to)
		return !proof->count && !memcmp(from_root, to_root, sizeof(*from_root));
	struct climb climb = {from - 1, to - 1};
	while (climb.place & 1) {
		climb.place >>= 1;
		climb.last >>= 1;
	}
	// The proof begins with the largest subtree that ends where the older tree ends, unless that is all of it.
	size_t next = 0;
	struct tree_hash older = *from_root;
	if (climb.place) {
		if (!proof->count)
			return false;
		older = proof->hashes[next++];
	}
	struct tree_hash newer = older;
	for (; next < proof->count; next++) {
		if (!climb.last)
			return false;
		if (is_right(&climb)) {
			hash_pair(&proof->hashes[next], &older, &older);
			hash_pair(&proof->hashes[next], &newer, &newer);
			rise(&climb);
		} else {
			hash_pair(&newer, &proof->hashes[next], &newer);
			climb.place >>= 1;
			climb.last >>= 1;
		}
	}
	return !climb.last && !memcmp(&older, from_root, sizeof(older)) && !memcmp(&newer, to_root, sizeof(newer));
}
