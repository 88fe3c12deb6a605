// Adds the outputs of the slices of a stage. Each slice adds all of them itself, in the order of the slices, so that
// all have the same bits. Summands are in device memory that all reach over the link between them, or in the host's.
//
// Many rows: a slice signals all others that its summand is there, waits for their signals, and reads their summands.
// Few rows: each slice sends its summand to the others, each number together with the turn, so that a reader that sees
// the turn has the number: one trip instead of three.
//
// There are two places for each, used in turn (engine/cuda/stage/stage.h). A slice that takes part in turn n has ended
// turn n - 1. So a slice that has the signals of all others in turn n may overwrite the place of turn n - 1.
#include "stage.cuh"

enum { REDUCE_BLOCK = 256 };
// How long a slice is waited for, and when the host is first asked whether another one was waited for in vain.
static constexpr u64 wait_most_ns = 25000000000ull, wait_alone_ns = 1000000;

INLINE void tell(unsigned *place, unsigned turn)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(place), "r"(turn) : "memory");
}
INLINE unsigned told(const unsigned *place)
{
	unsigned turn;
	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(turn) : "l"(place) : "memory");
	return turn;
}
INLINE u64 time_ns()
{
	u64 ns;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}
INLINE float4 load_shared_by_all(const float *from)
{
	float4 v;
	asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
		     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
		     : "l"(from)
		     : "memory");
	return v;
}

// Whether to go on waiting.
INLINE bool patient(const reduce_params &p, u64 began_ns)
{
	volatile unsigned *failed = p.failed;
	u64 waited_ns = time_ns() - began_ns;
	if (waited_ns < wait_alone_ns)
		return true;
	if (waited_ns > wait_most_ns)
		*failed = 1;
	return !*failed;
}

INLINE float4 sum(float4 a, float4 b)
{
	a.x += b.x;
	a.y += b.y;
	a.z += b.z;
	a.w += b.w;
	return a;
}

INLINE void add_many(const reduce_params &p, unsigned turn)
{
	if (THREAD_X < p.slices) {
		if (!BLOCK_X)
			tell(p.tells[THREAD_X], turn);
		u64 began_ns = time_ns();
		while ((int)(told(p.told + THREAD_X) - turn) < 0 && patient(p, began_ns))
			;
	}
	block_barrier();
	if (!p.early)
		let_next_begin();
	unsigned slices = p.first_only ? 1 : p.slices;
	for (unsigned i = (BLOCK_X * REDUCE_BLOCK + THREAD_X) * 4; i < p.numbers; i += BLOCKS * REDUCE_BLOCK * 4) {
		float4 parts[REDUCE_SLICES];
#pragma unroll
		for (unsigned k = 0; k < REDUCE_SLICES; k++)
			if (k < slices)
				parts[k] = load_shared_by_all(p.summands[k] + i);
		float4 total = parts[0], *x = (float4 *)(p.x + i);
#pragma unroll
		for (unsigned k = 1; k < REDUCE_SLICES; k++)
			if (k < slices)
				total = sum(total, parts[k]);
		*x = p.first_only ? total : sum(*x, total);
	}
}

// Two numbers, each in 8 bytes with its turn.
INLINE u64 with_turn(float v, unsigned turn) { return (u64)turn << 32 | __builtin_bit_cast(unsigned, v); }
INLINE float without_turn(u64 v) { return __builtin_bit_cast(float, (unsigned)v); }
INLINE void send(u64 *to, float2 v, unsigned turn)
{
	asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(with_turn(v.x, turn)),
		     "l"(with_turn(v.y, turn))
		     : "memory");
}
INLINE float2 receive(const reduce_params &p, const u64 *from, unsigned turn)
{
	u64 began_ns = time_ns(), a, b;
	do {
		asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
	} while ((a >> 32 != turn || b >> 32 != turn) && patient(p, began_ns));
	float2 out;
	out.x = without_turn(a);
	out.y = without_turn(b);
	return out;
}

INLINE void add_few(const reduce_params &p, unsigned turn)
{
	for (unsigned i = (BLOCK_X * REDUCE_BLOCK + THREAD_X) * 2; i < p.numbers; i += BLOCKS * REDUCE_BLOCK * 2) {
		bool sends = !p.first_only || !p.slice;
		float2 own, total, *x = (float2 *)(p.x + i);
		own.x = own.y = total.x = total.y = 0;
		if (sends)
			own = *(const float2 *)(p.summands[p.slice] + i);
		for (unsigned k = 0; sends && k < p.slices; k++)
			if (k != p.slice)
				send(p.send[k] + i, own, turn);
		for (unsigned k = 0; k < (p.first_only ? 1 : p.slices); k++) {
			float2 part = k == p.slice ? own : receive(p, p.came[k] + i, turn);
			total.x += part.x;
			total.y += part.y;
		}
		if (!p.first_only) {
			float2 before = *x;
			total.x += before.x;
			total.y += before.y;
		}
		*x = total;
	}
	if (!p.early)
		let_next_begin();
}

extern "C" __global__ void __launch_bounds__(REDUCE_BLOCK) reduce(const CONSTANT reduce_params p)
{
	if (p.early)
		let_next_begin();
	wait_for_previous();
	volatile unsigned *state = p.turn;
	unsigned turn = state[0] + 1;
	turn += !turn; // 0 is what stands where nothing has come
	if (p.few)
		add_few(p, turn);
	else
		add_many(p, turn);
	block_barrier();
	// The last block to be done ends the turn.
	if (!THREAD_X) {
		unsigned done;
		asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(done) : "l"(p.turn + 1) : "memory");
		if (done + 1 == BLOCKS) {
			state[1] = 0;
			state[0] = turn;
		}
	}
}
