// One row through all layers, by one persistent kernel: a block on every multiprocessor; all blocks synchronise between
// products.
//
// Each warp has a ring in shared memory, which it fills by bulk copies: whenever it has multiplied one, it begins the
// next. Weights do not depend on computed values, so the ring continues over the ends of products and layers: memory is
// still read while the blocks wait for each other and for attention. A block takes a run of units of 16 rows. Its warps
// share the columns, always the same ones, so a warp needs only its own slice of the input, and rounds it itself. A
// norm's factor is applied to the results, because it needs the whole row.
//
// A kernel is made for a set of formats (DECODE_SETS). Each matrix of a model may have another one of the set: all
// warps go through its rows by the code of its format.
//
// Bound: memory, at 51 to 84 % of what a read kernel reaches on an H200 (docs/notes/performance-gpu.md says where the
// rest is).
//
// Rounded to integers (of 16 bits, with a scale for each 32 columns, as in stage_gemv.cu) the input makes two columns
// of a product of bytes, and there are eight: four blocks of columns share a product's, each with zeros where the
// others are, so a lane has the sum of one block and does its scaling once for all four.
#include "stage.cuh"

#if defined(HOPPER)

enum : unsigned { SUM_ROWS = 2 * DECODE_UNITS, AT_ONCE = 2, PART_LEAST = 64, PRELOADED = 4 };
enum { MULTIPLIERS = 1 }; // the barrier of the warps that multiply

INLINE void multipliers_barrier()
{
	barrier(MULTIPLIERS, DECODE_THREADS);
}

// ---- sets of formats: bits 1 << enum tile_format ----

// The only format of a set; TILE_NONE: there are several.
static constexpr INLINE_METHOD int only_format(unsigned set)
{
	int format = TILE_NONE;
	for (int i = 0; i < TILE_COUNT; i++)
		if (set == 1u << i)
			format = i;
	return format;
}
enum : unsigned {
	SET_256 = 1u << TILE_Q4_K | 1u << TILE_Q5_K | 1u << TILE_Q6_K, // columns of a piece
	SET_INTEGERS = SET_256 | 1u << TILE_Q8_0 | 1u << TILE_Q4_0,
	SET_HALVES = 1u << TILE_F16,
	SET_PAIRS = 1u << TILE_F32 | 1u << TILE_BF16,
};
// Whether an input is rounded in a way that only the formats of `which` take: known when compiling, if the set has all
// of its formats there or none.
template <unsigned SET> INLINE bool takes(unsigned which, unsigned inputs, unsigned bit)
{
	return SET & which && (!(SET & ~which) || inputs & bit);
}

// ---- copies that a barrier in shared memory counts ----

INLINE void count_begin(unsigned at)
{
	asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
}
INLINE void counts_shown()
{
	asm volatile("fence.proxy.async;" ::: "memory");
}
// Data that is read once leaves the second-level cache first, so that data exchanged between blocks stays there.
INLINE u64 read_once()
{
	u64 policy;
	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	return policy;
}
INLINE void bulk_copy(unsigned to, const void *from, unsigned bytes, unsigned count, u64 policy)
{
	asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(count), "r"(bytes) : "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
		     "[%0], [%1], %2, [%3], %4;" ::"r"(to),
		     "l"(from), "r"(bytes), "r"(count), "l"(policy)
		     : "memory");
}
INLINE void count_wait(unsigned at, unsigned parity)
{
	unsigned done;
	do {
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(at), "r"(parity)
			     : "memory");
	} while (!done);
}

// ---- blocks that wait for each other ----

// Publish all that this block has written; and wait until so many blocks have arrived. Data of other blocks is read
// past the first-level cache.
INLINE void arrive(const decode_params &p)
{
	multipliers_barrier();
	if (!THREAD_X)
		asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(p.arrived) : "memory");
}
INLINE void wait_for_all(const decode_params &p, unsigned target)
{
	if (!THREAD_X) {
		unsigned now;
		do {
			asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(p.arrived) : "memory");
		} while ((int)(now - target) < 0);
	}
	multipliers_barrier();
}

// ---- shares of a product ----

struct memory { // a block's shared memory
	const decode_layer *layers;
	const uint2 *units;   // of each kind of product: this block's first, and the one behind its last
	unsigned full, full_end; // counts of a warp's copies
	unsigned ring_at;        // of a warp
	uint4 *segment;          // the next one that a warp copies: layer, kind of product, matrix, unit
	unsigned char *ring;     // the same
	unsigned char *slice; // of a warp
	float *squares;       // (DECODE_WARPS)
	float *sums;          // (SUM_ROWS, DECODE_WARPS, TILE_ROWS)
	float *rope;          // (rope_size), of this position
};

struct columns { // a warp's of a product
	unsigned begin, end;
};
template <unsigned SET>
INLINE columns columns_of(const decode_product &product, const decode_layer &layer, unsigned kind, unsigned warp)
{
	bool by_256 = takes<SET>(SET_256, layer.inputs[kind], DECODE_BY_256);
	unsigned shift = by_256 ? 8 : 7, quanta = (product.padded + (1 << shift) - 1) >> shift;
	columns out;
	out.begin = warp * quanta / DECODE_WARPS << shift;
	out.end = (warp + 1) * quanta / DECODE_WARPS << shift;
	return out;
}

// Rows of tiles of one matrix, one behind the other, and a warp's columns of them.
struct segment {
	const unsigned char *tiles;
	unsigned rows, pieces, format, row_bytes;
};

// The units `from` to `to` that belong to a matrix; rows: 0 for none.
template <unsigned SET>
INLINE segment segment_of(const decode_product &product, const decode_layer &layer, const columns &mine,
			  unsigned matrix, unsigned from, unsigned to)
{
	enum { FORMAT = only_format(SET) };
	segment out;
	unsigned first = 0;
	if (product.mode != GEMV_GATED)
		first = matrix == 0 ? 0 : product.row_tiles[0] + (matrix == 2 ? product.row_tiles[1] : 0);
	unsigned last = first + product.row_tiles[matrix];
	from = from < first ? first : from;
	to = to > last ? last : to;
	out.format = FORMAT ? (unsigned)FORMAT : layer.formats[product.matrix + matrix];
	out.rows = from < to ? to - from : 0;
	unsigned bytes = piece_bytes(out.format), shift = piece_shift(out.format);
	unsigned all = (product.padded + (1 << shift) - 1) >> shift, begin = mine.begin >> shift,
		 end = mine.end >> shift;
	end = end < all ? end : all;
	out.pieces = begin < end ? end - begin : 0;
	out.row_bytes = all * bytes;
	out.tiles = layer.tiles[product.matrix + matrix] + (u64)(from - first) * out.row_bytes + begin * bytes;
	return out;
}

// A place in a warp's ring: of a copy that is made, or of one that is multiplied. A copy of pieces lies in one run of
// bytes; what is too long for the end of the ring begins at its beginning. Copies take counts in turn.
struct place {
	unsigned count, round, at, sum; // count: in shared memory; round: the count's; sum: of bytes so far
};
INLINE unsigned ring_bytes_of(unsigned bytes)
{
	return (bytes + DECODE_ALIGN - 1) / DECODE_ALIGN * DECODE_ALIGN;
}
// The place of a copy of so many bytes; *next is then behind it.
INLINE unsigned place_take(place *next, unsigned bytes, unsigned ring_bytes)
{
	unsigned padded = ring_bytes_of(bytes), end = next->at + padded;
	unsigned at = end > ring_bytes ? 0 : next->at;
	next->sum += end > ring_bytes ? ring_bytes - next->at + padded : padded;
	next->at = at + padded;
	return at;
}
INLINE void place_advance(place *next, const memory &m)
{
	next->count += 8;
	if (next->count == m.full_end) {
		next->count = m.full;
		next->round ^= 1;
	}
}

// Copies a warp's columns of all weights into its ring, in the order of the multiplications: whenever a copy has been
// multiplied, the next ones that there is room for.
template <unsigned SET> struct copier {
	place next;
	unsigned rows;                 // of a segment, which are left
	unsigned left, row, gap, most; // bytes: of its row, of all its pieces, from row to row, of a copy
	const unsigned char *from;

	INLINE_METHOD void begin(const decode_params &p, const memory &m)
	{
		next = {m.full, 0, 0, 0};
		rows = left = 0;
		uint4 first;
		first.x = first.y = first.z = 0;
		first.w = m.units[0].x;
		*m.segment = first;
		warp_barrier();
	}
	// The next segment of which the warp has something; rows: 0 if there is none.
	INLINE_METHOD void find(const decode_params &p, const memory &m)
	{
		const uint4 now = *m.segment;
		unsigned layer = now.x, kind = now.y, matrix = now.z, unit = now.w;
#pragma unroll 1
		while (!rows && layer < p.layer_count + p.predicts) {
			unsigned last = m.units[kind].y;
			if (unit >= last) {
				kind = kind == DECODE_DOWN ? (unsigned)DECODE_QKV : kind + 1;
				layer += kind == DECODE_QKV || kind > DECODE_OUTPUT;
				kind = layer == p.layer_count ? (unsigned)DECODE_OUTPUT : kind;
				unit = kind < DECODE_KINDS ? m.units[kind].x : 0;
				continue;
			}
			const decode_product &product = p.products[kind];
			const columns mine = columns_of<SET>(product, m.layers[layer], kind, THREAD_X / 32);
			unsigned to = unit + DECODE_UNITS < last ? unit + DECODE_UNITS : last;
			const segment s = segment_of<SET>(product, m.layers[layer], mine, matrix, unit, to);
			unsigned bytes = piece_bytes(s.format);
			from = s.tiles;
			rows = s.pieces ? s.rows : 0;
			left = row = s.pieces * bytes;
			gap = s.row_bytes - row;
			most = p.at_once[s.format] * bytes;
			if (++matrix == product.count) {
				matrix = 0;
				unit = to;
			}
		}
		uint4 then;
		then.x = layer;
		then.y = kind;
		then.z = matrix;
		then.w = unit;
		warp_barrier();
		*m.segment = then;
		warp_barrier();
	}
	// taken: bytes of the ring that are multiplied, so far.
	INLINE_METHOD void fill(const decode_params &p, const memory &m, unsigned taken)
	{
#pragma unroll 1
		for (;;) {
			if (!rows)
				find(p, m);
			if (!rows)
				return;
			unsigned bytes = left < most ? left : most;
			place then = next;
			unsigned at = place_take(&then, bytes, p.ring_bytes);
			if (then.sum - taken > p.ring_bytes)
				return;
			if (THREAD_X % 32 == 0)
				bulk_copy(m.ring_at + at, from, bytes, next.count, read_once());
			warp_barrier();
			next = then;
			place_advance(&next, m);
			from += bytes;
			left -= bytes;
			if (!left) {
				rows--;
				from += gap;
				left = row;
			}
		}
	}
};

// ---- the input ----

struct slice { // of a warp: where its part of the input is in shared memory, as a lane reads it
	unsigned char *integers, *halves, *pairs;
	uint2 *blocks;               // scale and sum of the integers of each 32
	float *groups;               // of halves: what to multiply by, of each 128
	unsigned plane, plane_pairs; // from the upper halves of integers, or of numbers, to the lower ones
	unsigned block_mask[4];
};

template <unsigned SET> INLINE slice slice_of(unsigned char *at, unsigned columns, unsigned inputs)
{
	slice out;
	unsigned lane = THREAD_X % 32;
	out.plane = columns + 64;
	out.plane_pairs = columns * 2;
	out.integers = at;
	out.blocks = (uint2 *)(at + 2 * columns + 64);
	at += takes<SET>(SET_INTEGERS, inputs, DECODE_INTEGERS) ? 2 * columns + 64 + columns / 4 : 0;
	out.halves = at;
	out.groups = (float *)(at + 2 * columns);
	at += takes<SET>(SET_HALVES, inputs, DECODE_HALVES) ? 2 * columns + (columns / 32 + 15) / 16 * 16 : 0;
	out.pairs = at;
#pragma unroll
	for (unsigned i = 0; i < 4; i++)
		out.block_mask[i] = lane / 8 == i ? 0xffffffffu : 0;
	return out;
}

// Load this warp's columns of the input. norms: the first gains of the norm, loaded before. Returns the sum of their
// squares.
template <unsigned SET>
INLINE float take_slice(const decode_product &product, const columns &mine, unsigned inputs, const slice &to,
			const float *norm, const float4 (&norms)[PRELOADED])
{
	unsigned lane = THREAD_X % 32;
	float squares = 0;
#pragma unroll 1
	for (unsigned first = mine.begin; first < mine.end; first += PRELOADED * 128) {
		float4 v[PRELOADED];
		unsigned k = first + lane * 4, at = k - mine.begin;
#pragma unroll
		for (int i = 0; i < PRELOADED; i++) {
			v[i].x = v[i].y = v[i].z = v[i].w = 0;
			if (k + i * 128 < product.columns && k + i * 128 < mine.end)
				v[i] = load_fresh(product.x + k + i * 128);
		}
#pragma unroll
		for (int i = 0; i < PRELOADED; i++) {
			squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
			if (norm && k + i * 128 < product.columns) {
				float4 w = norms[i];
				if (first != mine.begin && k + i * 128 < mine.end)
					w = *(const float4 *)(norm + k + i * 128);
				v[i].x *= w.x;
				v[i].y *= w.y;
				v[i].z *= w.z;
				v[i].w *= w.w;
			}
		}
		if (takes<SET>(SET_INTEGERS, inputs, DECODE_INTEGERS)) {
			rounded_four rounded[PRELOADED];
			round_fours<PRELOADED>(rounded, v, at);
#pragma unroll
			for (int i = 0; i < PRELOADED; i++) {
				if (first + i * 128 >= mine.end)
					break;
				*(unsigned *)(to.integers + rounded[i].place) = rounded[i].upper;
				*(unsigned *)(to.integers + to.plane + rounded[i].place) = rounded[i].lower;
				uint2 block;
				block.x = __builtin_bit_cast(unsigned, rounded[i].scale);
				block.y = (unsigned)rounded[i].total;
				if (lane % 8 == 0)
					to.blocks[at / 32 + i * 4] = block;
			}
		}
#pragma unroll
		for (int i = 0; i < PRELOADED; i++) {
			if (first + i * 128 >= mine.end)
				break;
			unsigned place = column_place(at + i * 128);
			if (takes<SET>(SET_HALVES, inputs, DECODE_HALVES)) {
				float most = larger(larger(absolute(v[i].x), absolute(v[i].y)),
						    larger(absolute(v[i].z), absolute(v[i].w)));
				float scale = scale_for(warp_most(most));
				*(unsigned *)(to.halves + place) = pack_f16(v[i].x * scale, v[i].y * scale);
				*(unsigned *)(to.halves + place + 8) = pack_f16(v[i].z * scale, v[i].w * scale);
				if (!lane)
					to.groups[at / 128 + i] = quotient(1, scale);
			}
			if (takes<SET>(SET_PAIRS, inputs, DECODE_PAIRS)) {
				unsigned char *pair = to.pairs + place;
				unsigned one = pack_bf16(v[i].x, v[i].y), two = pack_bf16(v[i].z, v[i].w);
				*(unsigned *)pair = one;
				*(unsigned *)(pair + 8) = two;
				pair += to.plane_pairs;
				*(unsigned *)pair = pack_bf16(v[i].x - low_bf16(one), v[i].y - high_bf16(one));
				*(unsigned *)(pair + 8) = pack_bf16(v[i].z - low_bf16(two), v[i].w - high_bf16(two));
			}
		}
	}
	warp_barrier();
	return warp_sum(squares);
}

// ---- products ----

template <bool SIGNED> INLINE void add_bytes(int (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
	if (SIGNED)
		asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		    "{%0, %1, %2, %3};"
		    : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
		    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	else
		asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
		    "{%0, %1, %2, %3};"
		    : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
		    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
INLINE void add_bytes_16(int (&sum)[4], unsigned a0, unsigned a1, unsigned b)
{
	asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
	    : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
	    : "r"(a0), "r"(a1), "r"(b));
}
INLINE int whole(int upper, int lower)
{
	return upper * 256 + lower;
}
INLINE float half_at(const unsigned char *at)
{
	return low_f16(*(const unsigned short *)at);
}

// sum: of rows g and g + 8, what this lane has of it; of the piece's first column `at` on.
template <int FORMAT>
INLINE void multiply_floats(float (&sum)[2], const unsigned char *piece, unsigned at, const slice &x)
{
	struct operand {
		const unsigned char *halves, *pairs;
		unsigned plane;
		INLINE_METHOD uint2 get(int plane_of, unsigned step, int) const
		{
			return *(const uint2 *)((plane_of ? pairs + (plane_of - 1) * plane : halves) + step * 32);
		}
	} b;
	unsigned lane = THREAD_X % 32, j = lane % 4;
	float part[1][4];
	clear(part[0]);
	b.plane = x.plane_pairs;
#pragma unroll
	for (unsigned i = 0; i < piece_columns(FORMAT) / 32; i++) {
		b.halves = x.halves + (at + i * 32) * 2 + j * 8;
		b.pairs = x.pairs + (at + i * 32) * 2 + j * 8;
		multiply_block<FORMAT, 1>(part, piece + i * tile_bytes(FORMAT), 0, lane, b);
	}
	// All columns of the product are the same.
	float scale = FORMAT == TILE_F16 ? x.groups[at / 128] : 1;
	scale = j ? 0 : scale;
	sum[0] = FUSED(part[0][0], scale, sum[0]);
	sum[1] = FUSED(part[0][2], scale, sum[1]);
}

// A warp's integers of a piece's columns, as its lanes multiply them. GROUPS: the scales of a lane.
template <int FORMAT> struct operands {
	enum { GROUPS = FORMAT == TILE_Q6_K ? 4 : FORMAT == TILE_Q8_0 || FORMAT == TILE_Q4_0 ? 1 : 2 };
	uint2 b[GROUPS][4]; // of Q6_K the first halves alone
	float scale[GROUPS];
	int total[GROUPS];

	INLINE_METHOD void load(unsigned at, const slice &x)
	{
		unsigned lane = THREAD_X % 32, j = lane % 4, q = lane / 8, odd = lane / 4 % 2;
		const unsigned char *bytes = x.integers + odd * x.plane + at + j * 8;
#pragma unroll
		for (unsigned group = 0; group < GROUPS; group++) {
			uint2 all, block;
			if (FORMAT == TILE_Q6_K) { // scales are of 16
				all.x = *(const unsigned *)(bytes + group * 64 + q / 2 * 32 + q % 2 * 4);
				all.y = 0;
				block = x.blocks[at / 32 + group * 2 + j / 2];
			} else {
				all = *(const uint2 *)(bytes + group * 128 + q * 32);
				block = x.blocks[at / 32 + group * 4 + j];
			}
			scale[group] = __builtin_bit_cast(float, block.x);
			total[group] = (int)block.y;
#pragma unroll
			for (unsigned i = 0; i < 4; i++) {
				b[group][i].x = all.x & x.block_mask[i];
				b[group][i].y = all.y & x.block_mask[i];
			}
		}
	}
};

template <int FORMAT>
INLINE void multiply_integers(float (&sum)[2], const unsigned char *piece, const operands<FORMAT> &x)
{
	enum { GROUPS = operands<FORMAT>::GROUPS };
	unsigned lane = THREAD_X % 32, g = lane / 4, j = lane % 4;
	const unsigned char *heads = piece + 2048 + (FORMAT == TILE_Q5_K ? 512 : 0) + g * 16;
	uint4 above, below, high;
	float d[2], least[2];
	if (FORMAT == TILE_Q4_K || FORMAT == TILE_Q5_K) {
		above = *(const uint4 *)heads;
		below = *(const uint4 *)(heads + 128);
		d[0] = low_f16(above.x);
		d[1] = FORMAT == TILE_Q4_K ? low_f16(below.x) * 0.0625f : low_f16(below.x);
		least[0] = high_f16(above.x);
		least[1] = high_f16(below.x);
	} else if (FORMAT == TILE_Q6_K) {
		d[0] = half_at(piece + 3328 + g * 2) * 0.25f;
		d[1] = half_at(piece + 3344 + g * 2) * 0.25f;
	} else if (FORMAT == TILE_Q8_0) {
		d[0] = half_at(piece + j / 2 * 1088 + 1024 + g * 8 + j % 2 * 2);
		d[1] = half_at(piece + j / 2 * 1088 + 1028 + g * 8 + j % 2 * 2);
	} else {
		d[0] = half_at(piece + 1024 + g * 16 + j * 2);
		d[1] = half_at(piece + 1032 + g * 16 + j * 2) * 0.0625f;
	}
	if (FORMAT == TILE_Q5_K)
		high = load_run(piece, 2048, lane);
#pragma unroll
	for (unsigned group = 0; group < GROUPS; group++) {
		int part[4] = {0, 0, 0, 0};
		if (FORMAT == TILE_Q6_K) { // scales are of 16
			uint4 run = load_run(piece, group * TILE_RUN_BYTES, lane);
			if (group % 2 == 0)
				high = load_run(piece, 2048 + group / 2 * TILE_RUN_BYTES, lane);
#pragma unroll
			for (unsigned i = 0; i < 4; i++) {
				unsigned word = word_of(run, i), bits = word_of(high, group % 2 * 2 + i / 2);
				bits = i % 2 ? bits : bits << 4;
				unsigned a0 = ((word << 2 & 0x3c3c3c3cu) | (bits << 2 & 0xc0c0c0c0u)) ^ 0x80808080u;
				unsigned a1 = ((word >> 2 & 0x3c3c3c3cu) | (bits & 0xc0c0c0c0u)) ^ 0x80808080u;
				add_bytes_16(part, a0, a1, x.b[group][i].x);
			}
			float scale = x.scale[group];
			const signed char *scales = (const signed char *)piece + 3072 + g * 16 + group * 4 + j;
			sum[0] = FUSED((float)whole(part[0], part[1]), d[0] * (float)scales[0] * scale, sum[0]);
			sum[1] = FUSED((float)whole(part[2], part[3]), d[1] * (float)scales[128] * scale, sum[1]);
			continue;
		}
		uint4 run[2];
		if (FORMAT != TILE_Q8_0) {
			run[0] = load_run(piece, group * 2 * TILE_RUN_BYTES, lane);
			run[1] = load_run(piece, (group * 2 + 1) * TILE_RUN_BYTES, lane);
		}
#pragma unroll
		for (unsigned i = 0; i < 4; i++) {
			unsigned a[4];
			if (FORMAT == TILE_Q8_0) {
				uint4 four = load_run(piece + i / 2 * 1088, i % 2 * TILE_RUN_BYTES, lane);
				a[0] = four.x;
				a[1] = four.y;
				a[2] = four.z;
				a[3] = four.w;
			} else {
				unsigned one = word_of(run[i / 2], i % 2 * 2), two = word_of(run[i / 2], i % 2 * 2 + 1);
				a[0] = one & 0x0f0f0f0fu;
				a[1] = one & 0xf0f0f0f0u; // 16 times as much
				a[2] = two & 0x0f0f0f0fu;
				a[3] = two & 0xf0f0f0f0u;
				if (FORMAT == TILE_Q5_K) {
					unsigned bits = word_of(high, group * 2 + i / 2);
					a[1] >>= 4;
					a[3] >>= 4;
#pragma unroll
					for (int k = 0; k < 4; k++)
						a[k] |= shifted(bits, (int)(i % 2) * 4 + k - 4) & 0x10101010u;
				}
			}
			add_bytes<FORMAT == TILE_Q8_0>(part, a, x.b[group][i].x, x.b[group][i].y);
		}
		int upper = whole(part[0], part[1]), lower = whole(part[2], part[3]), total = x.total[group];
		float scale = x.scale[group];
		if (FORMAT == TILE_Q4_0) {
			upper -= 8 * total;
			lower -= 128 * total;
		}
		if (FORMAT == TILE_Q8_0 || FORMAT == TILE_Q4_0) {
			sum[0] = FUSED((float)upper, d[0] * scale, sum[0]);
			sum[1] = FUSED((float)lower, d[1] * scale, sum[1]);
		} else {
			unsigned scales = head_scales(above, group * 4 + j), others = head_scales(below, group * 4 + j);
			float all = (float)total * scale;
			sum[0] = FUSED((float)upper, d[0] * (float)(scales & 63) * scale, sum[0]);
			sum[1] = FUSED((float)lower, d[1] * (float)(others & 63) * scale, sum[1]);
			sum[0] = FUSED(-least[0] * (float)(scales >> 8), all, sum[0]);
			sum[1] = FUSED(-least[1] * (float)(others >> 8), all, sum[1]);
		}
	}
}

template <int FORMAT>
INLINE void multiply_pieces(float (&sum)[2], const unsigned char *from, unsigned pieces, unsigned at, const slice &x)
{
#pragma unroll 1
	for (; pieces; pieces--, from += piece_bytes(FORMAT), at += piece_columns(FORMAT))
		if (FORMAT >= TILE_Q8_0) {
			operands<FORMAT> all;
			all.load(at, x);
			multiply_integers<FORMAT>(sum, from, all);
		} else {
			multiply_floats<FORMAT>(sum, from, at, x);
		}
}

// The sums of a thread: a result of a unit, four threads each.
struct result {
	float *y;
	float extra; // bias, or the present value
	bool there;
};

INLINE result result_of(const decode_product &product, const decode_layer &layer, unsigned from, unsigned units)
{
	result out;
	unsigned unit = from + THREAD_X / 4 / TILE_ROWS, matrix = 0, first = 0;
	out.there = THREAD_X / 4 / TILE_ROWS < units && THREAD_X % 4 == 0;
#pragma unroll
	for (unsigned i = 0; i < 2; i++)
		if (product.count == 3 && matrix == i && unit >= product.row_tiles[i]) {
			unit -= product.row_tiles[i];
			first += product.rows[i];
			matrix++;
		}
	unsigned row = unit * TILE_ROWS + THREAD_X / 4 % TILE_ROWS;
	out.there = out.there && row < product.rows[matrix];
	out.y = product.y + first + row;
	out.extra = 0;
	if (out.there && product.mode == GEMV_ADD)
		out.extra = load_fresh_1(out.y);
	else if (out.there && product.count == 3 && layer.bias[matrix])
		out.extra = layer.bias[matrix][row];
	return out;
}

INLINE void add_up(const decode_params &p, const decode_product &product, const memory &m, const result &to,
		   unsigned units)
{
	if (THREAD_X / 4 / TILE_ROWS >= units)
		return;
	unsigned quarter = THREAD_X % 4, row = THREAD_X / 4 % TILE_ROWS, unit = THREAD_X / 4 / TILE_ROWS;
	const float *from = m.sums + unit * (DECODE_WARPS * TILE_ROWS) + row;
	float first = 0, second = 0, squares = 0, factor = 1;
#pragma unroll
	for (unsigned i = 0; i < DECODE_WARPS; i += 4) {
		first += from[(i + quarter) * TILE_ROWS];
		squares += m.squares[i + quarter];
		if (product.mode == GEMV_GATED)
			second += from[(DECODE_UNITS * DECODE_WARPS + i + quarter) * TILE_ROWS];
	}
	for (unsigned half = 1; half < 4; half *= 2) {
		first += from_lane(first, half);
		second += from_lane(second, half);
		squares += from_lane(squares, half);
	}
	if (product.norm != DECODE_NO_NORM)
		factor = quotient(1, root_of(squares / (float)product.columns + p.epsilon));
	first *= factor;
	if (to.there)
		*to.y = product.mode == GEMV_GATED ? silu(first) * (second * factor) : to.extra + first;
}

// The sum of a row of tiles, which four lanes have parts of, to its place.
INLINE void put_sum(float *sums, float (&sum)[2])
{
	unsigned lane = THREAD_X % 32, g = lane / 4, j = lane % 4;
	for (unsigned half = 1; half < 4; half *= 2) {
		sum[0] += from_lane(sum[0], half);
		sum[1] += from_lane(sum[1], half);
	}
	if (j < 2)
		sums[g + j * 8] = j ? sum[1] : sum[0];
}

// The rows of a segment, by this warp's columns of the input, into `sums`.
template <unsigned SET, int FORMAT>
INLINE void multiply_rows(const decode_params &p, const segment &s, const memory &m, const slice &x, float *sums,
			  place *next, copier<SET> &copies)
{
	enum { SUMS = DECODE_WARPS * TILE_ROWS };
	const unsigned at_once = decode_at_once(FORMAT);
	if (only_format(SET) && FORMAT >= TILE_Q8_0 && s.pieces == 1) { // all rows by the same columns
		operands<FORMAT> all;
		all.load(0, x);
#pragma unroll 1
		for (unsigned i = 0; i < s.rows; i++, sums += SUMS) {
			float sum[2] = {0, 0};
			unsigned at = place_take(next, piece_bytes(FORMAT), p.ring_bytes);
			count_wait(next->count, next->round);
			multiply_integers<FORMAT>(sum, m.ring + at, all);
			warp_barrier();
			copies.fill(p, m, next->sum);
			place_advance(next, m);
			put_sum(sums, sum);
		}
		return;
	}
#pragma unroll 1
	for (unsigned i = 0; i < s.rows; i++, sums += SUMS) {
		float sum[2] = {0, 0};
#pragma unroll 1
		for (unsigned left = s.pieces, column = 0; left;) {
			unsigned pieces = left < at_once ? left : at_once;
			unsigned at = place_take(next, pieces * piece_bytes(FORMAT), p.ring_bytes);
			count_wait(next->count, next->round);
			multiply_pieces<FORMAT>(sum, m.ring + at, pieces, column, x);
			warp_barrier();
			copies.fill(p, m, next->sum);
			place_advance(next, m);
			left -= pieces;
			column += pieces * piece_columns(FORMAT);
		}
		put_sum(sums, sum);
	}
}
template <unsigned SET, int FORMAT>
INLINE void multiply_if(const decode_params &p, const segment &s, const memory &m, const slice &x, float *sums,
			place *next, copier<SET> &copies)
{
	if ((SET >> FORMAT & 1) && (SET == 1u << FORMAT || s.format == FORMAT))
		multiply_rows<SET, FORMAT>(p, s, m, x, sums, next, copies);
}

// A product of this block's units by the input. target: how many blocks have come when that is there.
template <unsigned SET>
INLINE void run_product(const decode_params &p, unsigned kind, const decode_layer &layer, const memory &m, place *next,
			copier<SET> &copies, unsigned target)
{
	const decode_product &product = p.products[kind];
	unsigned inputs = layer.inputs[kind], warp = THREAD_X / 32, lane = THREAD_X % 32;
	const columns mine = columns_of<SET>(product, layer, kind, warp);
	const float *norm = product.norm == DECODE_NO_NORM ? 0 : layer.norms[product.norm];
	float4 norms[PRELOADED];
#pragma unroll
	for (unsigned i = 0; i < PRELOADED; i++) {
		unsigned k = mine.begin + i * 128 + lane * 4;
		norms[i].x = norms[i].y = norms[i].z = norms[i].w = 0;
		if (norm && k < product.columns && k < mine.end)
			norms[i] = *(const float4 *)(norm + k);
	}
	const slice x = slice_of<SET>(m.slice, mine.end - mine.begin, inputs);
	unsigned last = m.units[kind].y;
	for (unsigned from = m.units[kind].x, first = from; first <= last; from += DECODE_UNITS) {
		unsigned to = from + DECODE_UNITS < last ? from + DECODE_UNITS : last;
		const result out = result_of(product, layer, from, to - from);
		if (from == first) {
			wait_for_all(p, target);
			float squares = take_slice<SET>(product, mine, inputs, x, norm, norms);
			if (!lane)
				m.squares[warp] = squares;
		} else {
			multipliers_barrier(); // sums of the units before are read
		}
#pragma unroll 1
		for (unsigned matrix = 0, row = 0; matrix < product.count; matrix++) {
			const segment s = segment_of<SET>(product, layer, mine, matrix, from, to);
			row = product.mode == GEMV_GATED && matrix ? (unsigned)DECODE_UNITS : row;
			float *sums = m.sums + (row * DECODE_WARPS + warp) * TILE_ROWS;
			multiply_if<SET, TILE_F32>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_F16>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_BF16>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q8_0>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q4_0>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q4_K>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q5_K>(p, s, m, x, sums, next, copies);
			multiply_if<SET, TILE_Q6_K>(p, s, m, x, sums, next, copies);
			row += s.rows;
		}
		multipliers_barrier();
		add_up(p, product, m, out, to - from);
		if (to == last)
			break;
	}
}

// ---- attention ----

struct positions { // of a task's part
	unsigned begin, end, parts;
};
INLINE positions part_of(const attention_params &p, unsigned part, unsigned length)
{
	positions out;
	unsigned size = (length + p.splits - 1) / p.splits;
	size = size < PART_LEAST ? (unsigned)PART_LEAST : (size + 7) / 8 * 8;
	out.parts = (length + size - 1) / size;
	out.begin = part * size;
	out.end = out.begin + size < length ? out.begin + size : length;
	return out;
}

// Keys and values of this block's part on their way to the second-level cache.
INLINE void fetch_keys(const attention_params &p, unsigned tasks, unsigned length)
{
	for (unsigned i = BLOCK_X; i < tasks * p.splits; i += BLOCKS) {
		const positions mine = part_of(p, i % p.splits, length);
		unsigned count = mine.begin < mine.end ? mine.end - mine.begin : 0;
#pragma unroll 1
		for (unsigned k = THREAD_X; k < count * 2; k += DECODE_THREADS) {
			const unsigned short *from = page_row(p, 0, mine.begin + k / 2, k % 2,
							      i / p.splits / p.head_blocks);
			asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
			if (p.head_padded > 64)
				asm volatile("prefetch.global.L2 [%0];" ::"l"(from + 64));
		}
	}
}

// A head after the product, in `out`: its norm, and turned by its position. By one warp.
INLINE void turn_head(const attention_params &p, float *out, const float *in, const float *norm, const float *rope,
		      float scale)
{
	unsigned lane = THREAD_X % 32, pairs = p.rope_size / 2;
	float v[4], squares = 0;
#pragma unroll
	for (unsigned i = 0; i < 4; i++)
		v[i] = lane + i * 32 < p.head_size ? load_fresh_1(in + lane + i * 32) : 0;
	if (norm) {
#pragma unroll
		for (unsigned i = 0; i < 4; i++)
			squares += v[i] * v[i];
		scale *= quotient(1, root_of(warp_sum(squares) / (float)p.head_size + p.epsilon));
#pragma unroll
		for (unsigned i = 0; i < 4; i++)
			v[i] *= lane + i * 32 < p.head_size ? norm[lane + i * 32] : 0;
	}
#pragma unroll
	for (unsigned i = 0; i < 4; i++)
		if (lane + i * 32 < p.head_padded)
			out[lane + i * 32] = v[i] * scale;
	warp_barrier();
#pragma unroll
	for (unsigned k = 0; k < 2; k++) {
		unsigned i = lane + k * 32, a = p.rope_halves ? i : 2 * i, b = p.rope_halves ? i + pairs : 2 * i + 1;
		if (i < pairs) {
			float cosine = rope[2 * i], sine = rope[2 * i + 1], x = out[a], y = out[b];
			out[a] = x * cosine - y * sine;
			out[b] = x * sine + y * cosine;
		}
	}
	warp_barrier();
}

// Attention of one part of a task. scratch: q (ATTENTION_HEADS, head_padded), warps' results (DECODE_WARPS,
// ATTENTION_HEADS, head_padded + 2), k and v of this position (2, head_padded) in f16, a word.
INLINE void attend(const attention_params &p, unsigned task, unsigned part, const memory &m, unsigned length)
{
	unsigned head = task / p.head_blocks, group = p.heads / p.kv_heads,
		 head0 = task % p.head_blocks * ATTENTION_HEADS;
	unsigned heads = group - head0 < ATTENTION_HEADS ? group - head0 : ATTENTION_HEADS, padded = p.head_padded;
	unsigned position = length - 1, warp = THREAD_X / 32, lane = THREAD_X % 32, stride = padded + 2;
	const positions mine = part_of(p, part, length);
	if (part >= mine.parts)
		return;
	float *queries = m.sums, *results = queries + ATTENTION_HEADS * padded;
	unsigned short *own = (unsigned short *)(results + DECODE_WARPS * ATTENTION_HEADS * stride);
	unsigned *before = (unsigned *)(own + 2 * padded);
	const float *q = p.qkv + (head * group + head0) * p.head_size, *k_row = p.qkv + (p.heads + head) * p.head_size;
	if (warp < ATTENTION_HEADS) {
		if (warp < heads)
			turn_head(p, queries + warp * padded, q + warp * p.head_size, p.q_norm, m.rope, p.scale);
		for (unsigned i = lane; warp >= heads && i < padded; i += 32)
			queries[warp * padded + i] = 0;
	} else if (warp < ATTENTION_HEADS + 2 && mine.end == length) { // this position's own k, and v
		unsigned which = warp - ATTENTION_HEADS;
		float *row = results + which * padded;
		unsigned short *to = page_row(p, 0, position, which, head);
		if (!which)
			turn_head(p, row, k_row, p.k_norm, m.rope, 1);
#pragma unroll
		for (unsigned i = lane; which && i < padded; i += 32)
			row[i] = i < p.head_size ? load_fresh_1(k_row + p.kv_heads * p.head_size + i) : 0;
		warp_barrier();
		for (unsigned i = lane * 2; i < padded; i += 64)
			*(unsigned *)(to + i) = *(unsigned *)(own + which * padded + i) = pack_f16(row[i], row[i + 1]);
	}
	multipliers_barrier();
	unsigned groups = DECODE_THREADS / p.lanes, group_of = THREAD_X / p.lanes, offset = lane % p.lanes * 4;
	unsigned of_warp = 32 / p.lanes, warps = (mine.end - mine.begin + of_warp - 1) / of_warp;
	warps = warps < DECODE_WARPS ? warps : (unsigned)DECODE_WARPS;
	float sum[ATTENTION_HEADS][4], most[ATTENTION_HEADS], total[ATTENTION_HEADS];
#pragma unroll
	for (int h = 0; h < ATTENTION_HEADS; h++) {
		clear(sum[h]);
		most[h] = -1e30f;
		total[h] = 0;
	}
#pragma unroll 1
	for (unsigned first = mine.begin; warp < warps && first < mine.end; first += groups * AT_ONCE) {
		uint2 k[AT_ONCE], v[AT_ONCE];
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			unsigned at = first + i * groups + group_of;
			k[i].x = k[i].y = v[i].x = v[i].y = 0;
			if (at < mine.end && at != position && offset < padded) {
				const unsigned short *from = page_row(p, 0, at, 0, head) + offset;
				k[i] = *(const uint2 *)from;
				v[i] = *(const uint2 *)(from + p.kv_heads * STAGE_KV_PAGE * padded);
			}
		}
		// Only the part that ends with this position has its key and value in `own`. An earlier part may read
		// beyond its end up to here, where its shared memory may contain NaN; and NaN times 0 is NaN.
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++)
			if (first + i * groups + group_of == position && mine.end == length && offset < padded) {
				k[i] = *(const uint2 *)(own + offset);
				v[i] = *(const uint2 *)(own + padded + offset);
			}
		float score[ATTENTION_HEADS][AT_ONCE];
#pragma unroll
		for (int h = 0; h < ATTENTION_HEADS; h++) {
			const float4 query = *(const float4 *)(queries + h * padded + (offset < padded ? offset : 0));
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++) {
				float s = query.x * low_f16(k[i].x);
				s = FUSED(query.y, high_f16(k[i].x), s);
				s = FUSED(query.z, low_f16(k[i].y), s);
				score[h][i] = FUSED(query.w, high_f16(k[i].y), s);
			}
		}
#pragma unroll
		for (unsigned half = 1; half < 32; half *= 2)
#pragma unroll
			for (int h = 0; h < ATTENTION_HEADS; h++)
#pragma unroll
				for (int i = 0; i < AT_ONCE; i++) {
					float other = from_lane(score[h][i], half);
					score[h][i] += half < p.lanes ? other : 0;
				}
#pragma unroll
		for (int h = 0; h < ATTENTION_HEADS; h++) {
			float next = most[h];
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++) {
				if (first + i * groups + group_of >= mine.end)
					score[h][i] = __builtin_bit_cast(float, 0xff800000u);
				next = larger(next, score[h][i]);
			}
			float keep = exp2_of(most[h] - next);
			most[h] = next;
			total[h] *= keep;
#pragma unroll
			for (int e = 0; e < 4; e++)
				sum[h][e] *= keep;
#pragma unroll
			for (int i = 0; i < AT_ONCE; i++) {
				score[h][i] = exp2_of(score[h][i] - next);
				total[h] += score[h][i];
			}
		}
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			float value[4] = {low_f16(v[i].x), high_f16(v[i].x), low_f16(v[i].y), high_f16(v[i].y)};
#pragma unroll
			for (int h = 0; h < ATTENTION_HEADS; h++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					sum[h][e] = FUSED(score[h][i], value[e], sum[h][e]);
		}
	}
	multipliers_barrier(); // the scratch of k and v is where results go
	if (warp < warps) {
#pragma unroll
		for (int h = 0; h < ATTENTION_HEADS; h++) {
#pragma unroll 1
			for (unsigned half = p.lanes; half < 32; half *= 2) {
				float best = larger(most[h], from_lane(most[h], half)), keep = exp2_of(most[h] - best);
				most[h] = best;
				total[h] *= keep;
				total[h] += from_lane(total[h], half);
#pragma unroll
				for (int e = 0; e < 4; e++) {
					sum[h][e] *= keep;
					sum[h][e] += from_lane(sum[h][e], half);
				}
			}
			float *to = results + (warp * ATTENTION_HEADS + h) * stride;
			if (lane < p.lanes && offset < padded)
#pragma unroll
				for (int e = 0; e < 4; e++)
					to[offset + e] = sum[h][e];
			if (!lane) {
				to[padded] = most[h];
				to[padded + 1] = total[h];
			}
		}
	}
	multipliers_barrier();
	float *partial = p.partial + ((u64)task * p.splits + part) * ATTENTION_HEADS * stride;
	float *out = p.out + (head * group + head0) * p.head_size;
	unsigned h = THREAD_X / 128, i = THREAD_X % 128;
	if (h < heads && i < padded) {
		float best = -1e30f, all = 0, value = 0;
#pragma unroll 4
		for (unsigned w = 0; w < warps; w++)
			best = larger(best, results[(w * ATTENTION_HEADS + h) * stride + padded]);
#pragma unroll 4
		for (unsigned w = 0; w < warps; w++) {
			const float *from = results + (w * ATTENTION_HEADS + h) * stride;
			float weight = exp2_of(from[padded] - best);
			all = FUSED(weight, from[padded + 1], all);
			value = FUSED(weight, from[i], value);
		}
		if (mine.parts > 1) {
			partial[h * stride + i] = value;
			if (!i) {
				partial[h * stride + padded] = best;
				partial[h * stride + padded + 1] = all;
			}
		} else if (i < p.head_size) {
			out[h * p.head_size + i] = quotient(value, all);
		}
	}
	if (mine.parts == 1)
		return;
	// The last part of a task to come puts all together.
	multipliers_barrier();
	if (!THREAD_X) {
		unsigned old;
		asm volatile("fence.acq_rel.gpu; atom.relaxed.gpu.global.add.u32 %0, [%1], 1; fence.acq_rel.gpu;"
			     : "=r"(old)
			     : "l"(p.ready + task)
			     : "memory");
		*before = old;
	}
	multipliers_barrier();
	if (*before != mine.parts - 1)
		return;
	partial = p.partial + (u64)task * p.splits * ATTENTION_HEADS * stride;
	if (h < heads && i < p.head_size) {
		float best = -1e30f, all = 0, value = 0;
#pragma unroll 1
		for (unsigned first = 0; first < mine.parts; first += 8) {
			float m[8], t[8], v[8], next = best;
#pragma unroll
			for (unsigned k = 0; k < 8; k++) {
				const float *from = partial + ((first + k) * ATTENTION_HEADS + h) * stride;
				bool there = first + k < mine.parts;
				m[k] = there ? load_fresh_1(from + padded) : -1e30f;
				t[k] = there ? load_fresh_1(from + padded + 1) : 0;
				v[k] = there ? load_fresh_1(from + i) : 0;
			}
#pragma unroll
			for (unsigned k = 0; k < 8; k++)
				next = larger(next, m[k]);
			float keep = exp2_of(best - next);
			best = next;
			all *= keep;
			value *= keep;
#pragma unroll
			for (unsigned k = 0; k < 8; k++) {
				float weight = exp2_of(m[k] - next);
				all = FUSED(weight, t[k], all);
				value = FUSED(weight, v[k], value);
			}
		}
		out[h * p.head_size + i] = quotient(value, all);
	}
	if (!THREAD_X)
		p.ready[task] = 0;
}

INLINE attention_params attention_of(const decode_params &p, const decode_layer &layer, unsigned index)
{
	attention_params out = p.attention;
	out.kv += index * p.kv_layer;
	out.q_norm = layer.q_norm;
	out.k_norm = layer.k_norm;
	return out;
}

// shared: layers (layer_count + 1), units (8), segments (DECODE_WARPS), counts of the rings' copies (DECODE_WARPS, slots), squares, rope, sums,
// slices (DECODE_WARPS, slice_bytes), rings (DECODE_WARPS, ring_bytes), from a multiple of DECODE_ALIGN on; attention
// has sums and slices. stage_decode.c adds up the same.
template <unsigned SET> INLINE void decode(const decode_params &p)
{
	unsigned warp = THREAD_X / 32, layers = p.layer_count + 1;
	memory m;
	unsigned char *at = shared;
	for (unsigned i = THREAD_X; i < layers * sizeof(decode_layer) / 16; i += DECODE_THREADS)
		((uint4 *)at)[i] = ((const uint4 *)p.layers)[i];
	m.layers = (const decode_layer *)at;
	at += layers * sizeof(decode_layer);
	m.units = (const uint2 *)at;
	if (THREAD_X < DECODE_KINDS) {
		uint2 units;
		units.x = BLOCK_X * p.products[THREAD_X].units / BLOCKS;
		units.y = (BLOCK_X + 1) * p.products[THREAD_X].units / BLOCKS;
		((uint2 *)at)[THREAD_X] = units;
	}
	at += 8 * sizeof(uint2);
	m.segment = (uint4 *)at + warp;
	at += DECODE_WARPS * sizeof(uint4);
	m.full = shared_place(at) + warp * p.slots * 8;
	m.full_end = m.full + p.slots * 8;
	at += DECODE_WARPS * p.slots * 8;
	m.squares = (float *)at;
	m.rope = m.squares + DECODE_WARPS;
	m.sums = m.rope + (p.attention.rope_size + 3) / 4 * 4;
	at = (unsigned char *)(m.sums + SUM_ROWS * DECODE_WARPS * TILE_ROWS);
	m.slice = at + warp * p.slice_bytes;
	at += DECODE_WARPS * p.slice_bytes;
	m.ring_at = ring_bytes_of(shared_place(at)) + warp * p.ring_bytes;
	m.ring = at + (m.ring_at - shared_place(at));
	if (THREAD_X % 32 == 0)
		for (unsigned i = m.full; i < m.full_end; i += 8)
			count_begin(i);
	counts_shown();
	block_barrier();
	copier<SET> copies;
	copies.begin(p, m);
	copies.fill(p, m, 0);
	wait_for_previous();
	unsigned base = p.arrived[1], target = base, length = p.attention.positions[0] + 1, kind = DECODE_QKV;
	for (unsigned i = THREAD_X; i < p.attention.rope_size; i += DECODE_THREADS)
		m.rope[i] = p.attention.rope[(u64)(length - 1) * p.attention.rope_size + i];
	place next = {m.full, 0, 0, 0};
#pragma unroll 1
	for (unsigned i = 0; i < p.layer_count + p.predicts;) {
		kind = i == p.layer_count ? (unsigned)DECODE_OUTPUT : kind;
		if (kind == DECODE_QKV)
			fetch_keys(attention_of(p, m.layers[i], i), p.tasks, length);
		run_product<SET>(p, kind, m.layers[i], m, &next, copies, target);
		if (kind == DECODE_OUTPUT)
			break;
		arrive(p);
		target += BLOCKS;
		if (kind == DECODE_QKV) {
			wait_for_all(p, target);
#pragma unroll 1
			for (unsigned k = BLOCK_X; k < p.tasks * p.attention.splits; k += BLOCKS) {
				attend(attention_of(p, m.layers[i], i), k / p.attention.splits, k % p.attention.splits,
				       m, length);
				multipliers_barrier();
			}
			arrive(p);
			target += BLOCKS;
		}
		kind = kind == DECODE_DOWN ? (unsigned)DECODE_QKV : kind + 1;
		i += kind == DECODE_QKV;
	}
	if (!p.predicts)
		wait_for_all(p, target);
	if (!THREAD_X && !BLOCK_X)
		p.arrived[1] = target;
}

#define KERNEL(name, formats) \
	extern "C" __global__ void __launch_bounds__(DECODE_THREADS, 1) \
		decode_##name(const CONSTANT decode_params p) \
	{ \
		decode<formats>(p); \
	}
DECODE_SETS(KERNEL)

#endif
