// Declarations that the shaders of a stage share: their bindings, and the layouts of their arrays
// (engine/vulkan/stage/stage.h).
//
// Matrices are cut into groups of 32 columns. Their inputs have the layout `places`: vec4 number i of the eight of a
// group is at i * groups + group, so that neighbouring invocations, which take neighbouring groups, read neighbouring
// memory. All other arrays are row-major.
#extension GL_EXT_control_flow_attributes : require

const uint F32 = 1, F16 = 2, BF16 = 3, Q8_0 = 4, Q4_0 = 5, MXFP4 = 6, Q4_K = 7, Q5_K = 8,
	   Q6_K = 9;    // enum tensor_format
const uint PAGE = 32; // STAGE_PAGE_TOKENS
const uint NO_VECTOR = 0xffffffffu; // instead of a place in VECTORS

#define PUSH layout(push_constant) uniform Push
#define FROM layout(std430, set = 0, binding = 0) readonly buffer From
#define TO layout(std430, set = 0, binding = 1) buffer To
#define ALSO layout(std430, set = 0, binding = 2) readonly buffer Also
#define VECTORS layout(std430, set = 0, binding = 3) readonly buffer Vectors
#define STEP layout(std430, set = 0, binding = 4) readonly buffer Step

// The place of column c, in floats, in a row of so many groups.
uint place(uint c, uint groups)
{
	return ((c % 32 / 4) * groups + c / 32) * 4 + c % 4;
}
