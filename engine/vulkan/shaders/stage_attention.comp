// Attention of up to TILE queries that share their keys and values: heads of one group, of one row of a run or of
// several. Page by page, each key's scores first, then the values, weighted with what the scores are against the
// largest so far; everything is scaled down when a larger one comes (Milakov and Gimelshein, arXiv 1805.02867).
//
// A query's vec4 of the output belongs to one invocation, which also keeps the query's largest score and sum of
// weights: all of a query's invocations compute the same ones. A context may be shared out among several groups
// (SPLIT): each then leaves its sums, and stage_combine.comp puts them together.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "stage_common.glsl"
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint LANES = 32;
layout(constant_id = 1) const uint SIZE = 64; // of a head, padded: a multiple of 8
layout(constant_id = 2) const uint TILE = 4;
layout(constant_id = 3) const uint SPLIT = 0;
layout(constant_id = 4) const uint VALUE = 64;  // of a value, padded
layout(constant_id = 5) const uint LATENTS = 0; // values are the beginnings of keys
FROM { float q[]; };
TO { float to[]; };
VECTORS { float vectors[]; };
STEP { uint step_words[]; };
layout(std430, set = 2, binding = 0) readonly buffer Keys { uvec4 keys[]; };   // (pages, kv_heads, SIZE / 8, PAGE)
layout(std430, set = 2, binding = 1) readonly buffer Values { uvec2 values[]; }; // (pages, kv_heads, PAGE, SIZE / 4)
PUSH {
	uint tiles_at, pages_at, heads, kv_heads, size, to_groups, splits;
	float scale;
	uint window; // positions that a query sees, its own included
	float cap;   // of scores; 0: none
	uint query_rows; // of a head in q: its size, or twice that, with a gate behind the query
	uint sinks;  // where in `vectors` each head's score without a value is, or NO_VECTOR
	uint value_size;
	uint apart; // the output has a row for each head
} push;

const uint FOURS = SIZE / 4, VALUE_FOURS = VALUE / 4, ITEMS = (TILE * VALUE_FOURS + LANES - 1) / LANES;
const float LEAST = -1e30;
shared vec4 query[TILE * FOURS];
shared float scores[TILE * PAGE];

struct tile { uint row, position, first, count, pages, end; }; // as struct stage_tile

void load_queries(tile t, uint kv, uint per_kv)
{
	for (uint i = gl_LocalInvocationID.x; i < TILE * FOURS; i += LANES) {
		uint which = t.first + i / FOURS, c = i % FOURS * 4;
		uint at = ((t.row + which / per_kv) * push.heads + kv * per_kv + which % per_kv) * push.query_rows;
		vec4 four = vec4(0);
		if (i / FOURS < t.count)
			[[unroll]] for (uint j = 0; j < 4; j++)
				if (c + j < push.size)
					four[j] = q[at + c + j] * push.scale;
		query[i] = four;
	}
}

// The scores of all queries with the keys of a page. `position` is that of the page's first token.
void score(tile t, uint page, uint position, uint per_kv)
{
	for (uint i = gl_LocalInvocationID.x; i < TILE * PAGE; i += LANES) {
		uint which = i / PAGE, token = i % PAGE;
		float sum = 0;
		for (uint c = 0; c < SIZE / 8; c++) {
			uvec4 key = keys[(page * (SIZE / 8) + c) * PAGE + token];
			sum += dot(query[which * FOURS + 2 * c], vec4(unpackHalf2x16(key.x), unpackHalf2x16(key.y)));
			sum += dot(query[which * FOURS + 2 * c + 1], vec4(unpackHalf2x16(key.z), unpackHalf2x16(key.w)));
		}
		if (push.cap > 0)
			sum = push.cap - 2 * push.cap / (exp(2 * clamp(sum / push.cap, -40, 40)) + 1);
		uint own = t.end > 0 ? t.end - 1 : t.position + (t.first + which) / per_kv, its = position + token;
		scores[i] = its <= own && own - its < push.window ? sum : LEAST;
	}
}

void put(tile t, uint kv, uint per_kv, uint item, vec4 sum, float largest, float weights)
{
	uint which = t.first + item / VALUE_FOURS, c = item % VALUE_FOURS * 4;
	uint row = t.row + which / per_kv, h = kv * per_kv + which % per_kv;
	if (SPLIT == 1) {
		uint at = ((row * push.heads + h) * push.splits + gl_WorkGroupID.z) * (VALUE + 2);
		[[unroll]] for (uint j = 0; j < 4; j++)
			to[at + c + j] = sum[j];
		if (c == 0) {
			to[at + VALUE] = largest;
			to[at + VALUE + 1] = weights;
		}
		return;
	}
	if (push.sinks != NO_VECTOR) {
		float sink = vectors[push.sinks + h], shrink = exp(min(largest - sink, 0));
		sum *= shrink;
		weights = weights * shrink + exp(min(sink - largest, 0));
	}
	uint to_row = push.apart == 1 ? row * push.heads + h : row, at = push.apart == 1 ? 0 : h * push.value_size;
	[[unroll]] for (uint j = 0; j < 4; j++)
		if (c + j < push.value_size) {
			float value = sum[j] / weights;
			if (push.query_rows > push.size)
				value /= 1 + exp(-max(q[(row * push.heads + h) * push.query_rows + push.size + c + j], -80.0));
			to[to_row * push.to_groups * 32 + place(at + c + j, push.to_groups)] = value;
		}
}

// Four numbers of a token's value.
vec4 value_of(uint page, uint token, uint four)
{
	uvec2 two;
	if (LATENTS == 1) {
		uvec4 key = keys[(page * (SIZE / 8) + four / 2) * PAGE + token];
		two = four % 2 == 0 ? key.xy : key.zw;
	} else {
		two = values[(page * PAGE + token) * VALUE_FOURS + four];
	}
	return vec4(unpackHalf2x16(two.x), unpackHalf2x16(two.y));
}

void main()
{
	uint at = push.tiles_at + gl_WorkGroupID.x * 6, kv = gl_WorkGroupID.y, per_kv = push.heads / push.kv_heads;
	tile t = tile(step_words[at], step_words[at + 1], step_words[at + 2], step_words[at + 3], step_words[at + 4],
		      step_words[at + 5]);
	uint end = t.end > 0 ? t.end : t.position + (t.first + t.count - 1) / per_kv + 1, pages = (end + PAGE - 1) / PAGE;
	uint first = t.position + t.first / per_kv + 1; // the first query's end
	uint unseen = first > push.window ? (first - push.window) / PAGE : 0;
	uint share = (pages - unseen + push.splits - 1) / push.splits, from = unseen + gl_WorkGroupID.z * share;
	vec4 sum[ITEMS];
	float largest[ITEMS], weights[ITEMS];
	[[unroll]] for (uint i = 0; i < ITEMS; i++) {
		sum[i] = vec4(0);
		largest[i] = LEAST;
		weights[i] = 0;
	}
	load_queries(t, kv, per_kv);
	for (uint p = from; p < min(from + share, pages); p++) {
		uint page = step_words[push.pages_at + t.pages + p] * push.kv_heads + kv;
		uint tokens = min(PAGE, end - p * PAGE);
		barrier();
		score(t, page, p * PAGE, per_kv);
		barrier();
		[[unroll]] for (uint i = 0; i < ITEMS; i++) {
			uint item = gl_LocalInvocationID.x + i * LANES, which = min(item / VALUE_FOURS, TILE - 1);
			float top = largest[i];
			for (uint token = 0; token < tokens; token++)
				top = max(top, scores[which * PAGE + token]);
			float shrink = exp(largest[i] - top);
			vec4 add = sum[i] * shrink;
			float weight = weights[i] * shrink;
			for (uint token = 0; token < tokens; token++) {
				float s = scores[which * PAGE + token], w = s > LEAST ? exp(s - top) : 0;
				add += w * value_of(page, token, item % VALUE_FOURS);
				weight += w;
			}
			sum[i] = add;
			largest[i] = top;
			weights[i] = weight;
		}
	}
	[[unroll]] for (uint i = 0; i < ITEMS; i++) {
		uint item = gl_LocalInvocationID.x + i * LANES;
		if (item < t.count * VALUE_FOURS)
			put(t, kv, per_kv, item, sum[i], largest[i], weights[i]);
	}
}
