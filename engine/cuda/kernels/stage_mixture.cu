// One to eight rows through their chosen experts, for decoding of a mixture. Two kernels: `in` computes silu(gate) * up
// of each row and each of its experts; `out` computes down of that, adds the results of a row's experts, each times its
// weight, and adds the sum to x.
//
// Choice: each block works out from the scores which experts the rows chose, so no earlier kernel has to.
// Tile: 16 results by all columns of a matrix (`in`: of gate and of up) are a unit, and one to sixteen warps share its
// tiles. A tile of weights is read once for all rows; where a row did not choose the expert, zeros stand in its place.
// For `out` the chosen experts' columns are one long row: those of the first, then those of the second.
// Pipeline: each warp has a ring of two to four tiles in shared memory, filled by cp.async. `in` lets the next kernel
// begin once the scores are there, so `out` fetches its first weights while `in` still computes.
// Bound: reading weights. But a whole step of one row of a 30B mixture with 3B active (Q4_K_M, H100) reads 637 GB/s, a
// fifth of the memory's rate: a layer takes 63 us, and reading it would take 12. Which kernels of a layer take the rest
// was not profiled. Figures: docs/notes/performance-gpu.md.
#include "stage_gemv.cuh"
#include "stage_groups.cuh"

struct choice { // of all rows, in shared memory
	unsigned count;                        // experts that any row has chosen
	unsigned most[GEMV_ROWS];              // the largest input of a row, as bits
	unsigned first[MIXTURE_EXPERTS];       // of an expert that is chosen: its place in `expert`
	float weight[MIXTURE_SLOTS];           // of a slot
	unsigned short chosen[MIXTURE_SLOTS];  // by a slot
	unsigned short expert[MIXTURE_SLOTS];  // that are chosen
	unsigned char slot[MIXTURE_SLOTS][GEMV_ROWS]; // of such an expert and a row; the number of slots: none
};
static_assert(sizeof(choice) <= MIXTURE_CHOICE_BYTES, "the host reserves that much");

enum { EXPERTS_OF_LANE = MIXTURE_EXPERTS / 32 };

// Experts of all groups but the best are as if they were taken.
INLINE void take_groups(const mixture_params &p, unsigned (&word)[EXPERTS_OF_LANE], unsigned lane)
{
	unsigned size = p.experts / p.groups, of[2] = {0, 0};
	for (unsigned group = 0; group < p.groups; group++) {
		float best[2] = {NO_SCORE, NO_SCORE};
		unsigned first = group * size, taken = NO_PLACE;
#pragma unroll
		for (unsigned turn = 0; turn < 2; turn++) { // the best expert, and the best of the others
			unsigned most = 0, place = NO_PLACE;
#pragma unroll
			for (unsigned i = EXPERTS_OF_LANE; i-- > 0;) {
				unsigned e = i * 32 + lane;
				if (e >= first && e < first + size && e != taken && word[i] >= most) {
					most = word[i];
					place = e;
				}
			}
			unsigned all = warp_most_word(most);
			taken = warp_least_word(most == all ? place : (unsigned)NO_PLACE);
			best[turn] = all ? number_of_word(all) : NO_SCORE;
		}
		unsigned word_of_group = group_word(best[0], best[1], p.choice && size > 1);
		of[0] = group == lane ? word_of_group : of[0];
		of[1] = group == lane + 32 ? word_of_group : of[1];
	}
	u64 kept = best_groups(of, p.groups_used);
#pragma unroll
	for (unsigned i = 0; i < EXPERTS_OF_LANE; i++)
		if (i * 32 + lane < p.experts && !(kept >> (i * 32 + lane) / size & 1))
			word[i] = 0;
}

// Like `route` of stage_experts.cu: the experts with the largest scores, the lowest number of equals first. By one
// warp.
INLINE void route_row(const mixture_params &p, choice *to, unsigned row, unsigned lane)
{
	const float *from = p.scores + (u64)row * p.experts;
	float value[EXPERTS_OF_LANE], largest = 0, total = 0, all = 0;
	unsigned word[EXPERTS_OF_LANE];
#pragma unroll
	for (unsigned i = 0; i < EXPERTS_OF_LANE; i++) {
		unsigned e = i * 32 + lane;
		value[i] = e < p.experts ? load_fresh_1(from + e) : 0;
		value[i] = p.choice ? sigmoid(value[i]) : value[i];
		word[i] = e < p.experts ? word_in_order(p.choice ? value[i] + p.choice[e] : value[i]) : 0;
	}
	if (p.groups)
		take_groups(p, word, lane);
	for (unsigned k = 0; k < p.used; k++) {
		unsigned most = 0, place = NO_PLACE;
#pragma unroll
		for (unsigned i = 0; i < EXPERTS_OF_LANE; i++)
			most = most > word[i] ? most : word[i];
		most = warp_most_word(most);
#pragma unroll
		for (unsigned i = EXPERTS_OF_LANE; i-- > 0;)
			place = most && word[i] == most ? i * 32 + lane : place;
		place = warp_least_word(place);
		float score = number_of_word(most);
		if (!k) {
			largest = score;
#pragma unroll
			for (unsigned i = 0; i < EXPERTS_OF_LANE; i++)
				all += i * 32 + lane < p.experts ? exp_of(value[i] - largest) : 0;
			all = warp_sum(all);
		}
		float weight = exp_of(score - largest); // NaN if only NaN scores are left
		if (p.choice && most) {
			weight = 0;
#pragma unroll
			for (unsigned i = 0; i < EXPERTS_OF_LANE; i++)
				weight += i * 32 + lane == place ? value[i] : 0;
			weight = warp_sum(weight);
		}
		total += weight;
#pragma unroll
		for (unsigned i = 0; i < EXPERTS_OF_LANE; i++)
			word[i] = i * 32 + lane == place ? 0 : word[i];
		if (!lane) {
			to->chosen[row * p.used + k] = (unsigned short)(most ? place : k);
			to->weight[row * p.used + k] = weight;
		}
	}
	warp_barrier();
	total = total_of(p.share, p.choice, all, total);
	for (unsigned k = lane; k < p.used; k += 32)
		to->weight[row * p.used + k] = quotient(to->weight[row * p.used + k], total) * p.scale;
}

// The choice of all rows; by the whole block.
INLINE void choose(const mixture_params &p, choice *to)
{
	const unsigned slots = p.rows * p.used, warp = THREAD_X / 32, lane = THREAD_X % 32;
	if (THREAD_X < MIXTURE_EXPERTS)
		to->first[THREAD_X] = slots;
	if (THREAD_X < MIXTURE_SLOTS * GEMV_ROWS / 4)
		((unsigned *)to->slot)[THREAD_X] = slots * 0x01010101u;
	if (THREAD_X < GEMV_ROWS)
		to->most[THREAD_X] = 0;
	if (warp < p.rows)
		route_row(p, to, warp, lane);
	block_barrier();
	const unsigned mine = THREAD_X < slots ? to->chosen[THREAD_X] : 0;
	if (THREAD_X < slots)
		asm volatile("red.shared.min.u32 [%0], %1;" ::"r"(shared_place(to->first + mine)), "r"(THREAD_X) : "memory");
	block_barrier();
	if (!warp) {
		unsigned count = 0;
		for (unsigned begin = 0; begin < slots; begin += 32) {
			unsigned slot = begin + lane, votes, before;
			unsigned expert = slot < slots ? to->chosen[slot] : 0, leads = slot < slots && to->first[expert] == slot;
			asm volatile("{ .reg .pred leads; setp.ne.u32 leads, %1, 0; vote.sync.ballot.b32 %0, leads, 0xffffffff; }"
				     : "=r"(votes)
				     : "r"(leads)
				     : "memory");
			asm("popc.b32 %0, %1;" : "=r"(before) : "r"(votes & ((1u << lane) - 1)));
			if (leads) { // no slot to come has this number
				to->expert[count + before] = (unsigned short)expert;
				to->first[expert] = count + before;
			}
			asm("popc.b32 %0, %1;" : "=r"(before) : "r"(votes));
			count += before;
			warp_barrier();
		}
		if (!lane)
			to->count = count;
	}
	block_barrier();
	if (THREAD_X < slots)
		to->slot[to->first[mine]][THREAD_X / p.used] = (unsigned char)THREAD_X;
	block_barrier();
}

// ---- tiles ----

// A group of warps goes over its units, and a warp over its tiles of each unit. In: units are the row tiles of each
// chosen expert, and a unit's tiles are those of gate, then those of up. Out: a unit is a row tile, with the tiles of
// each chosen expert.
struct mixture_cursor {
	unsigned unit, tile;
};
struct mixture_places {
	unsigned warp, lane, group, member, unit_step, units, tiles; // tiles: of a unit
};

template <bool OUT, int BYTES>
INLINE const unsigned char *tile_at(const mixture_params &p, const choice *chosen, const mixture_cursor &c)
{
	unsigned part = OUT ? c.tile / p.column_tiles : c.tile >= p.column_tiles;
	unsigned place = OUT ? part : c.unit / p.row_tiles, row_tile = OUT ? c.unit : c.unit - place * p.row_tiles;
	const unsigned char *tiles = !OUT && part ? p.tiles[1] : p.tiles[0];
	u64 at = ((u64)chosen->expert[place] * p.row_tiles + row_tile) * p.column_tiles + (c.tile - part * p.column_tiles);
	return tiles + at * BYTES;
}

// Copy the next tile of this warp to `to`, if there is one.
template <bool OUT, int BYTES>
INLINE void mixture_fetch(const mixture_params &p, const choice *chosen, const mixture_places &at, mixture_cursor *c,
			  unsigned to)
{
	if (c->unit < at.units) {
		const unsigned char *from = tile_at<OUT, BYTES>(p, chosen, *c) + at.lane * 16;
		to += at.lane * 16;
#pragma unroll
		for (unsigned i = 0; i < BYTES; i += 512)
			if (i + 512 <= BYTES || i + at.lane * 16 < BYTES)
				copy_16(to + i, from + i);
		c->tile += p.warps_of_unit;
		if (c->tile >= at.tiles) {
			c->tile = at.member;
			c->unit += at.unit_step;
		}
	}
	copies_end();
}

// ---- activations ----

template <int FORMAT> struct mixture_kinds { // as stage_gemv.cuh asks for them
	enum { INTEGERS = FORMAT >= TILE_Q8_0, halves = FORMAT == TILE_F16, pairs = FORMAT == TILE_F32 || FORMAT == TILE_BF16 };
	unsigned padded;
};

INLINE float4 load_at(const mixture_params &p, unsigned row, unsigned k)
{
	float4 v;
	v.x = v.y = v.z = v.w = 0;
	return k < p.columns ? load_fresh(p.x + (u64)row * p.columns + k) : v;
}
template <int FORMAT>
INLINE void store_others(const mixture_kinds<FORMAT> &kinds, const layout_of_rows &to, unsigned row, unsigned k, const float4 &v,
			 float by)
{
	store_two(kinds, to, row, k, v.x * by, v.y * by);
	store_two(kinds, to, row, k + 2, v.z * by, v.w * by);
}

// In: load the rows, normed; the warps of a row share its columns. factors: those of a row's results.
template <int FORMAT>
INLINE void take_inputs(const mixture_params &p, choice *chosen, const layout_of_rows &to, float *factors, float *scratch)
{
	const mixture_kinds<FORMAT> kinds = {p.padded};
	const unsigned lane = THREAD_X % 32, warp = THREAD_X / 32;
	const unsigned warps = p.rows == 1 ? GEMV_WARPS : p.rows == 2 ? GEMV_WARPS / 2 : p.rows <= 4 ? GEMV_WARPS / 4 : GEMV_WARPS / 8;
	const unsigned row = warp / warps, begin = (warp % warps * 32 + lane) * 4, step = warps * 128;
	float squares = 0, most = 0;
#pragma unroll 4
	for (unsigned k = begin; row < p.rows && k < p.padded; k += step) { // padded: a multiple of 128
		float4 v = load_at(p, row, k);
		squares += squares_of(v);
		v = k < p.columns ? weighted(v, p.norm, k) : v;
		if (kinds.INTEGERS)
			store_integers(kinds, to, row, k, v, 1);
		else
			most = larger(most, most_of(v));
	}
	squares = warp_sum(squares);
	most = kinds.INTEGERS ? 0 : warp_most(most);
	if (!lane) {
		scratch[warp] = squares;
		scratch[GEMV_WARPS + warp] = most;
	}
	block_barrier();
	squares = most = 0;
	for (unsigned i = 0; row < p.rows && i < warps; i++) {
		squares += scratch[row * warps + i];
		most = larger(most, scratch[GEMV_WARPS + row * warps + i]);
	}
	float factor = p.norm ? quotient(1, root_of(squares / (float)p.columns + p.epsilon)) : 1, scale = scale_for(most);
	if (row < p.rows && warp % warps == 0 && !lane)
		factors[row] = kinds.INTEGERS ? factor : factor / scale;
	for (unsigned k = begin; !kinds.INTEGERS && row < p.rows && k < p.padded; k += step) {
		float4 v = load_at(p, row, k);
		store_others(kinds, to, row, k, k < p.columns ? weighted(v, p.norm, k) : v, scale);
	}
	block_barrier();
}

// Out: what each slot gave, times its weight, and behind all slots one of zeros. The warps share slots by 128 columns.
template <int FORMAT>
INLINE void take_slots(const mixture_params &p, choice *chosen, const layout_of_rows &to, float *factors)
{
	const mixture_kinds<FORMAT> kinds = {p.padded};
	const unsigned lane = THREAD_X % 32, warp = THREAD_X / 32, slots = p.rows * p.used, pieces = p.padded / 128;
	float4 zeros;
	zeros.x = zeros.y = zeros.z = zeros.w = 0;
	for (unsigned i = warp; !kinds.INTEGERS && i < slots * pieces; i += GEMV_WARPS) {
		unsigned slot = i / pieces, k = (i % pieces * 32 + lane) * 4;
		float most = warp_most(most_of(load_at(p, slot, k)) * absolute(chosen->weight[slot]));
		if (!lane)
			asm volatile("red.shared.max.u32 [%0], %1;" ::"r"(shared_place(chosen->most + slot / p.used)),
				     "r"(__builtin_bit_cast(unsigned, most))
				     : "memory");
	}
	if (!kinds.INTEGERS)
		block_barrier();
	if (THREAD_X < p.rows)
		factors[THREAD_X] = kinds.INTEGERS ? 1 : 1 / scale_for(__builtin_bit_cast(float, chosen->most[THREAD_X]));
#pragma unroll 4
	for (unsigned i = warp; i < (slots + 1) * pieces; i += GEMV_WARPS) {
		unsigned slot = i / pieces, k = (i % pieces * 32 + lane) * 4;
		bool there = slot < slots;
		float4 v = there ? load_at(p, slot, k) : zeros;
		float weight = there ? chosen->weight[slot] : 0;
		if (kinds.INTEGERS)
			store_integers(kinds, to, slot, k, v, weight);
		else
			store_others(kinds, to, slot, k, v,
				     there ? weight * scale_for(__builtin_bit_cast(float, chosen->most[slot / p.used])) : 0);
	}
	block_barrier();
}

// ---- products ----

// Operand B of a tile: the activations of this lane's rows, by slot (out) or by row (in).
template <bool OUT>
INLINE void inputs_of(const mixture_params &p, const choice *chosen, const layout_of_rows &from, unsigned place, unsigned lane,
		      activations *b, integers *ints)
{
	const unsigned g = lane / 4, j = lane % 4, last = p.rows - 1;
	auto row_at = [&](unsigned row) { return OUT ? chosen->slot[place][row] : row < last ? row : last; };
	b->halves = from.halves + row_at(g) * from.half_bytes + j * 8;
	b->pairs = from.pairs + row_at(g) * from.pair_bytes + j * 8;
	b->plane_bytes = p.padded * 2;
#pragma unroll
	for (unsigned nt = 0; nt < 2; nt++) {
		unsigned row = row_at(nt * 4 + g / 2), mine = row_at(nt * 4 + j);
		ints->bytes[nt] = from.integers + row * from.integer_bytes + g % 2 * (p.padded + 32) + j * 8;
		ints->scales[nt] = from.scales + mine * from.blocks;
		ints->totals[nt] = from.totals + mine * from.blocks;
	}
}

template <int FORMAT, bool OUT>
INLINE void mixture_put(const mixture_params &p, const choice *chosen, unsigned unit, unsigned row, unsigned within, float first,
			float second, float factor)
{
	factor *= unit_of(FORMAT);
	if (OUT) {
		u64 at = (u64)row * p.results + unit * TILE_ROWS + within;
		float by = p.shared_score ? quotient(1, 1 + exp_of(-load_fresh_1(p.shared_score + row))) : 1;
		float sum = first * factor;
		if (unit * TILE_ROWS + within >= p.results)
			return;
		if (p.shared)
			sum = FUSED(by, load_fresh_1(p.shared + at), sum);
		p.y[at] = load_fresh_1(p.y + at) + sum;
		return;
	}
	unsigned place = unit / p.row_tiles, slot = chosen->slot[place][row];
	if (slot < p.rows * p.used)
		p.y[(u64)slot * p.results + (unit - place * p.row_tiles) * TILE_ROWS + within] =
			silu(first * factor) * (second * factor);
}

template <int FORMAT, int SLOTS, bool OUT, int NT, int BYTES>
INLINE void mixture_units(const mixture_params &p, choice *chosen, const mixture_places &at, mixture_cursor ahead,
			  unsigned char *ring, const layout_of_rows &from, float *sums, const float *factors)
{
	enum { PARTS = OUT ? 1 : 2 };
	const unsigned unit_floats = p.rows * TILE_ROWS, sums_of_part = GEMV_WARPS * unit_floats, ring_place = shared_place(ring);
	unsigned slot = 0, parity = 0;
	activations b;
	integers ints;
	inputs_of<OUT>(p, chosen, from, 0, at.lane, &b, &ints);
	for (unsigned unit = at.group * BLOCKS + BLOCK_X; unit < at.units; unit += at.unit_step, parity ^= 1) {
		unsigned tile = at.member;
#pragma unroll
		for (unsigned part = 0; part < PARTS; part++) {
			const unsigned end = OUT ? at.tiles : (part + 1) * p.column_tiles;
			float sum[4];
			clear(sum);
			for (; tile < end; tile += p.warps_of_unit) {
				unsigned place = OUT ? tile / p.column_tiles : part;
				if (OUT)
					inputs_of<OUT>(p, chosen, from, place, at.lane, &b, &ints);
				copies_wait<SLOTS - 1>();
				warp_barrier();
				multiply_tile<FORMAT, NT>(sum, FORMAT, ring + slot * BYTES, tile - place * p.column_tiles, at.lane, b,
							  ints);
				warp_barrier();
				mixture_fetch<OUT, BYTES>(p, chosen, at, &ahead, ring_place + slot * BYTES);
				slot = slot + 1 == SLOTS ? 0 : slot + 1;
			}
			put_sums(p, sums + (parity * PARTS + part) * sums_of_part + at.warp * unit_floats, sum, FORMAT, at.lane);
		}
		barrier(1 + at.group, p.warps_of_unit * 32);
		// The sums of the next unit go to the other half, so that one barrier is enough.
		const float *parts = sums + parity * PARTS * sums_of_part + at.group * p.warps_of_unit * unit_floats;
		for (unsigned i = at.member * 32 + at.lane; i < unit_floats; i += p.warps_of_unit * 32) {
			float first = 0, second = 0;
#pragma unroll 4
			for (unsigned other = 0; other < p.warps_of_unit; other++) {
				first += parts[other * unit_floats + i];
				second += OUT ? 0 : parts[sums_of_part + other * unit_floats + i];
			}
			mixture_put<FORMAT, OUT>(p, chosen, unit, i / TILE_ROWS, i % TILE_ROWS, first, second, factors[i / TILE_ROWS]);
		}
	}
}

template <int FORMAT> struct mixture_tile {
	enum {
		BYTES = FORMAT == TILE_F32    ? 2048
			: FORMAT <= TILE_BF16 ? 1024
			: FORMAT == TILE_Q8_0 ? 1088
			: FORMAT == TILE_Q4_0 ? 1152
			: FORMAT == TILE_Q4_K ? 2304
			: FORMAT == TILE_Q5_K ? 2816
					      : 3360,
	};
};

template <int FORMAT, int SLOTS, bool OUT> INLINE void mixture(const mixture_params &p)
{
	// shared: the choice (MIXTURE_CHOICE_BYTES), rings (GEMV_WARPS, SLOTS, a tile), activations, sums (2, parts,
	// GEMV_WARPS, rows, 16), factors (GEMV_ROWS), scratch (2, GEMV_WARPS); stage_mixture.c adds up the same.
	typedef mixture_kinds<FORMAT> K;
	enum { BYTES = mixture_tile<FORMAT>::BYTES };
	const unsigned warp = THREAD_X / 32, lane = THREAD_X % 32, inputs = OUT ? p.rows * p.used + 1 : p.rows;
	choice *chosen = (choice *)shared;
	unsigned char *rings = shared + MIXTURE_CHOICE_BYTES, *ring = rings + warp * SLOTS * BYTES;
	layout_of_rows to;
	to.blocks = p.padded / 32;
	to.integer_bytes = K::INTEGERS ? 2 * p.padded + 64 : 0;
	to.half_bytes = K::halves ? p.padded * 2 + 32 : 0;
	to.pair_bytes = K::pairs ? p.padded * 4 + 32 : 0;
	to.integers = rings + GEMV_WARPS * SLOTS * BYTES;
	to.halves = to.integers + inputs * to.integer_bytes;
	to.pairs = to.halves + inputs * to.half_bytes;
	to.scales = (float *)(to.pairs + inputs * to.pair_bytes);
	to.totals = to.scales + inputs * to.blocks;
	float *sums = to.totals + inputs * to.blocks;
	float *factors = sums + 2 * (OUT ? 1 : 2) * GEMV_WARPS * p.rows * TILE_ROWS, *scratch = factors + GEMV_ROWS;

	if (OUT) {
		let_next_begin(); // the scores are there: see above
	} else {
		wait_for_previous();
		let_next_begin();
	}
	choose(p, chosen);
	mixture_places at;
	at.warp = warp;
	at.lane = lane;
	at.group = warp / p.warps_of_unit;
	at.member = warp % p.warps_of_unit;
	at.unit_step = GEMV_WARPS / p.warps_of_unit * BLOCKS;
	at.units = OUT ? p.row_tiles : chosen->count * p.row_tiles;
	at.tiles = (OUT ? chosen->count : 2) * p.column_tiles;
	mixture_cursor ahead = {at.member < at.tiles ? at.group * BLOCKS + BLOCK_X : at.units, at.member};
#pragma unroll
	for (unsigned i = 0; i < SLOTS; i++)
		mixture_fetch<OUT, BYTES>(p, chosen, at, &ahead, shared_place(ring) + i * BYTES);
	if (OUT)
		wait_for_previous();
	if (OUT)
		take_slots<FORMAT>(p, chosen, to, factors);
	else
		take_inputs<FORMAT>(p, chosen, to, factors, scratch);
	if (p.rows > 4)
		mixture_units<FORMAT, SLOTS, OUT, 2, BYTES>(p, chosen, at, ahead, ring, to, sums, factors);
	else
		mixture_units<FORMAT, SLOTS, OUT, 1, BYTES>(p, chosen, at, ahead, ring, to, sums, factors);
}

// A ring is about 64 KiB of a block.
#define MIXTURE(name, format, slots) \
	extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 2) name##_in(const CONSTANT mixture_params p) \
	{ \
		mixture<format, slots, false>(p); \
	} \
	extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 2) name##_out(const CONSTANT mixture_params p) \
	{ \
		mixture<format, slots, true>(p); \
	}
MIXTURE(mixture_f32, TILE_F32, 2)
MIXTURE(mixture_f16, TILE_F16, 4)
MIXTURE(mixture_bf16, TILE_BF16, 4)
MIXTURE(mixture_q8_0, TILE_Q8_0, 4)
MIXTURE(mixture_q4_0, TILE_Q4_0, 4)
MIXTURE(mixture_q4_k, TILE_Q4_K, 2)
MIXTURE(mixture_q5_k, TILE_Q5_K, 2)
MIXTURE(mixture_q6_k, TILE_Q6_K, 2)
