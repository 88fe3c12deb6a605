/* See images.h. */
#include "engine/cuda/images.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum serves {
	THE_SAME,  // compute capability and no other: names that end with an a
	THE_MAJOR, // the same major version, from the minor on
	LATER,     // this one and all later ones
};

static const struct {
	struct cuda_image image;
	int capability;
	enum serves serves;
} images[] = {
	{{"sm_120a", .overlaps = true}, 120, THE_SAME},
	{{"sm_100a", .overlaps = true}, 100, THE_SAME},
	{{"sm_90a", .overlaps = true, .wide = true}, 90, THE_SAME},
	{{.folder = "sm_89"}, 89, THE_MAJOR},
	{{.folder = "sm_86"}, 86, THE_MAJOR},
	{{.folder = "sm_80"}, 80, THE_MAJOR},
	{{"compute_90a", .ptx = true, .overlaps = true, .wide = true}, 90, THE_SAME},
	{{"compute_90", .ptx = true, .overlaps = true}, 90, LATER},
	{{"compute_80", .ptx = true}, 80, LATER},
};

// The first driver of each CUDA version that an image may ask for, by NVIDIA's release notes.
static const struct {
	int cuda, driver;
} drivers[] = {{11050, 495}, {11080, 520}, {12000, 525}, {12010, 530}, {12020, 535}, {12030, 545}, {12040, 550},
	       {12050, 555}, {12060, 560}, {12070, 565}, {12080, 570}, {12090, 575}, {13000, 580}};

static bool serves(size_t which, int capability)
{
	const int own = images[which].capability;
	switch (images[which].serves) {
	case THE_SAME:
		return capability == own;
	case THE_MAJOR:
		return capability / 10 == own / 10 && capability >= own;
	case LATER:
		return capability >= own;
	}
	return false;
}

// The driver version that the image of this name needs, as cuDriverGetVersion counts; 0 if the binary has no such
// image.
static int least_driver(const struct kernels_built *built, const char *folder)
{
	const size_t length = strlen(folder);
	for (const char *at = built->images; *at; at += strcspn(at, " "), at += *at == ' ') {
		char *end;
		if (strncmp(at, folder, length) != 0 || at[length] != ':')
			continue;
		const long major = strtol(at + length + 1, &end, 10);
		return (int)(1000 * major + (*end == '.' ? 10 * strtol(end + 1, NULL, 10) : 0));
	}
	return 0;
}

static int driver_of(int cuda)
{
	const size_t count = sizeof(drivers) / sizeof(drivers[0]);
	for (size_t i = 0; i < count; i++)
		if (drivers[i].cuda >= cuda)
			return drivers[i].driver;
	return drivers[count - 1].driver;
}

static enum status too_old(int least, int driver, struct error *error)
{
	error_hint(error, "install an NVIDIA driver of version %d or newer; until then this GPU is used through Vulkan",
		   driver_of(least));
	return error_set(error, STATUS_UNAVAILABLE,
			 "the CUDA kernels for this GPU need a driver of CUDA %d.%d, and this one has %d.%d",
			 least / 1000, least % 1000 / 10, driver / 1000, driver % 1000 / 10);
}

enum status cuda_image_choose(const struct cuda_image **image, const struct kernels_built *built, int capability,
			      int driver, struct error *error)
{
	int wanted = 0; // the least that would do
	*image = NULL;
	if (!built->compiler[0]) {
		error_hint(error, "install python3 and pip (for NVRTC) or clang, and build again");
		return error_set(error, STATUS_UNAVAILABLE, "this binary was built without CUDA kernels");
	}
	for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
		const int least = least_driver(built, images[i].image.folder);
		if (!least || !serves(i, capability))
			continue;
		if (driver >= least) {
			*image = &images[i].image;
			return STATUS_OK;
		}
		wanted = wanted && wanted < least ? wanted : least;
	}
	if (wanted)
		return too_old(wanted, driver, error);
	struct buffer text;
	buffer_init(&text, sizeof(error->message));
	kernels_built_print(built, &text);
	error_hint(error, "build with -DEXOGPU_CUDA_IMAGES=all, or on a machine with such a GPU");
	error_set(error, STATUS_UNAVAILABLE,
		  "this binary has no CUDA kernels for compute capability %d.%d: they are by %s", capability / 10,
		  capability % 10, buffer_text(&text));
	buffer_finish(&text);
	return STATUS_UNAVAILABLE;
}

bool cuda_image_slower(const struct cuda_image *image, const struct kernels_built *built, int capability, char *text,
		       size_t size)
{
	const struct cuda_image *best;
	if (!image->ptx)
		return false;
	cuda_image_choose(&best, built, capability, INT_MAX, NULL);
	if (best && !best->ptx)
		snprintf(text, size,
			 "its driver is too old for the machine code of this binary and compiles %s, which is slower; "
			 "install "
			 "an NVIDIA driver of version %d or newer",
			 image->folder, driver_of(least_driver(built, best->folder)));
	else
		snprintf(text, size,
			 "this binary has no machine code for it, and its driver compiles %s, which is slower; build "
			 "on this "
			 "machine, or with -DEXOGPU_CUDA_IMAGES=all",
			 image->folder);
	return true;
}
