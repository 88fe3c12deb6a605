/* The vectors of stage_loops.h, of WIDTH lanes. They are the compiler's own (GCC and clang). */
#pragma once
#include <stdint.h>

typedef float floats __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t uints __attribute__((vector_size(4 * WIDTH)));
typedef int16_t shorts __attribute__((vector_size(4 * WIDTH)));
typedef int8_t bytes __attribute__((vector_size(2 * WIDTH)));
