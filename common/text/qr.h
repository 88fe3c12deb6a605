/* QR codes (ISO/IEC 18004): a text as modules, dark or light. Byte mode, level M, versions 1 to 10: 213 bytes at most.
 * The dashboard has the same in ui/src/lib/qr.ts. Pure. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { QR_SIZE_MOST = 17 + 4 * 10, QR_TEXT_BYTES = 213, QR_MASKS = 8 };

struct qr {
	unsigned size;                             // modules a side
	bool dark[QR_SIZE_MOST][QR_SIZE_MOST];     // row by row
	bool reserved[QR_SIZE_MOST][QR_SIZE_MOST]; // not for data
};
// The code of a text. mask: 0 to 7; -1: the one that is best to read. Errors: STATUS_INVALID_PARAMS (too long).
enum status qr_make(struct qr *qr, const char *text, int mask);
