// Declarations that the built-in shaders share: access to their buffers.
//
// ARRAY declares the array at a place. PUSH opens the constants, which begin with a SLOT for each place, in order.
// AT(name, i) is element i. With buffer addresses a slot is the address of element 0; without (BOUND), the place is the
// binding of that number, and the slot counts the elements before element 0. Each slot takes 8 bytes in either way. The
// host splits large work over several dispatches (builtin.c), so 32 bits count the elements of a dispatch.
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
