// Multi-head latent attention (engine/model/model.h, struct model_latent): what lies between the products of heads.
//
// All heads share one key of a position, which is kept as f16: its latent and the part that turns. The latent is the
// value, too. A block takes up to 64 queries (16 where shared memory is small), heads of one row or of several, and a
// part of the positions, a page at a time through two places in shared memory. So a latent is read once for all of
// them. Four warps share 16 queries: each computes the scores of 8 keys, and then, with the weights of all 32, every
// fourth part of 16 columns of the values. Queries are scaled so that they fit f16; weights of positions are at most
// 2^10, so that weights of a millionth keep their bits, too. `exact`, for models whose weights have more bits, takes both
// as two f16, the second of what the first leaves.
//
// Shared memory: queries (PLANES, QUERIES, stride), two pages (2, LATENT_KEYS, stride), scores (QUERIES, SCORES), factors
// (QUERIES); stage_latent.c adds up the same. stride: the bytes of a key and 16 more, so that no bank is met twice.
#include "stage.cuh"

enum { TURN_WARPS = LATENT_TURN_BLOCK / 32, SCORES = LATENT_SCORES, STEPS = LATENT_KEYS / 16, VALUE_PARTS = 8 };

// Numbers a and b of pair i, turned.
INLINE float2 turned_pair(const latent_params &p, const float *in, unsigned i, unsigned position)
{
	unsigned a = p.rope_halves ? i : 2 * i, b = p.rope_halves ? i + p.turned / 2 : 2 * i + 1;
	const float *table = p.rope + ((u64)position * (p.turned / 2) + i) * 2;
	float x = load_fresh_1(in + a), y = load_fresh_1(in + b);
	float2 out;
	out.x = x * table[0] - y * table[1];
	out.y = x * table[1] + y * table[0];
	return out;
}

INLINE unsigned short half_of(float x) { return (unsigned short)pack_f16(x, 0); }

INLINE unsigned short *latent_place(const latent_params &p, unsigned row, unsigned position)
{
	u64 page = p.pages[p.tables[row] + position / STAGE_KV_PAGE];
	return p.kv + (page * STAGE_KV_PAGE + position % STAGE_KV_PAGE) * p.padded;
}

// A row's latent, normed, and its key that turns, into their page. By one warp.
INLINE void keep(const latent_params &p, unsigned row)
{
	unsigned lane = THREAD_X % 32, position = p.positions[row], size = p.rank + p.turned;
	const float *in = p.k + (u64)row * size;
	unsigned short *to = latent_place(p, row, position);
	float squares = 0;
	for (unsigned i = lane; i < p.rank; i += 32) {
		float x = load_fresh_1(in + i);
		squares += x * x;
	}
	float factor = quotient(1, root_of(warp_sum(squares) / (float)p.rank + p.epsilon));
	for (unsigned i = lane * 2; i < p.rank; i += 64)
		*(unsigned *)(to + i) = pack_f16(load_fresh_1(in + i) * factor * p.norm[i],
						 load_fresh_1(in + i + 1) * factor * p.norm[i + 1]);
	for (unsigned i = lane; i < p.turned / 2; i += 32) {
		float2 pair = turned_pair(p, in + p.rank, i, position);
		to[p.rank + (p.rope_halves ? i : 2 * i)] = half_of(pair.x);
		to[p.rank + (p.rope_halves ? i + p.turned / 2 : 2 * i + 1)] = half_of(pair.y);
	}
	for (unsigned i = size + lane; i < p.padded; i += 32)
		to[i] = 0;
}

// Blocks: (1 + heads / TURN_WARPS, rows). The first of a row keeps its latent; the others turn the heads' queries, behind
// what the products of heads give.
extern "C" __global__ void __launch_bounds__(LATENT_TURN_BLOCK) latent_turn(const CONSTANT latent_params p)
{
	unsigned warp = THREAD_X / 32, row = p.first + BLOCK_Y, head = (BLOCK_X - 1) * TURN_WARPS + warp;
	let_next_begin();
	wait_for_previous();
	if (!BLOCK_X) {
		if (!warp)
			keep(p, row);
		return;
	}
	if (head >= p.heads)
		return;
	const float *in = p.queries + ((u64)row * p.heads + head) * p.key_size + p.key_size - p.turned;
	float *to = p.q + ((u64)BLOCK_Y * p.heads + head) * (p.rank + p.turned) + p.rank;
	for (unsigned i = THREAD_X % 32; i < p.turned / 2; i += 32) {
		float2 pair = turned_pair(p, in, i, p.positions[row]);
		to[p.rope_halves ? i : 2 * i] = pair.x;
		to[p.rope_halves ? i + p.turned / 2 : 2 * i + 1] = pair.y;
	}
}

// ---- attention ----

// The queries of a block: `rows` rows from row0 of the turn on, each with `heads` heads from head0 on.
struct latent_block {
	unsigned row0, rows, head0, heads;
};

INLINE latent_block block_at(const latent_params &p, unsigned across, unsigned down)
{
	latent_block b;
	b.row0 = down * p.block_rows;
	b.rows = p.rows - b.row0 < p.block_rows ? p.rows - b.row0 : p.block_rows;
	b.head0 = across * p.block_heads;
	b.heads = p.heads - b.head0 < p.block_heads ? p.heads - b.head0 : p.block_heads;
	return b;
}

// How many positions a part of the block has: all parts but the last that there is have as many.
INLINE unsigned part_size(const latent_params &p, const latent_block &b, unsigned *longest)
{
	*longest = 0;
	for (unsigned i = 0; i < b.rows; i++) {
		unsigned length = p.positions[p.first + b.row0 + i] + 1;
		*longest = length > *longest ? length : *longest;
	}
	unsigned size = (*longest + p.splits - 1) / p.splits;
	return size < LATENT_PART ? LATENT_PART : (size + LATENT_KEYS - 1) / LATENT_KEYS * LATENT_KEYS;
}

// The rests of two numbers that f16 does not hold, as f16.
INLINE unsigned rest_of(unsigned two, float low, float high) { return pack_f16(low - low_f16(two), high - high_f16(two)); }

// Query `which` of the block into shared memory, as f16 scaled to fit, and what that leaves of it to `rest`, if there is
// one; its factor. By one warp.
INLINE void take_query(const latent_params &p, const latent_block &b, unsigned which, unsigned char *to, unsigned char *rest,
		       float *factor)
{
	unsigned lane = THREAD_X % 32, size = p.rank + p.turned;
	bool there = which < b.rows * b.heads;
	u64 row = b.row0 + which / b.heads, head = b.head0 + which % b.heads;
	const float *from = p.q + (there ? row * p.heads + head : 0) * size;
	float most = 0;
	for (unsigned i = lane; there && i < size; i += 32)
		most = larger(most, absolute(load_fresh_1(from + i)));
	float scale = scale_for(warp_most(most));
	if (!lane)
		*factor = quotient(p.scale, scale);
	for (unsigned i = lane * 2; i < p.padded; i += 64) {
		bool has = there && i < size;
		float low = has ? load_fresh_1(from + i) * scale : 0, high = has ? load_fresh_1(from + i + 1) * scale : 0;
		unsigned two = pack_f16(low, high);
		*(unsigned *)(to + i * 2) = two;
		if (rest)
			*(unsigned *)(rest + i * 2) = rest_of(two, low, high);
	}
}

template <int GROUPS, bool EXACT> struct latents { // of a warp
	enum { QUERIES = GROUPS * 16, LANES = GROUPS * 128, PLANES = EXACT ? 2 : 1 };
	unsigned queries, keys, stride; // places in shared memory
	float *scores;
	unsigned lane, group, slice;
	unsigned limit[2]; // positions that rows g and g + 8 attend to
	float factor[2], most[2], total[2];
	float sum[VALUE_PARTS * 2][4];

	// A page into one of the two places; zeros behind `end`.
	INLINE_METHOD void fetch(const latent_params &p, const unsigned *pages, unsigned position, unsigned end, unsigned which) const
	{
		unsigned pieces = p.padded / 8;
		const unsigned short *page = p.kv + (u64)pages[position / STAGE_KV_PAGE] * STAGE_KV_PAGE * p.padded;
		for (unsigned key = THREAD_X / 32; key < LATENT_KEYS; key += LANES / 32)
			for (unsigned piece = lane; piece < pieces; piece += 32)
				copy_16_if(keys + (which * LATENT_KEYS + key) * stride + piece * 16,
					   page + (u64)key * p.padded + piece * 8, position + key < end);
	}

	// Scores of this warp's queries with its 8 keys.
	INLINE_METHOD void score(const latent_params &p, unsigned which) const
	{
		float part[4];
		clear(part);
		unsigned q = queries + (group * 16 + lane % 16) * stride + lane / 16 * 16;
		unsigned k = keys + (which * LATENT_KEYS + slice * 8 + lane % 8) * stride + lane / 8 * 16;
#pragma unroll 2
		for (unsigned i = 0; i < p.padded * 2; i += 64) { // two steps of 16 columns
			uint4 key = load_matrices(k + i), first = load_matrices(q + i), second = load_matrices(q + i + 32);
			const fragment a = {{first.x, first.y, first.z, first.w}}, b = {{second.x, second.y, second.z, second.w}};
			multiply_f16(part, a, key.x, key.y);
			multiply_f16(part, b, key.z, key.w);
			if (EXACT) {
				first = load_matrices(q + QUERIES * stride + i);
				second = load_matrices(q + QUERIES * stride + i + 32);
				const fragment c = {{first.x, first.y, first.z, first.w}}, d = {{second.x, second.y, second.z, second.w}};
				multiply_f16(part, c, key.x, key.y);
				multiply_f16(part, d, key.z, key.w);
			}
		}
		float *to = scores + (group * 16 + lane / 4) * SCORES + slice * 8 + lane % 4 * 2;
		to[0] = part[0];
		to[1] = part[1];
		to[8 * SCORES] = part[2];
		to[8 * SCORES + 1] = part[3];
	}

	// Weights of the keys from `position` on, and their values.
	INLINE_METHOD void add(const latent_params &p, unsigned position, unsigned which)
	{
		fragment weights[STEPS], rests[STEPS];
#pragma unroll
		for (unsigned lower = 0; lower < 2; lower++) {
			const float *from = scores + (group * 16 + lane / 4 + lower * 8) * SCORES + lane % 4 * 2;
			float s[STEPS * 4], next = most[lower];
#pragma unroll
			for (unsigned i = 0; i < STEPS * 4; i++) {
				unsigned key = i / 2 * 8 + i % 2;
				s[i] = position + lane % 4 * 2 + key < limit[lower] ? from[key] * factor[lower]
										   : __builtin_bit_cast(float, 0xff800000u);
				next = larger(next, s[i]);
			}
			next = larger(next, from_lane(next, 1));
			next = larger(next, from_lane(next, 2));
			float keep = exp2_of(most[lower] - next);
			most[lower] = next;
			total[lower] *= keep;
#pragma unroll
			for (unsigned i = 0; i < STEPS * 4; i++) {
				s[i] = exp2_of(s[i] - next + 10);
				total[lower] += s[i];
			}
#pragma unroll
			for (unsigned i = 0; i < STEPS; i++) {
				weights[i].pair[lower] = pack_f16(s[i * 4], s[i * 4 + 1]);
				weights[i].pair[lower + 2] = pack_f16(s[i * 4 + 2], s[i * 4 + 3]);
				rests[i].pair[lower] = rest_of(weights[i].pair[lower], s[i * 4], s[i * 4 + 1]);
				rests[i].pair[lower + 2] = rest_of(weights[i].pair[lower + 2], s[i * 4 + 2], s[i * 4 + 3]);
			}
#pragma unroll
			for (unsigned i = 0; i < VALUE_PARTS * 2; i++) {
				sum[i][lower * 2] *= keep;
				sum[i][lower * 2 + 1] *= keep;
			}
		}
		unsigned from = keys + (which * LATENT_KEYS + lane % 16) * stride + lane / 16 * 16;
#pragma unroll
		for (unsigned i = 0; i < VALUE_PARTS; i++) {
			unsigned part = slice + i * 4;
			if (part * 16 >= p.rank)
				break;
#pragma unroll
			for (unsigned k = 0; k < STEPS; k++) {
				uint4 four = load_turned(from + k * 16 * stride + part * 32);
				multiply_f16(sum[i * 2], weights[k], four.x, four.y);
				multiply_f16(sum[i * 2 + 1], weights[k], four.z, four.w);
				if (EXACT) {
					multiply_f16(sum[i * 2], rests[k], four.x, four.y);
					multiply_f16(sum[i * 2 + 1], rests[k], four.z, four.w);
				}
			}
		}
	}
};

// The results of a warp's queries in its columns: divided by the weights, or as a part of all positions.
template <int GROUPS, bool EXACT>
INLINE void put_results(const latent_params &p, const latent_block &b, const latents<GROUPS, EXACT> &w, unsigned part)
{
	unsigned lane = w.lane;
#pragma unroll
	for (unsigned lower = 0; lower < 2; lower++) {
		unsigned which = w.group * 16 + lane / 4 + lower * 8;
		float all = w.total[lower];
		all += from_lane(all, 1);
		all += from_lane(all, 2);
		if (which >= b.rows * b.heads)
			continue;
		u64 slot = (u64)(b.row0 + which / b.heads) * p.heads + b.head0 + which % b.heads;
		bool whole = p.splits == 1;
		float *to = whole ? p.out + slot * p.out_stride : p.partial + (slot * p.splits + part) * (p.rank + 2);
		float by = whole ? quotient(1, all) : 1;
#pragma unroll
		for (unsigned i = 0; i < VALUE_PARTS * 2; i++) {
			unsigned at = (w.slice + i / 2 * 4) * 16 + i % 2 * 8 + lane % 4 * 2;
			if (at < p.rank) {
				to[at] = w.sum[i][lower * 2] * by;
				to[at + 1] = w.sum[i][lower * 2 + 1] * by;
			}
		}
		if (w.slice || lane % 4)
			continue;
		if (!whole) {
			to[p.rank] = w.most[lower];
			to[p.rank + 1] = all;
		}
		for (unsigned at = p.rank; whole && at < p.out_stride; at++)
			to[at] = 0;
	}
}

// Blocks: (parts of the positions by parts of the heads, parts of the rows). Rows of several runs go one run after the
// other.
template <int GROUPS, bool EXACT> INLINE void attend(const latent_params &p)
{
	typedef latents<GROUPS, EXACT> W;
	const latent_block b = block_at(p, BLOCK_X / p.splits, BLOCK_Y);
	unsigned part = BLOCK_X % p.splits, warp = THREAD_X / 32, longest;
	let_next_begin();
	unsigned size = part_size(p, b, &longest);
	if (part * size >= longest)
		return;
	wait_for_previous();
	W w;
	w.lane = THREAD_X % 32;
	w.group = warp / 4;
	w.slice = warp % 4;
	w.stride = p.padded * 2 + 16;
	w.queries = shared_place(shared);
	w.keys = w.queries + W::PLANES * W::QUERIES * w.stride;
	w.scores = (float *)(shared + (W::PLANES * W::QUERIES + 2 * LATENT_KEYS) * w.stride);
	float *factors = w.scores + W::QUERIES * SCORES;
	for (unsigned which = warp; which < W::QUERIES; which += W::LANES / 32)
		take_query(p, b, which, shared + which * w.stride, EXACT ? shared + (W::QUERIES + which) * w.stride : 0,
			   factors + which);
	block_barrier();
#pragma unroll
	for (unsigned lower = 0; lower < 2; lower++) {
		w.factor[lower] = factors[w.group * 16 + w.lane / 4 + lower * 8];
		w.most[lower] = -1e30f;
		w.total[lower] = 0;
	}
#pragma unroll
	for (unsigned i = 0; i < VALUE_PARTS * 2; i++)
		clear(w.sum[i]);
	const unsigned *positions = p.positions + p.first + b.row0, *tables = p.tables + p.first + b.row0;
	bool works = w.group * 16 < b.rows * b.heads;
	for (unsigned first = 0, next; first < b.rows; first = next) {
		const unsigned *pages = p.pages + tables[first];
		for (next = first + 1; next < b.rows && tables[next] == tables[first];)
			next++;
		unsigned length = positions[next - 1] + 1, begin = part * size, end = begin + size < length ? begin + size : length;
#pragma unroll
		for (unsigned lower = 0; lower < 2; lower++) {
			unsigned row = (w.group * 16 + w.lane / 4 + lower * 8) / b.heads;
			w.limit[lower] = row >= first && row < next ? positions[row] + 1 : 0;
		}
		block_barrier(); // no thread reads the pages of the run before any more
		if (begin < end)
			w.fetch(p, pages, begin, end, 0);
		copies_end();
		for (unsigned at = begin, which = 0; at < end; at += LATENT_KEYS, which ^= 1) {
			copies_wait<0>();
			block_barrier(); // this page is there, and no thread reads the one before any more
			if (at + LATENT_KEYS < end)
				w.fetch(p, pages, at + LATENT_KEYS, end, which ^ 1);
			copies_end();
			warp_barrier();
			if (works)
				w.score(p, which);
			block_barrier();
			if (works)
				w.add(p, at, which);
		}
	}
	put_results(p, b, w, part);
}

extern "C" __global__ void __launch_bounds__(128) latent_attend_16(const CONSTANT latent_params p) { attend<1, false>(p); }
extern "C" __global__ void __launch_bounds__(512) latent_attend_64(const CONSTANT latent_params p) { attend<4, false>(p); }
extern "C" __global__ void __launch_bounds__(128) latent_attend_exact(const CONSTANT latent_params p) { attend<1, true>(p); }

// Put the parts of the positions together. Blocks: (heads, rows).
extern "C" __global__ void __launch_bounds__(LATENT_TURN_BLOCK) latent_combine(const CONSTANT latent_params p)
{
	const latent_block b = block_at(p, BLOCK_X / p.block_heads, BLOCK_Y / p.block_rows);
	unsigned longest, size = part_size(p, b, &longest), parts = (longest + size - 1) / size;
	u64 slot = (u64)BLOCK_Y * p.heads + BLOCK_X;
	const float *from = p.partial + slot * p.splits * (p.rank + 2);
	let_next_begin();
	wait_for_previous();
	float best = -1e30f, all = 0;
	for (unsigned i = 0; i < parts; i++)
		best = larger(best, load_fresh_1(from + i * (p.rank + 2) + p.rank));
	for (unsigned i = 0; i < parts; i++) {
		const float *part = from + i * (p.rank + 2) + p.rank;
		all = FUSED(exp2_of(load_fresh_1(part) - best), load_fresh_1(part + 1), all);
	}
	float by = quotient(1, all);
	for (unsigned at = THREAD_X; at < p.out_stride; at += LATENT_TURN_BLOCK) {
		float value = 0;
#pragma unroll 4
		for (unsigned i = 0; at < p.rank && i < parts; i++) {
			const float *part = from + i * (p.rank + 2);
			value = FUSED(exp2_of(load_fresh_1(part + p.rank) - best), load_fresh_1(part + at), value);
		}
		p.out[slot * p.out_stride + at] = value * by;
	}
}
