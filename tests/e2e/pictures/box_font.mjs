// A font whose every letter is the same box: with it a text of so many letters looks the same on every system, whatever fonts
// that has. A TrueType file as bytes, made here: https://learn.microsoft.com/typography/opentype/spec/otff

const EM = 1000, ADVANCE = 550, LEFT = 50, RIGHT = 500, TOP = 600, ASCENT = 800, DESCENT = -200;
const LAST = 0x2fff; // letters from space to here: all that the pages write
const EMPTY = 0, BOX = 1;

const bytes = (...numbers) => Buffer.concat(numbers.map(([size, value]) => {
	const one = Buffer.alloc(size);
	one.writeUIntBE(value < 0 ? value + 256 ** size : value, 0, size);
	return one;
}));
const u16 = (...all) => bytes(...all.map((one) => [2, one]));
const u32 = (...all) => bytes(...all.map((one) => [4, one]));

// One contour of four points, drawn by coordinates that differ from the point before.
const box = Buffer.concat([u16(1, LEFT, 0, RIGHT, TOP, 3, 0), Buffer.from([1, 1, 1, 1]), u16(LEFT, 0, RIGHT - LEFT, 0), u16(0, TOP, 0, -TOP)]);

// Which glyph a letter is: a group of format 13 gives all of its letters the same one.
function cmap() {
	const groups = [[0x20, 0x20, EMPTY], [0x21, 0x9f, BOX], [0xa0, 0xa0, EMPTY], [0xa1, LAST, BOX]];
	return Buffer.concat([u16(0, 1, 3, 10), u32(12), u16(13, 0), u32(16 + 12 * groups.length, 0, groups.length), ...groups.map((one) => u32(...one))]);
}

function names() {
	const texts = ["Box", "Regular", "Box", "Box", "1", "Box"].map((text) => Buffer.from(text, "utf16le").swap16());
	let at = 0;
	const records = texts.map((text, id) => {
		const record = u16(3, 1, 0x409, id + 1, text.length, at);
		at += text.length;
		return record;
	});
	return Buffer.concat([u16(0, texts.length, 6 + 12 * texts.length), ...records, ...texts]);
}

const sum = (data) => {
	let all = 0;
	for (let i = 0; i < data.length; i += 4) all = (all + data.readUInt32BE(i)) >>> 0;
	return all;
};

export function boxFont() {
	const tables = {
		"OS/2": Buffer.concat([u16(4, ADVANCE, 400, 5, 0, 650, 600, 0, 75, 650, 600, 0, 350, 50, 300, 0), Buffer.alloc(10), u32(1, 0, 0, 0), Buffer.from("none"),
			u16(0x40, 0x20, LAST, ASCENT, DESCENT, 0, ASCENT, -DESCENT), u32(1, 0), u16(500, TOP, 0, 0x20, 1)]),
		cmap: cmap(),
		glyf: box,
		head: Buffer.concat([u16(1, 0, 1, 0), u32(0, 0x5f0f3cf5), u16(3, EM), Buffer.alloc(16), u16(LEFT, 0, RIGHT, TOP, 0, 6, 2, 1, 0)]),
		hhea: u16(1, 0, ASCENT, DESCENT, 0, ADVANCE, LEFT, 0, RIGHT, 1, 0, 0, 0, 0, 0, 0, 0, 2),
		hmtx: u16(ADVANCE, 0, ADVANCE, LEFT),
		loca: u32(0, 0, box.length),
		maxp: u16(1, 0, 2, 4, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0),
		name: names(),
		post: Buffer.concat([u16(3, 0), Buffer.alloc(4), u16(-100, 50), u32(1), Buffer.alloc(16)]),
	};
	const entries = Object.entries(tables);
	let at = 12 + 16 * entries.length;
	const heads = [], bodies = [];
	for (const [tag, data] of entries) {
		const padded = Buffer.concat([data, Buffer.alloc(-data.length & 3)]);
		heads.push(Buffer.from(tag), u32(sum(padded), at, data.length));
		bodies.push(padded);
		at += padded.length;
	}
	const power = 2 ** Math.floor(Math.log2(entries.length));
	return Buffer.concat([u32(0x10000), u16(entries.length, 16 * power, Math.log2(power), 16 * (entries.length - power)), ...heads, ...bodies]);
}
