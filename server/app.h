/* `exogpu serve`. See app.c, where the server is put together. */
#pragma once

// Returns the process's exit status: 0 after a clean stop, 1 on failure, 2 on bad usage.
int app_main(int argc, char **argv);
