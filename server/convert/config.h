/* What config.json of a model's directory says, as keys of a model file. The architectures stand in one table. What it
 * does not say has transformers' default; what changes the result and is not computed here is refused by name. Sizes
 * are checked when the finished file is opened, as those of every model file. Pure. Thread: any. */
#pragma once
#include "common/base/limits.h"
#include "common/json/json.h"
#include "server/convert/output.h"

// What differs between architectures while tensors are copied.
struct convert_family {
	const char *class; // architectures[0] of config.json
	const char *name;  // general.architecture of the model file
	bool pairs;        // a head's rows of q and k that turn together become neighbours
	bool from_one;     // weights of norms are stored less 1
	bool post_norms;   // norms stand also behind both halves of a layer
	bool experts;
	bool window; // the architecture's sliding windows are computed
};

// Divisors of frequencies, which are tensors of the model file.
enum config_factors { FACTORS_ALL, FACTORS_SHORT, FACTORS_LONG, FACTORS_KINDS };

struct model_config {
	const struct convert_family *family;
	uint32_t layers, width, heads, kv_heads, head_size, rope_size, experts;
	bool tied; // the output matrix is the token embedding
	struct {
		uint32_t count; // 0: there are none
		float values[LIMIT_MODEL_HEAD_SIZE / 2];
	} factors[FACTORS_KINDS];
};

// Append the keys. Errors: STATUS_UNAVAILABLE (an architecture or feature that is not converted, with what is),
// STATUS_INVALID_PARAMS (something is missing or out of range); by name.
enum status config_read(const struct json *config, struct model_config *out, struct output_keys *keys,
			struct error *error);
