/* Which compiler made the CUDA kernels of this binary, and for which GPUs. cmake/cuda.cmake writes it into the embedded
 * file kernels/cuda/built.txt, one word and its value a line; the file is part of the binary and trusted. Thread: any.
 */
#pragma once
#include "common/base/buffer.h"

struct kernels_built {
	char compiler[64]; // "NVRTC 12.8.93"; "" in a binary without CUDA kernels
	// Each image with the least CUDA version of a driver that loads it: "sm_90a:12.0 compute_80:11.5".
	char images[256];
	char note[160]; // what this build costs, as "language models run at …"; "" if it costs nothing
};

void kernels_built_read(struct kernels_built *built);
// Append a line without its end: "NVRTC 12.8.93, for sm_90a and compute_80", and the note behind a semicolon.
void kernels_built_print(const struct kernels_built *built, struct buffer *out);
