// A mixture of experts, beside its products: each row chooses its experts, rows are put in order by expert, and each row
// adds up what its experts give. A slot is a row together with one of its experts.
#include "stage_groups.cuh"

enum { ROUTE_BLOCK = 32, ORDER_BLOCK = 256, MIX_BLOCK = 256, EXPERTS_MOST = 1024, NO_EXPERT = NO_PLACE };
enum { ORDER_EACH = EXPERTS_MOST / ORDER_BLOCK };

INLINE unsigned count_one(unsigned *counter) // in shared memory; returns the earlier value
{
	unsigned old;
	asm volatile("atom.shared.add.u32 %0, [%1], 1;" : "=r"(old) : "r"(shared_place(counter)) : "memory");
	return old;
}

INLINE unsigned from_lane_below(unsigned value, unsigned distance)
{
	unsigned out;
	asm volatile("shfl.sync.up.b32 %0, %1, %2, 0, 0xffffffff;" : "=r"(out) : "r"(value), "r"(distance));
	return out;
}

// The groups that a row takes experts from, of `groups`: each lane looks at the experts of two of them.
INLINE u64 kept_groups(const route_params &p, const float *scores)
{
	unsigned size = p.experts / p.groups, words[2];
#pragma unroll
	for (unsigned i = 0; i < 2; i++) {
		unsigned group = i * 32 + THREAD_X % 32;
		float best = NO_SCORE, second = NO_SCORE;
		for (unsigned e = group * size; group < p.groups && e < (group + 1) * size; e++) {
			float score = p.choice ? scores[e] + p.choice[e] : scores[e];
			second = score > best ? best : score > second ? score : second;
			best = score > best ? score : best;
		}
		words[i] = group < p.groups ? group_word(best, second, p.choice && size > 1) : 0;
	}
	return best_groups(words, p.groups_used);
}

// The largest scores' experts, the lowest number of equals first, and what each one's result is multiplied by. With
// `choice` scores are sigmoids, and the largest of score + choice are chosen. A warp for each row.
extern "C" __global__ void __launch_bounds__(ROUTE_BLOCK) route(const CONSTANT route_params p)
{
	__shared__ float scores[EXPERTS_MOST];
	const unsigned lane = THREAD_X;
	const float *from = p.scores + (u64)BLOCK_X * p.experts;
	float largest = 0, total = 0, all = 0;
	let_next_begin();
	wait_for_previous();
	for (unsigned e = lane; e < p.experts; e += ROUTE_BLOCK)
		scores[e] = p.choice ? sigmoid(load_fresh_1(from + e)) : load_fresh_1(from + e);
	warp_barrier();
	const u64 kept = p.groups ? kept_groups(p, scores) : 0;
	for (unsigned k = 0; k < p.used; k++) {
		float best = 0;
		unsigned place = NO_EXPERT;
		for (unsigned e = lane; e < p.experts; e += ROUTE_BLOCK) {
			if (p.groups && !(kept >> e / (p.experts / p.groups) & 1))
				continue;
			// A score that was taken becomes NaN. Scores that are NaN from the start are taken last.
			float value = p.choice ? scores[e] + p.choice[e] : scores[e];
			if (value > best || (place == NO_EXPERT && value == value)) {
				best = value;
				place = e;
			}
		}
		for (unsigned half = 16; half; half /= 2) {
			float other = from_lane(best, half);
			unsigned at = __builtin_bit_cast(unsigned, from_lane(__builtin_bit_cast(float, place), half));
			if (at != NO_EXPERT && (place == NO_EXPERT || other > best || (other == best && at < place))) {
				best = other;
				place = at;
			}
		}
		bool none = place == NO_EXPERT; // of a row whose scores are all NaN
		if (!k) {
			largest = best;
			for (unsigned e = lane; e < p.experts; e += ROUTE_BLOCK)
				all += exp_of(scores[e] - largest);
			all = warp_sum(all);
		}
		float weight = none || p.choice ? scores[none ? 0 : place] : exp_of(best - largest);
		total += weight;
		warp_barrier();
		if (!lane) {
			if (!none)
				scores[place] = __builtin_bit_cast(float, 0x7fc00000u);
			p.chosen[(u64)BLOCK_X * p.used + k] = none ? k : place;
			p.weights[(u64)BLOCK_X * p.used + k] = weight;
		}
		warp_barrier();
	}
	if (lane)
		return;
	total = total_of(p.share, p.choice, all, total);
	for (unsigned k = 0; k < p.used; k++) {
		float *weight = p.weights + (u64)BLOCK_X * p.used + k;
		*weight = quotient(*weight, total) * p.scale;
	}
}

// Sort slots by expert: the place of each row's slots, the row of each slot, and groups of slots of one expert, as
// products need them. One block. The order of the slots of an expert does not matter: no result depends on it.
extern "C" __global__ void __launch_bounds__(ORDER_BLOCK) order(const CONSTANT order_params p)
{
	__shared__ unsigned counts[EXPERTS_MOST], starts[EXPERTS_MOST], sums[ORDER_BLOCK / 32];
	let_next_begin();
	wait_for_previous();
	for (unsigned e = THREAD_X; e < p.experts; e += ORDER_BLOCK)
		counts[e] = 0;
	block_barrier();
	for (unsigned i = THREAD_X; i < p.slots; i += ORDER_BLOCK)
		count_one(counts + load_fresh_word(p.chosen + i));
	block_barrier();
	// Slots (upper half) and groups (lower half) of this thread's experts, and of all before.
	const unsigned first = THREAD_X * ORDER_EACH, lane = THREAD_X % 32, warp = THREAD_X / 32;
	unsigned own = 0, sum, before = 0, all = 0;
	for (unsigned e = first; e < first + ORDER_EACH && e < p.experts; e++)
		own += (counts[e] + p.align - 1) / p.align * p.align << 16 | (counts[e] + p.group_rows - 1) / p.group_rows;
	sum = own;
	for (unsigned distance = 1; distance < 32; distance *= 2) {
		unsigned other = from_lane_below(sum, distance);
		sum += lane >= distance ? other : 0;
	}
	if (lane == 31)
		sums[warp] = sum;
	block_barrier();
	for (unsigned i = 0; i < ORDER_BLOCK / 32; i++) {
		before += i < warp ? sums[i] : 0;
		all += sums[i];
	}
	before += sum - own;
	unsigned start = before >> 16, group = before & 0xffff;
	for (unsigned e = first; e < first + ORDER_EACH && e < p.experts; e++) {
		unsigned end = start + counts[e];
		starts[e] = start;
		for (unsigned slot = start; slot < end; slot += p.group_rows, group++) {
			gemm_group *to = p.groups + group;
			to->expert = e;
			to->first = slot;
			to->last = end - slot < p.group_rows ? end : slot + p.group_rows;
		}
		start += (counts[e] + p.align - 1) / p.align * p.align;
	}
	for (unsigned i = (all & 0xffff) + THREAD_X; i < p.group_count; i += ORDER_BLOCK) {
		p.groups[i].first = 0;
		p.groups[i].last = 0;
	}
	block_barrier();
	for (unsigned i = THREAD_X; i < p.slots; i += ORDER_BLOCK) {
		unsigned slot = count_one(starts + load_fresh_word(p.chosen + i));
		p.places[i] = slot;
		p.slot_rows[slot] = p.first_row + i / p.used;
	}
}

// x += (or =) the weighted sum of the results of a row's experts, and of the shared expert. A block for each row.
extern "C" __global__ void __launch_bounds__(MIX_BLOCK) mix(const CONSTANT mix_params p)
{
	const u64 row = BLOCK_X;
	let_next_begin();
	wait_for_previous();
	float by = p.shared_score ? sigmoid(load_fresh_1(p.shared_score + row)) : 1;
	for (unsigned c = THREAD_X; c < p.columns; c += MIX_BLOCK) {
		float sum = p.shared ? by * load_fresh_1(p.shared + row * p.columns + c) : 0;
		for (unsigned k = 0; k < p.used; k++) {
			unsigned slot = load_fresh_word(p.places + row * p.used + k);
			sum = FUSED(load_fresh_1(p.weights + row * p.used + k), load_fresh_1(p.out + (u64)slot * p.columns + c), sum);
		}
		float *x = p.x + row * p.columns + c;
		*x = p.store ? sum : load_fresh_1(x) + sum;
	}
}
