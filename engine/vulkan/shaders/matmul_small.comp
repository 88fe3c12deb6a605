// See matmul.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#define PER 4
#include "matmul.glsl"
