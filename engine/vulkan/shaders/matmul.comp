// See matmul.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#define PER 8
#include "matmul.glsl"
