// For stage_decode.cu: sets of formats, bulk copies into the rings of warps and the barriers that count them, blocks that
// wait for each other, and which rows and columns of a product a block and a warp have.
#include "stage.cuh"
#pragma once

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
