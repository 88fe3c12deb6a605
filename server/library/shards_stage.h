/* What a browser is told of the layers that it is to hold: shape and tensors, as stage.open of schema/node.json has
 * them. A browser reads no model files. Thread: any. */
#pragma once
#include "engine/model/model.h"
#include "server/library/shards.h"

struct stage_place {
	uint64_t offset, bytes; // in the file
};
struct stage_told {
	struct json *json;          // the params of stage.open, without name and version
	struct stage_place *places; // (count), of its tensors
	size_t count;
};
// `bytes`: where the file begins, for the places of tensors; `fd`: the file, of which the factors of positions are
// read. Errors: STATUS_UNAVAILABLE (a browser cannot hold them as they are), STATUS_OUT_OF_MEMORY.
enum status stage_tell(struct stage_told *out, const struct shards_part *part, const struct model *model,
		       const struct gguf *gguf, const uint8_t *bytes, int fd, struct error *error);
void stage_told_finish(struct stage_told *told);
