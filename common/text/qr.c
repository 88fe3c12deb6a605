/* See qr.h. */
#include "common/text/qr.h"

#include <stdlib.h>
#include <string.h>

enum { VERSIONS = 10, CODEWORDS = 346, CENTRES = 4, CHECKS_MOST = 26 };

// By version, from 1: all codewords, those for correction in each block, the number of blocks.
static const struct {
	int total, checks, blocks;
} sizes[VERSIONS] = {{26, 10, 1},  {44, 16, 1},  {70, 26, 1},  {100, 18, 2}, {134, 24, 2},
		     {172, 16, 4}, {196, 18, 4}, {242, 22, 4}, {292, 22, 5}, {346, 26, 5}};
// Centres of the alignment patterns, by version; 0: no more.
static const int centres[VERSIONS][CENTRES] = {{0},     {6, 18},     {6, 22},     {6, 26},     {6, 30},
					       {6, 34}, {6, 22, 38}, {6, 24, 42}, {6, 26, 46}, {6, 28, 50}};

// Product in GF(256) by the polynomial 0x11d.
static uint8_t times(uint8_t a, uint8_t b)
{
	unsigned product = 0;
	for (int bit = 7; bit >= 0; bit--) {
		product = (product << 1) ^ ((product >> 7) * 0x11d);
		if ((b >> bit) & 1)
			product ^= a;
	}
	return (uint8_t)product;
}

// The codewords for correction: the remainder of the data by the generator of this degree.
static void correct(const uint8_t *data, int count, int degree, uint8_t *rest)
{
	uint8_t generator[CHECKS_MOST + 1] = {1}, root = 1;
	for (int i = 0; i < degree; i++, root = times(root, 2))
		for (int at = i + 1; at > 0; at--)
			generator[at] ^= times(generator[at - 1], root);
	memset(rest, 0, (size_t)degree);
	for (int n = 0; n < count; n++) {
		const uint8_t factor = data[n] ^ rest[0];
		memmove(rest, rest + 1, (size_t)degree - 1);
		rest[degree - 1] = 0;
		for (int i = 0; i < degree; i++)
			rest[i] ^= times(generator[i + 1], factor);
	}
}

struct bits {
	uint8_t bytes[CODEWORDS];
	int count;
};

static void put_bits(struct bits *bits, unsigned value, int count)
{
	for (int i = count - 1; i >= 0; i--, bits->count++)
		if ((value >> i) & 1)
			bits->bytes[bits->count / 8] |= (uint8_t)(0x80 >> bits->count % 8);
}

// The codewords in the order in which they are drawn: data of all blocks in turn, then their correction.
static void make_codewords(const char *text, int version, uint8_t out[CODEWORDS])
{
	const int length = (int)strlen(text), checks = sizes[version - 1].checks, blocks = sizes[version - 1].blocks;
	const int capacity = sizes[version - 1].total - checks * blocks, shorter = capacity / blocks;
	const int longer = capacity % blocks; // so many blocks, the last, have one more
	uint8_t rest[8][CHECKS_MOST];
	struct bits bits = {.count = 0};
	put_bits(&bits, 4, 4);
	put_bits(&bits, (unsigned)length, version < 10 ? 8 : 16);
	for (int i = 0; i < length; i++)
		put_bits(&bits, (uint8_t)text[i], 8);
	const int left = capacity * 8 - bits.count;
	put_bits(&bits, 0, left < 4 ? left : 4);
	bits.count = (bits.count + 7) / 8 * 8;
	for (unsigned pad = 0xec; bits.count < capacity * 8; pad ^= 0xec ^ 0x11)
		put_bits(&bits, pad, 8);
	int at = 0, starts[8];
	for (int block = 0; block < blocks; block++) {
		const int count = shorter + (block >= blocks - longer);
		starts[block] = at;
		correct(bits.bytes + at, count, checks, rest[block]);
		at += count;
	}
	at = 0;
	for (int i = 0; i <= shorter; i++)
		for (int block = 0; block < blocks; block++)
			if (i < shorter + (block >= blocks - longer))
				out[at++] = bits.bytes[starts[block] + i];
	for (int i = 0; i < checks; i++)
		for (int block = 0; block < blocks; block++)
			out[at++] = rest[block][i];
}

static void set(struct qr *qr, int x, int y, bool dark)
{
	if (x < 0 || y < 0 || x >= (int)qr->size || y >= (int)qr->size)
		return;
	qr->dark[y][x] = dark;
	qr->reserved[y][x] = true;
}

static int distance(int dx, int dy)
{
	return abs(dx) > abs(dy) ? abs(dx) : abs(dy);
}

// The 15 bits of level M and this mask, twice.
static void write_format(struct qr *qr, int mask)
{
	const int size = (int)qr->size;
	unsigned rest = (unsigned)mask; // level M is 00
	for (int i = 0; i < 10; i++)
		rest = (rest << 1) ^ ((rest >> 9) * 0x537);
	const unsigned bits = (((unsigned)mask << 10) | rest) ^ 0x5412;
	for (int i = 0; i < 15; i++) {
		const bool dark = (bits >> i) & 1;
		set(qr, 8, i < 6 ? i : i < 8 ? i + 1 : size - 15 + i, dark);
		set(qr, i < 8 ? size - 1 - i : i == 8 ? 7 : 14 - i, 8, dark);
	}
	set(qr, 8, size - 8, true);
}

static void write_version(struct qr *qr, int version)
{
	unsigned rest = (unsigned)version;
	if (version < 7)
		return;
	for (int i = 0; i < 12; i++)
		rest = (rest << 1) ^ ((rest >> 11) * 0x1f25);
	const unsigned bits = ((unsigned)version << 12) | rest;
	for (int i = 0; i < 18; i++) {
		const int a = i / 3, b = (int)qr->size - 11 + i % 3;
		set(qr, a, b, (bits >> i) & 1);
		set(qr, b, a, (bits >> i) & 1);
	}
}

// All that does not depend on the text: finders, timing, alignment, and the places of format and version.
static void draw_frame(struct qr *qr, int version)
{
	const int size = (int)qr->size;
	const int finders[3][2] = {{3, 3}, {size - 4, 3}, {3, size - 4}};
	for (int i = 0; i < size; i++) {
		set(qr, i, 6, i % 2 == 0);
		set(qr, 6, i, i % 2 == 0);
	}
	for (int i = 0; i < CENTRES * CENTRES; i++) {
		const int cx = centres[version - 1][i % CENTRES], cy = centres[version - 1][i / CENTRES];
		const bool finder = (cx == 6 && (cy == 6 || cy == size - 7)) || (cy == 6 && cx == size - 7);
		for (int n = 0; n < 25 && cx && cy && !finder; n++)
			set(qr, cx + n % 5 - 2, cy + n / 5 - 2, distance(n % 5 - 2, n / 5 - 2) != 1);
	}
	for (int i = 0; i < 3; i++)
		for (int n = 0; n < 81; n++) {
			const int dx = n % 9 - 4, dy = n / 9 - 4, ring = distance(dx, dy);
			set(qr, finders[i][0] + dx, finders[i][1] + dy, ring != 2 && ring != 4);
		}
	write_format(qr, 0);
	write_version(qr, version);
}

static bool masked(int mask, int x, int y)
{
	switch (mask) {
	case 0:
		return (x + y) % 2 == 0;
	case 1:
		return y % 2 == 0;
	case 2:
		return x % 3 == 0;
	case 3:
		return (x + y) % 3 == 0;
	case 4:
		return (x / 3 + y / 2) % 2 == 0;
	case 5:
		return x * y % 2 + x * y % 3 == 0;
	case 6:
		return (x * y % 2 + x * y % 3) % 2 == 0;
	default:
		return ((x + y) % 2 + x * y % 3) % 2 == 0;
	}
}

// The bits in two columns at a time, up and down, from the right; the column of the timing is left out.
static void fill(struct qr *qr, const uint8_t *words, int count, int mask)
{
	const int size = (int)qr->size;
	int at = 0;
	bool up = true;
	for (int right = size - 1; right > 0; right -= 2, up = !up) {
		if (right == 6)
			right--;
		for (int i = 0; i < 2 * size; i++) {
			const int y = up ? size - 1 - i / 2 : i / 2, x = right - i % 2;
			if (qr->reserved[y][x])
				continue;
			const bool dark = at / 8 < count && ((words[at / 8] >> (7 - at % 8)) & 1);
			qr->dark[y][x] = dark != masked(mask, x, y);
			at++;
		}
	}
	write_format(qr, mask);
}

static bool module_at(const struct qr *qr, bool column, unsigned line, unsigned at)
{
	return column ? qr->dark[at][line] : qr->dark[line][at];
}

// Of a row or a column: its runs, and what looks like a finder.
static int line_penalty(const struct qr *qr, bool column, unsigned line)
{
	static const char finders[2][12] = {"10111010000", "00001011101"};
	int sum = 0, run = 0;
	for (unsigned i = 0; i < qr->size; i++) {
		run = i && module_at(qr, column, line, i) == module_at(qr, column, line, i - 1) ? run + 1 : 1;
		sum += run == 5 ? 3 : run > 5;
		for (int which = 0; which < 2 && i + 11 <= qr->size; which++) {
			unsigned same = 0;
			while (same < 11 && module_at(qr, column, line, i + same) == (finders[which][same] == '1'))
				same++;
			sum += same == 11 ? 40 : 0;
		}
	}
	return sum;
}

// How hard it is to read: runs, squares, what looks like a finder, and a share of dark far from half.
static int penalty(const struct qr *qr)
{
	int sum = 0;
	unsigned dark = 0;
	for (unsigned i = 0; i < qr->size; i++)
		sum += line_penalty(qr, false, i) + line_penalty(qr, true, i);
	for (unsigned y = 0; y < qr->size; y++)
		for (unsigned x = 0; x < qr->size; x++) {
			const bool here = qr->dark[y][x];
			dark += here;
			if (y + 1 < qr->size && x + 1 < qr->size && here == qr->dark[y][x + 1] &&
			    here == qr->dark[y + 1][x] && here == qr->dark[y + 1][x + 1])
				sum += 3;
		}
	const int all = (int)(qr->size * qr->size);
	return sum + 10 * (abs(2 * (int)dark - all) * 50 / all / 5);
}

enum status qr_make(struct qr *qr, const char *text, int mask)
{
	uint8_t words[CODEWORDS] = {0};
	const int length = (int)strnlen(text, QR_TEXT_BYTES + 1);
	int version = 1;
	while (version <= VERSIONS &&
	       length + (version < 10 ? 2 : 3) >
		       sizes[version - 1].total - sizes[version - 1].checks * sizes[version - 1].blocks)
		version++;
	if (version > VERSIONS)
		return STATUS_INVALID_PARAMS;
	make_codewords(text, version, words);
	int least = -1;
	for (int one = mask < 0 ? 0 : mask; one < (mask < 0 ? QR_MASKS : mask + 1); one++) {
		struct qr tried = {.size = (unsigned)(17 + 4 * version)};
		draw_frame(&tried, version);
		fill(&tried, words, sizes[version - 1].total, one);
		const int found = penalty(&tried);
		if (least < 0 || found < least) {
			least = found;
			*qr = tried;
		}
	}
	return STATUS_OK;
}
