// What the built-in shaders share: how they reach their buffers.
//
// ARRAY declares what lies at a place, PUSH opens the constants, in which each place comes first and in order as a SLOT,
// and AT(name, i) is element i. With buffer addresses a slot is the address of element 0; without (BOUND), the place is
// the binding of that number, and the slot counts the elements before element 0. Each slot takes 8 bytes in either way.
// What is split over several dispatches is split by the host (builtin.c), so 32 bits count the elements of a dispatch.
#ifdef BOUND
#define ARRAY(place, alignment, type, name) \
	layout(std430, set = 0, binding = place) buffer name##_block { type at[]; } name##_array
#define SLOT(name) uvec2 name##_slot
#define AT(name, i) name##_array.at[push.name##_slot.x + (i)]
#else
#extension GL_EXT_buffer_reference : require
#define ARRAY(place, alignment, type, name) \
	layout(std430, buffer_reference, buffer_reference_align = alignment) buffer name##_block { type at[]; }
#define SLOT(name) name##_block name##_slot
#define AT(name, i) push.name##_slot.at[i]
#endif
#define PUSH layout(push_constant) uniform Push

uvec4 mix_bits(uvec4 x, uint seed)
{
	x ^= seed;
	x = (x ^ (x >> 16)) * 0x9e3779b1u;
	x = (x ^ (x >> 15)) * 0xb5297a4du;
	return x ^ (x >> 16);
}
