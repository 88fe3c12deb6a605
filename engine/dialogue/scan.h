/* JSON as it comes, byte by byte: is it still the beginning of an object, and where do its members stand. Strict, as
 * common/json/json.h. Thread: its owner's. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { SCAN_DEPTH = 64 };

enum scan_verdict { SCAN_MORE, SCAN_DONE, SCAN_BAD };
enum scan_event {
	SCAN_NOTHING,
	SCAN_KEY_BEGIN,   // the quote that opens a member's name, of the object at `depth`
	SCAN_KEY_END,     // the quote that closes it
	SCAN_VALUE_BEGIN, // the first byte of a value
	SCAN_VALUE_END,   // the last byte of a text, an object or an array, which was a value at `depth`
};

struct scan {
	uint8_t state;
	uint8_t depth;         // of containers that are open
	uint64_t objects;      // a bit for each of them: it is an object
	uint8_t hex;           // digits of an escape that are to come
	bool key;              // the text is a member's name
	const char *word;      // the rest of true, false or null
	enum scan_event event; // of the byte that came last
	unsigned at;           // the depth that the event is of
};

void scan_init(struct scan *scan); // an object is expected
enum scan_verdict scan_byte(struct scan *scan, uint8_t byte);
