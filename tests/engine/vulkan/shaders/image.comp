// Not a kernel that is taken: it has an image.
#version 450
layout(local_size_x = 8) in;
layout(binding = 0, r32f) uniform image2D picture;

void main()
{
	imageStore(picture, ivec2(gl_GlobalInvocationID.xy), vec4(1));
}
