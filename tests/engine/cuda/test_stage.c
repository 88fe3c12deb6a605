/* Stages of models on a GPU, as every back end's: see tests/engine/conformance/stage.h. */
#include "tests/engine/conformance/stage.h"

int main(void)
{
	return stage_conformance_run("cuda");
}
