// Weights in the layout of stage_weights.c. A matrix has up to four planes; each holds row after row:
//   0  pieces of 16 bytes: piece p of group g at p * groups + g. F32: 4 values; F16, BF16: 8; Q8_0: 16; else 32 halves
//      of bytes, those of columns 8 w .. 8 w + 3 the low halves of word w, of the next four the high ones
//   1  bits above those: Q5_K a word for each group, a bit for each column; Q6_K two, two bits for each column
//   2  f16 scales of groups (Q8_0, Q4_0); two signed bytes, for 16 columns each (Q6_K); a byte, the
//      exponent of a power of two (MXFP4)
//   3  for each 8 groups: d | dmin << 16 and words of the low 4 bits of the scales, of the mins, and of the top 2 bits
//      of both (Q4_K, Q5_K); f16 d (Q6_K)
// A weight is scale * number + offset.
layout(constant_id = 1) const uint FORMAT = F16;
layout(std430, set = 1, binding = 0) readonly buffer Weights { uint weights[]; };
layout(std430, set = 1, binding = 0) readonly buffer Weights4 { uvec4 weights4[]; };
// Another matrix of the same format and shape, for what needs two at once.
layout(std430, set = 1, binding = 1) readonly buffer Second { uint second[]; };
layout(std430, set = 1, binding = 1) readonly buffer Second4 { uvec4 second4[]; };

struct matrix { uint groups, bits, scales, tops; }; // where planes 1 to 3 begin, in 16 bytes

// `which`: of the two.
uint word_at(uint which, uint at)
{
	return which == 0 ? weights[at] : second[at];
}

uvec4 four_at(uint which, uint at)
{
	return which == 0 ? weights4[at] : second4[at];
}

const uint PIECES = FORMAT == F32 ? 8 : FORMAT == F16 || FORMAT == BF16 ? 4 : FORMAT == Q8_0 ? 2 : 1;

vec4 low_bytes(uint word)
{
	return vec4(word & 255, word >> 8 & 255, word >> 16 & 255, word >> 24);
}

vec4 signed_bytes(uint word)
{
	int x = int(word);
	return vec4(bitfieldExtract(x, 0, 8), bitfieldExtract(x, 8, 8), bitfieldExtract(x, 16, 8), x >> 24);
}

float half_at(uint which, uint plane, uint index)
{
	return unpackHalf2x16(word_at(which, plane * 4 + index / 2) >> 16 * (index % 2)).x;
}

// Four e2m1 numbers, one in each byte, as signed bytes of twice their values. Each byte is 128 plus or minus a value
// before its highest bit is turned over, so that none borrows from another.
uint e2m1_bytes(uint n)
{
	uint low = n & 0x03030303u, fours = n >> 2 & 0x01010101u, most = low & low >> 1 & 0x01010101u;
	uint negative = (n >> 3 & 0x01010101u) * 15, value = low + ((0x04040404u + low + 2 * most) & fours * 15);
	return (0x80808080u + (value & ~negative) - (value & negative)) ^ 0x80808080u;
}

// Four fields of one or two bits, each into bits 4 and up of its byte.
uint spread1(uint bits)
{
	return ((bits & 15) * 0x00204081u & 0x01010101u) << 4;
}

uint spread2(uint bits)
{
	uint x = (bits & 255 | bits << 12) & 0x000f000fu;
	return ((x | x << 6) & 0x03030303u) << 4;
}

// The numbers of 8 columns: those from 32 group + 8 part.
void numbers(uint which, matrix m, uint row, uint group, uint part, out vec4 low, out vec4 high)
{
	uint at = row * PIECES * m.groups + group;
	if (FORMAT == F32) {
		low = uintBitsToFloat(four_at(which, at + 2 * part * m.groups));
		high = uintBitsToFloat(four_at(which, at + (2 * part + 1) * m.groups));
		return;
	}
	if (FORMAT == F16) {
		uvec4 x = four_at(which, at + part * m.groups);
		low = vec4(unpackHalf2x16(x.x), unpackHalf2x16(x.y));
		high = vec4(unpackHalf2x16(x.z), unpackHalf2x16(x.w));
		return;
	}
	if (FORMAT == BF16) {
		uvec4 x = four_at(which, at + part * m.groups), odd = x & 0xffff0000u, even = x << 16;
		low = uintBitsToFloat(uvec4(even.x, odd.x, even.y, odd.y));
		high = uintBitsToFloat(uvec4(even.z, odd.z, even.w, odd.w));
		return;
	}
	if (FORMAT == Q8_0) {
		uvec4 x = four_at(which, at + part / 2 * m.groups);
		low = signed_bytes(x[2 * (part % 2)]);
		high = signed_bytes(x[2 * (part % 2) + 1]);
		return;
	}
	uint word = four_at(which, at)[part], first = word & 0x0f0f0f0fu, second = word >> 4 & 0x0f0f0f0fu;
	if (FORMAT == MXFP4) {
		low = signed_bytes(e2m1_bytes(first));
		high = signed_bytes(e2m1_bytes(second));
		return;
	}
	if (FORMAT == Q5_K) {
		uint bits = word_at(which, m.bits * 4 + row * m.groups + group) >> 8 * part;
		first |= spread1(bits);
		second |= spread1(bits >> 4);
	}
	if (FORMAT == Q6_K) {
		uint bits = word_at(which, m.bits * 4 + (row * m.groups + group) * 2 + part / 2) >> 16 * (part % 2);
		first |= spread2(bits);
		second |= spread2(bits >> 8 & 255);
	}
	low = low_bytes(first);
	high = low_bytes(second);
}

// (scale, offset) of columns 16 side .. of a group.
vec2 scale(uint which, matrix m, uint row, uint group, uint side)
{
	if (FORMAT == Q8_0)
		return vec2(half_at(which, m.scales, row * m.groups + group), 0);
	if (FORMAT == Q4_0)
		return vec2(1, -8) * half_at(which, m.scales, row * m.groups + group);
	if (FORMAT == MXFP4) { // half of it, since the numbers are doubled
		uint at = row * m.groups + group, e = word_at(which, m.scales * 4 + at / 4) >> 8 * (at % 4) & 255;
		return vec2(uintBitsToFloat(e < 2 ? 0x00200000u << e : e - 1 << 23), 0);
	}
	if (FORMAT == Q4_K || FORMAT == Q5_K) {
		uvec4 top = four_at(which, m.tops + row * (m.groups / 8) + group / 8);
		uint g = group % 8, high = top.w >> 2 * g;
		uint a = top.y >> 4 * g & 15 | (high & 3) << 4, b = top.z >> 4 * g & 15 | (high >> 16 & 3) << 4;
		return unpackHalf2x16(top.x) * vec2(a, -int(b));
	}
	if (FORMAT == Q6_K) {
		uint at = row * m.groups + group, both = word_at(which, m.scales * 4 + at / 2) >> 16 * (at % 2) + 8 * side;
		float d = half_at(which, m.tops, row * (m.groups / 8) + group / 8) * float(bitfieldExtract(int(both), 0, 8));
		return vec2(1, -32) * d;
	}
	return vec2(1, 0);
}
