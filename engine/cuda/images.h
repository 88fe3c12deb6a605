/* Chooses the image of kernels for a GPU.
 *
 * An image is a folder of embedded files: machine code for one compute capability (a cubin), which loads in a moment,
 * or PTX, which the driver compiles. cmake/cuda.cmake builds them; kernels/cuda/built.txt lists the images of this
 * binary and the driver version that each needs. Thread: any. */
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

// The first image, the fastest kind first, that serves `capability` (90 for 9.0) and that a driver of version `driver`
// (12080 for CUDA 12.8) can load. Errors, with NULL in *image and a hint about what to install or build:
// STATUS_UNAVAILABLE (the binary has no CUDA kernels, none for this GPU, or the driver is too old for them).
enum status cuda_image_choose(const struct cuda_image **image, const struct kernels_built *built, int capability,
			      int driver, struct error *error);
// If the driver must compile `image`: the reason, and the remedy, as a sentence for the log. False if it is machine
// code.
bool cuda_image_slower(const struct cuda_image *image, const struct kernels_built *built, int capability, char *text,
		       size_t size);
