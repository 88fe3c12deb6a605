/* The Merkle tree: the published roots and proofs, random trees against RFC 6962's recursion taken at its word, and
 * provers that lie: a proof with any bit, hash or number changed is refused. */
#include "common/journal/tree.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__ // where OpenSSL's allocations take most of the time
enum { ALL_PAIRS = 20 };
#else
enum { ALL_PAIRS = 64 };
#endif
enum { LARGEST = 300, LEVELS = 10 };

// A log of LARGEST leaves: every complete subtree, as a store would keep them, and the root at each size.
struct log {
	struct tree tree;
	struct tree_hash leaves[LARGEST], roots[LARGEST + 1];
	struct tree_hash nodes[LEVELS][LARGEST];
	bool known[LEVELS][LARGEST];
};
static struct log whole;

static void keep(void *context, const struct tree_node *node)
{
	struct log *log = context;
	assert_true(node->level < LEVELS && node->index < LARGEST);
	assert_false(log->known[node->level][node->index]);
	log->known[node->level][node->index] = true;
	log->nodes[node->level][node->index] = node->hash;
}

static bool fetch(void *context, struct tree_node *node)
{
	struct log *log = context;
	if (node->level >= LEVELS || node->index >= LARGEST || !log->known[node->level][node->index])
		return false;
	node->hash = log->nodes[node->level][node->index];
	return true;
}

static const struct tree_source source = {fetch, &whole};

// The hash of a node, through the only public function that hashes: a tree of two leaves.
static struct tree_hash pair(struct tree_hash left, struct tree_hash right)
{
	struct tree tree = {0};
	struct tree_hash root;
	tree_append(&tree, &left, NULL, NULL);
	tree_append(&tree, &right, NULL, NULL);
	tree_root(&tree, &root);
	return root;
}

// MTH of RFC 6962, section 2.1.
static struct tree_hash naive_root(const struct tree_hash *leaves, uint64_t count)
{
	uint64_t k = 1;
	if (count == 1)
		return leaves[0];
	while (k * 2 < count)
		k *= 2;
	return pair(naive_root(leaves, k), naive_root(leaves + k, count - k));
}

// PATH and SUBPROOF of sections 2.1.1 and 2.1.2.
static void naive_path(uint64_t m, const struct tree_hash *leaves, uint64_t n, struct tree_proof *proof)
{
	uint64_t k = 1;
	if (n == 1)
		return;
	while (k * 2 < n)
		k *= 2;
	if (m < k) {
		naive_path(m, leaves, k, proof);
		proof->hashes[proof->count++] = naive_root(leaves + k, n - k);
	} else {
		naive_path(m - k, leaves + k, n - k, proof);
		proof->hashes[proof->count++] = naive_root(leaves, k);
	}
}

static void naive_subproof(uint64_t m, const struct tree_hash *leaves, uint64_t n, bool known, struct tree_proof *proof)
{
	uint64_t k = 1;
	if (m == n) {
		if (!known)
			proof->hashes[proof->count++] = naive_root(leaves, n);
		return;
	}
	while (k * 2 < n)
		k *= 2;
	if (m <= k) {
		naive_subproof(m, leaves, k, known, proof);
		proof->hashes[proof->count++] = naive_root(leaves + k, n - k);
	} else {
		naive_subproof(m - k, leaves + k, n - k, false, proof);
		proof->hashes[proof->count++] = naive_root(leaves, k);
	}
}

static void to_hex(const struct tree_hash *hash, char text[65])
{
	for (unsigned i = 0; i < TREE_HASH_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", hash->bytes[i]);
}

static void expect_hash(const struct tree_hash *hash, const char *hex)
{
	char text[65];
	to_hex(hash, text);
	assert_string_equal(text, hex);
}

static void expect_proof(const struct tree_proof *got, const struct tree_proof *wanted)
{
	assert_int_equal(got->count, wanted->count);
	assert_memory_equal(got->hashes, wanted->hashes, got->count * sizeof(got->hashes[0]));
}

static int make_log(void **state)
{
	(void)state;
	srand(6962);
	for (unsigned i = 0; i < LARGEST; i++) {
		uint8_t bytes[40];
		size_t length = (size_t)rand() % sizeof(bytes);
		for (size_t j = 0; j < length; j++)
			bytes[j] = (uint8_t)rand();
		tree_root(&whole.tree, &whole.roots[i]);
		tree_hash_leaf(bytes, length, &whole.leaves[i]);
		tree_append(&whole.tree, &whole.leaves[i], keep, &whole);
	}
	tree_root(&whole.tree, &whole.roots[LARGEST]);
	return 0;
}

static const struct {
	const char *hex, *root; // a leaf's bytes; the root with it
} published[8] = {
	{"", "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"},
	{"00", "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"},
	{"10", "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"},
	{"2021", "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"},
	{"3031", "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4"},
	{"40414243", "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef"},
	{"5051525354555657", "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"},
	{"606162636465666768696a6b6c6d6e6f", "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"},
};

static void test_published(void **state)
{
	static struct log log;
	const struct tree_source small = {fetch, &log};
	struct tree_proof proof;
	struct tree_hash root, leaf;
	(void)state;
	tree_root(&log.tree, &root);
	expect_hash(&root, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	for (unsigned i = 0; i < 8; i++) {
		uint8_t bytes[16];
		size_t length = strlen(published[i].hex) / 2;
		for (size_t j = 0; j < length; j++) {
			const char digits[] = {published[i].hex[2 * j], published[i].hex[2 * j + 1], 0};
			bytes[j] = (uint8_t)strtoul(digits, NULL, 16);
		}
		tree_hash_leaf(bytes, length, &leaf);
		tree_append(&log.tree, &leaf, keep, &log);
		tree_root(&log.tree, &root);
		expect_hash(&root, published[i].root);
		assert_int_equal(tree_peaks(log.tree.size), __builtin_popcount(i + 1));
	}
	assert_int_equal(tree_prove_inclusion(&small, 0, 8, &proof, NULL), STATUS_OK);
	assert_int_equal(proof.count, 3);
	expect_hash(&proof.hashes[0], "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7");
	expect_hash(&proof.hashes[1], "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e");
	expect_hash(&proof.hashes[2], "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4");
	assert_int_equal(tree_prove_consistency(&small, 6, 8, &proof, NULL), STATUS_OK);
	assert_int_equal(proof.count, 3);
	expect_hash(&proof.hashes[0], "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a");
	expect_hash(&proof.hashes[1], "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0");
	expect_hash(&proof.hashes[2], "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7");
	assert_int_equal(tree_prove_consistency(&small, 2, 5, &proof, NULL), STATUS_OK);
	assert_int_equal(proof.count, 2);
	expect_hash(&proof.hashes[0], "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e");
	expect_hash(&proof.hashes[1], "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b");
}

static void test_roots(void **state)
{
	(void)state;
	for (unsigned size = 1; size <= LARGEST; size++) {
		struct tree_hash naive = naive_root(whole.leaves, size);
		assert_memory_equal(&whole.roots[size], &naive, sizeof(naive));
	}
}

static void test_inclusion(void **state)
{
	static const unsigned sizes[] = {65, 100, 127, 128, 129, 200, 255, 256, 257, 299, 300};
	struct tree_proof proof, naive;
	(void)state;
	for (unsigned i = 1; i <= ALL_PAIRS + sizeof(sizes) / sizeof(sizes[0]); i++) {
		unsigned size = i <= ALL_PAIRS ? i : sizes[i - ALL_PAIRS - 1];
		for (unsigned index = 0; index < size; index++) {
			naive.count = 0;
			naive_path(index, whole.leaves, size, &naive);
			assert_int_equal(tree_prove_inclusion(&source, index, size, &proof, NULL), STATUS_OK);
			expect_proof(&proof, &naive);
			assert_true(
				tree_check_inclusion(&whole.leaves[index], index, size, &whole.roots[size], &proof));
			for (unsigned other = 0; other < size; other++) // is nowhere else
				assert_int_equal(tree_check_inclusion(&whole.leaves[index], other, size,
								      &whole.roots[size], &proof),
						 other == index);
		}
	}
	assert_int_equal(tree_prove_inclusion(&source, 5, 5, &proof, NULL), STATUS_INVALID_PARAMS);
	assert_false(tree_check_inclusion(&whole.leaves[0], 0, 0, &whole.roots[0], &(struct tree_proof){0}));
}

static void test_consistency(void **state)
{
	struct tree_proof proof, naive;
	(void)state;
	for (unsigned to = 0; to <= LARGEST; to++) {
		for (unsigned from = 0; from <= to; from++) {
			if (to > ALL_PAIRS && from > 3 && from + 3 < to && from % 37)
				continue;
			naive.count = 0;
			if (from)
				naive_subproof(from, whole.leaves, to, true, &naive);
			assert_int_equal(tree_prove_consistency(&source, from, to, &proof, NULL), STATUS_OK);
			expect_proof(&proof, &naive);
			assert_true(tree_check_consistency(from, &whole.roots[from], to, &whole.roots[to], &proof));
			if (!from)
				continue;
			for (unsigned other = 0; other <= LARGEST; other += to <= ALL_PAIRS ? 1 : 29) {
				if (other != from) // the older tree is not another one
					assert_false(tree_check_consistency(from, &whole.roots[other], to,
									    &whole.roots[to], &proof));
				if (other != to) // nor the newer
					assert_false(tree_check_consistency(from, &whole.roots[from], to,
									    &whole.roots[other], &proof));
			}
		}
	}
	assert_int_equal(tree_prove_consistency(&source, 7, 6, &proof, NULL), STATUS_INVALID_PARAMS);
	proof.count = 0;
	assert_false(tree_check_consistency(7, &whole.roots[7], 6, &whole.roots[6], &proof));
	assert_false(tree_check_consistency(6, &whole.roots[6], 7, &whole.roots[7], &proof));
}

// What a liar makes of a proof: each bit flipped, each hash dropped, doubled or swapped with the next, one more at
// either end, and a number of hashes that the array does not have.
static unsigned lie(const struct tree_proof *good, bool (*check)(const void *context, const struct tree_proof *proof),
		    const void *context)
{
	struct tree_proof bad;
	unsigned tried = 0;
	for (size_t bit = 0; bit < good->count * TREE_HASH_BYTES * 8; bit++, tried++) {
		bad = *good;
		bad.hashes[bit / 256].bytes[bit / 8 % 32] ^= (uint8_t)(1u << bit % 8);
		assert_false(check(context, &bad));
	}
	for (size_t i = 0; i < good->count; i++, tried += 2) {
		bad = *good;
		bad.count--;
		memmove(&bad.hashes[i], &bad.hashes[i + 1], (good->count - i - 1) * sizeof(bad.hashes[0]));
		assert_false(check(context, &bad));
		bad = *good;
		bad.count++;
		memmove(&bad.hashes[i + 1], &bad.hashes[i], (good->count - i) * sizeof(bad.hashes[0]));
		assert_false(check(context, &bad));
		if (i + 1 == good->count)
			continue;
		bad = *good;
		bad.hashes[i] = good->hashes[i + 1];
		bad.hashes[i + 1] = good->hashes[i];
		assert_false(check(context, &bad));
		tried++;
	}
	for (unsigned size = 0; size < 65; size++, tried++) {
		bad = *good;
		bad.hashes[bad.count++] = whole.roots[size];
		assert_false(check(context, &bad));
	}
	bad = *good;
	bad.count = TREE_PROOF_HASHES + 1;
	assert_false(check(context, &bad));
	return tried + 1;
}

struct claim {
	unsigned from, to;
};

static bool check_inclusion(const void *context, const struct tree_proof *proof)
{
	const struct claim *claim = context;
	return tree_check_inclusion(&whole.leaves[claim->from], claim->from, claim->to, &whole.roots[claim->to], proof);
}

static bool check_consistency(const void *context, const struct tree_proof *proof)
{
	const struct claim *claim = context;
	return tree_check_consistency(claim->from, &whole.roots[claim->from], claim->to, &whole.roots[claim->to],
				      proof);
}

static void test_liars(void **state)
{
	struct tree_proof proof;
	unsigned tried = 0;
	(void)state;
	for (struct claim claim = {.to = 1}; claim.to <= 33; claim.to++) {
		for (claim.from = 0; claim.from < claim.to; claim.from++) {
			assert_int_equal(tree_prove_inclusion(&source, claim.from, claim.to, &proof, NULL), STATUS_OK);
			assert_true(check_inclusion(&claim, &proof));
			tried += lie(&proof, check_inclusion, &claim);
		}
		for (claim.from = 0; claim.from <= claim.to; claim.from++) {
			assert_int_equal(tree_prove_consistency(&source, claim.from, claim.to, &proof, NULL),
					 STATUS_OK);
			assert_true(check_consistency(&claim, &proof));
			tried += lie(&proof, check_consistency, &claim);
		}
	}
	print_message("%u proofs that lie were refused\n", tried);
	assert_true(tried > 100000);
}

// A log whose past was rewritten: no proof, honest or of the other log, joins the two.
static void test_fork(void **state)
{
	static struct log fork;
	const struct tree_source forked = {fetch, &fork};
	struct tree_proof proof;
	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		struct tree_hash leaf = whole.leaves[i];
		leaf.bytes[0] ^= i == 20;
		tree_root(&fork.tree, &fork.roots[i]);
		tree_append(&fork.tree, &leaf, keep, &fork);
	}
	tree_root(&fork.tree, &fork.roots[100]);
	for (unsigned from = 1; from < 100; from++) {
		assert_int_equal(tree_prove_consistency(&forked, from, 100, &proof, NULL), STATUS_OK);
		assert_int_equal(tree_check_consistency(from, &whole.roots[from], 100, &fork.roots[100], &proof),
				 from <= 20);
		assert_int_equal(tree_prove_consistency(&source, from, 100, &proof, NULL), STATUS_OK);
		assert_false(tree_check_consistency(from, &whole.roots[from], 100, &fork.roots[100], &proof));
	}
}

// Only what a store keeps of entries that are archived (level 1 and up) still proves what begins at even places.
static void test_missing_nodes(void **state)
{
	static struct log pruned;
	const struct tree_source lacking = {fetch, &pruned};
	struct tree_proof proof;
	struct error error = {0};
	(void)state;
	pruned = whole;
	memset(pruned.known[0], 0, 128);
	assert_int_equal(tree_prove_consistency(&lacking, 128, 300, &proof, &error), STATUS_OK);
	assert_int_equal(tree_prove_consistency(&lacking, 64, 300, &proof, &error), STATUS_OK);
	assert_int_equal(tree_prove_consistency(&lacking, 65, 300, &proof, &error), STATUS_NOT_FOUND);
	assert_true(error.message[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published),     cmocka_unit_test(test_roots), cmocka_unit_test(test_inclusion),
		cmocka_unit_test(test_consistency),   cmocka_unit_test(test_liars), cmocka_unit_test(test_fork),
		cmocka_unit_test(test_missing_nodes),
	};
	return cmocka_run_group_tests(tests, make_log, NULL);
}
