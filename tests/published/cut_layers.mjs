// Some layers of a model's GGUF file, as a model of its own: a draft for the whole one.
//
//   node tests/published/cut_layers.mjs FILE.gguf LAYERS OUT.gguf
//
// LAYERS: 10 for the first ten, or which ones, as "0-5,24-29". Keys and tensors are copied as they are, but for block_count and the layers that are left out.
import { readFileSync, writeFileSync } from "node:fs";
import { argv } from "node:process";
import { pathToFileURL } from "node:url";

const BYTES = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 }, STRING = 8, ARRAY = 9, U32 = 4;

// Those that a text names, in their order.
export function keptLayers(text) {
	if (/^\d+$/.test(text)) return Array.from({ length: Number(text) }, (_, i) => i);
	return text.split(",").flatMap((one) => {
		const [first, last = first] = one.split("-").map(Number);
		return Array.from({ length: last - first + 1 }, (_, i) => first + i);
	});
}

// `kept`: the layers, ascending, or how many of the first.
export function cutLayers(file, kept) {
	const wanted = typeof kept === "number" ? keptLayers(String(kept)) : kept, layers = wanted.length;
	let at = 24;
	const u64 = () => Number(file.readBigUInt64LE((at += 8) - 8)), u32 = () => file.readUInt32LE((at += 4) - 4);
	const string = () => { const length = u64(); return file.toString("utf8", at, at += length); };
	const skip = (type) => {
		if (type === STRING) return string();
		if (type !== ARRAY) return void (at += BYTES[type]);
		const element = u32(), count = u64();
		for (let i = 0; i < count; i++) skip(element);
	};
	if (file.toString("latin1", 0, 4) !== "GGUF") throw new Error("no GGUF file");
	const tensors = Number(file.readBigUInt64LE(8)), keys = Number(file.readBigUInt64LE(16)), head = [];
	let alignment = 32, all = 0;
	for (let i = 0; i < keys; i++) {
		const from = at, name = string(), type = u32(), value = at;
		skip(type);
		const whole = Buffer.from(file.subarray(from, at));
		if (name.endsWith(".block_count") && type === U32) {
			all = file.readUInt32LE(value);
			whole.writeUInt32LE(layers, value - from);
		}
		if (name === "general.alignment") alignment = file.readUInt32LE(value);
		head.push(whole);
	}
	if (!layers || !wanted.every((layer, i) => layer < all && !(layer <= wanted[i - 1]))) throw new Error(`layers ${kept} of ${all}`);
	const list = [];
	for (let i = 0; i < tensors; i++) {
		const from = at, name = string();
		const dimensions = u32();
		at += 8 * dimensions + 4;
		// The layer has another number, and so its name may have another length.
		const own = name.replace(/^blk\.(\d+)\./, (_, layer) => `blk.${wanted.indexOf(Number(layer))}.`), length = Buffer.alloc(8);
		length.writeBigUInt64LE(BigInt(Buffer.byteLength(own)));
		const rest = file.subarray(from + 8 + Buffer.byteLength(name), at);
		list.push({ name: own, info: Buffer.concat([length, Buffer.from(own), rest]), offset: Number(file.readBigUInt64LE(at)) });
		at += 8;
		list[i].info = Buffer.concat([list[i].info, Buffer.alloc(8)]);
	}
	const up = (value) => Math.ceil(value / alignment) * alignment, data = up(at);
	const ends = [...list].sort((a, b) => a.offset - b.offset);
	ends.forEach((one, i) => { one.bytes = (ends[i + 1]?.offset ?? file.length - data) - one.offset; });
	const left = list.filter(({ name }) => !name.startsWith("blk.-1."));
	let offset = 0;
	for (const one of left) {
		one.info.writeBigUInt64LE(BigInt(offset), one.info.length - 8);
		offset = up(offset + one.bytes);
	}
	const counts = Buffer.from(file.subarray(0, 24));
	counts.writeBigUInt64LE(BigInt(left.length), 8);
	const before = Buffer.concat([counts, ...head, ...left.map(({ info }) => info)]);
	const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc(up(bytes.length) - bytes.length)]);
	return Buffer.concat([padded(before), ...left.map((one) => padded(file.subarray(data + one.offset, data + one.offset + one.bytes)))]);
}

if (import.meta.url === pathToFileURL(argv[1]).href) {
	const [, , file, layers, out] = argv;
	if (!out) {
		console.error("usage: node tests/published/cut_layers.mjs FILE.gguf LAYERS OUT.gguf");
		process.exit(2);
	}
	writeFileSync(out, cutLayers(readFileSync(file), keptLayers(layers)));
}
