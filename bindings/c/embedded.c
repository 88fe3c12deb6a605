/* The table of files in the binary (common/files/embedded.c), which has none here: the dashboard, the kernels and the
 * contracts are the program's, and its server checks what a client sends. */
#include "common/files/embedded.h"

extern const struct embedded_file embedded_files[];
extern const size_t embedded_file_count;

const struct embedded_file embedded_files[1] = {{0}};
const size_t embedded_file_count = 0;
