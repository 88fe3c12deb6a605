/* Which of the images of kernels in this binary a GPU is given.
 *
 * An image is a folder of embedded files: machine code for one compute capability (a cubin), which loads in a moment,
 * or PTX, which the driver compiles. cmake/cuda.cmake builds them; kernels/cuda/built.txt lists those of this binary
 * and what each asks of the driver. Thread: any. */
#pragma once
#include "common/base/status.h"
#include "common/files/kernels_built.h"

#include <stdbool.h>
#include <stddef.h>

struct cuda_image {
	const char *folder; // "sm_90a"
	bool ptx;           // else cubins
	bool overlaps;      // its kernels use Hopper's launches: the next kernel may begin before this one's end
	bool wide;          // it has the products of wgmma, which are of compute capability 9.0 alone
};

// The first image, in the order of what is fastest, that serves `capability` (90 for 9.0) and that a driver of
// `driver` (12080 for CUDA 12.8) loads. Errors, with NULL in *image and a hint that says what to install or to build:
// STATUS_UNAVAILABLE (the binary has no CUDA kernels, none for this GPU, or the driver is too old for those).
enum status cuda_image_choose(const struct cuda_image **image, const struct kernels_built *built, int capability,
			      int driver, struct error *error);
// Where the driver has to compile `image`, which that gave: why, and what to do about it, as a sentence for the log.
// False where it is machine code.
bool cuda_image_slower(const struct cuda_image *image, const struct kernels_built *built, int capability, char *text,
		       size_t size);
