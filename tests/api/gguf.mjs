// A small model file, as a hub would have it: llama, F32, with weights that are nothing in particular.
const types = { u16: 2, u32: 4, i32: 5, f32: 6, string: 8, array: 9 };

function text(value) {
	const bytes = Buffer.from(value), length = Buffer.alloc(8);
	length.writeBigUInt64LE(BigInt(bytes.length));
	return Buffer.concat([length, bytes]);
}

function u32(value) {
	const bytes = Buffer.alloc(4);
	bytes.writeUInt32LE(value);
	return bytes;
}

function u64(value) {
	const bytes = Buffer.alloc(8);
	bytes.writeBigUInt64LE(BigInt(value));
	return bytes;
}

function u16(value) {
	const bytes = Buffer.alloc(2);
	bytes.writeUInt16LE(value);
	return bytes;
}

function f32(value) {
	const bytes = Buffer.alloc(4);
	bytes.writeFloatLE(value);
	return bytes;
}

const scalar = { u16, u32, i32: u32, f32, string: text }; // none is negative

function key(name, type, value) {
	const [, element] = /^array of (.*)$/.exec(type) ?? [];
	if (!element) return Buffer.concat([text(name), u32(types[type]), scalar[type](value)]);
	return Buffer.concat([text(name), u32(types.array), u32(types[element]), u64(value.length), ...value.map(scalar[element])]);
}

// Words as SentencePiece has them: three of its own, one for each byte, then pieces.
const hex = (byte) => byte.toString(16).toUpperCase().padStart(2, "0");
export const words = ["<unk>", "<s>", "</s>", ...Array.from({ length: 256 }, (_, byte) => `<0x${hex(byte)}>`), "\u2581",
	..."abcdefghijklmnopqrstuvwxyz".split(""), ...Array.from({ length: 14 }, (_, i) => `\u2581${"abcdefghijklmn"[i]}`)];
const kinds = words.map((_, i) => (i === 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1));

// So many more pieces, learned from a text as byte pairs are: the pair that is most frequent becomes a piece, and so on.
export function learnPieces(count, text) {
	const known = new Set(words), pieces = [];
	let all = new Map();
	for (const word of text.match(/ ?[A-Za-z_]+|[^A-Za-z_\s]+|\s+/g)) all.set(word, (all.get(word) ?? 0) + 1);
	all = [...all].map(([word, times]) => ({ times, parts: [...word.replaceAll(" ", "\u2581")] })).filter(({ times, parts }) => times > 1 && parts.length > 1);
	const join = (one, other) => {
		for (const { parts } of all)
			for (let i = 0; i + 1 < parts.length; i++) if (parts[i] === one && parts[i + 1] === other) parts.splice(i, 2, one + other);
	};
	for (const word of words.slice(260).filter((one) => one.length === 2)) join(...word);
	for (const one of new Set(text.match(/[!-~]/g))) if (!known.has(one)) pieces.push(one); // no merge makes a piece of a byte
	while (pieces.length < count) {
		const pairs = new Map();
		for (const { times, parts } of all) for (let i = 0; i + 1 < parts.length; i++) pairs.set(`${parts[i]} ${parts[i + 1]}`, (pairs.get(`${parts[i]} ${parts[i + 1]}`) ?? 0) + times);
		const [best] = [...pairs].reduce((most, pair) => (pair[1] > most[1] ? pair : most));
		pieces.push(best.replace(" ", ""));
		join(...best.split(" "));
	}
	return pieces;
}

// Matrices of ffn_up and ffn_gate in blocks of 32 numbers from -16 to 15 and a scale, in either of two formats that hold them.
export const packings = {
	Q5_0: { type: 6, bytes: 22, put(data, at, scale, n) {
		data.writeUInt16LE(scale, at);
		data.writeUInt32LE(n.reduce((bits, one, i) => (bits | (one + 16 >> 4 << i)) >>> 0, 0), at + 2);
		for (let i = 0; i < 16; i++) data[at + 6 + i] = (n[i] + 16 & 15) | (n[16 + i] + 16 & 15) << 4;
	} },
	Q8_0: { type: 8, bytes: 34, put(data, at, scale, n) {
		data.writeUInt16LE(scale, at);
		n.forEach((one, i) => data.writeInt8(one, at + 2 + i));
	} },
};

// Of qwen35: 2 heads of keys and 4 of values, of 16 each, and a convolution of 4 rows; attention in every fourth layer, its heads of 16 with gates.
const recurrentKeys = [["ssm.group_count", 2], ["ssm.time_step_rank", 4], ["ssm.state_size", 16], ["ssm.inner_size", 64], ["ssm.conv_kernel", 4],
	["full_attention_interval", 4]].map(([name, value]) => key(`qwen35.${name}`, "u32", value));

function recurrentLayer(layer, width, inner) {
	const mixer = (layer + 1) % 4
		? [["attn_qkv", width, 128], ["attn_gate", width, 64], ["ssm_beta", width, 4], ["ssm_alpha", width, 4], ["ssm_conv1d", 4, 128], ["ssm_a", 4],
			["ssm_dt.bias", 4], ["ssm_norm", 16], ["ssm_out", 64, width]]
		: [["attn_q", width, 128], ["attn_k", width, 64], ["attn_v", width, 64], ["attn_q_norm", 16], ["attn_k_norm", 16], ["attn_output", 64, width]];
	return [["attn_norm", width], ...mixer, ["post_attention_norm", width], ["ffn_gate", width, inner], ["ffn_up", width, inner], ["ffn_down", inner, width]];
}

// Of deepseek2: latents of 32 with keys of 8 that turn, 4 heads of 24 and 16; of 4 experts in 2 groups a token takes 1 of the best group.
const latentKeys = Object.entries({ "attention.kv_lora_rank": 32, "attention.q_lora_rank": 48, "attention.key_length": 40, "attention.value_length": 32,
	"attention.key_length_mla": 24, "attention.value_length_mla": 16, "rope.dimension_count": 8, expert_count: 4, expert_used_count: 1, expert_group_count: 2,
	expert_group_used_count: 1, expert_feed_forward_length: 32, expert_shared_count: 1 }).map(([name, value]) => key(`deepseek2.${name}`, "u32", value));

const latentLayer = (width) => [["attn_norm", width], ["attn_q_a", width, 48], ["attn_q_a_norm", 48], ["attn_q_b", 48, 96], ["attn_kv_a_mqa", width, 40],
	["attn_kv_a_norm", 32], ["attn_k_b", 16, 32, 4], ["attn_v_b", 32, 16, 4], ["attn_output", 64, width], ["ffn_norm", width], ["ffn_gate_inp", width, 4],
	["ffn_gate_exps", width, 32, 4], ["ffn_up_exps", width, 32, 4], ["ffn_down_exps", 32, width, 4], ["ffn_gate_shexp", width, 32],
	["ffn_up_shexp", width, 32], ["ffn_down_shexp", 32, width]];

// About `megabytes` large; other seeds make other bytes. `type`: that the last tensor says it has; `text`: of so many bytes
// in its header; `marks`: texts of control tokens; `pieces`: more of its vocabulary (learnPieces); `sampling`: its general.sampling.*; `packing`: one of those above; `damage`: {tensor, at, bytes}, other bytes of its weights from there on.
export function modelFile({ megabytes = 0.2, seed = 1, architecture = "llama", context = 256, inner = 160, template, type = 0, text: long = 0, sampling = {}, packing, damage, parts, marks = [], pieces = [] } = {}) {
	const width = 64, vocabulary = words.length + marks.length + pieces.length, layers = Math.max(1, Math.round(megabytes * 1e6 / 190000));
	const keys = [
		key("general.architecture", "string", architecture),
		key(`${architecture}.block_count`, "u32", layers), key(`${architecture}.context_length`, "u32", context),
		key(`${architecture}.embedding_length`, "u32", width), key(`${architecture}.feed_forward_length`, "u32", inner),
		key(`${architecture}.attention.head_count`, "u32", 4),
		key(`${architecture}.attention.head_count_kv`, "u32", architecture === "deepseek2" ? 1 : 4),
		key(`${architecture}.attention.layer_norm_rms_epsilon`, "f32", 1e-5),
		key("tokenizer.ggml.model", "string", "llama"),
		key("tokenizer.ggml.tokens", "array of string", [...words, ...marks, ...pieces]),
		key("tokenizer.ggml.scores", "array of f32", [...words, ...marks, ...pieces].map((_, i) => (i < 259 ? 0 : 259 - i))),
		key("tokenizer.ggml.token_type", "array of i32", [...kinds, ...marks.map(() => 3), ...pieces.map(() => 1)]),
		...(architecture === "qwen35" ? recurrentKeys : architecture === "deepseek2" ? latentKeys : []),
		...(template ? [key("tokenizer.chat_template", "string", template)] : []),
		...Object.entries(sampling).map(([name, value]) => key(`general.sampling.${name}`, Number.isInteger(value) ? "u32" : "f32", value)),
		...(long ? [key("general.description", "string", "x".repeat(long))] : []),
	];
	const tensors = [["token_embd.weight", width, vocabulary], ["output_norm.weight", width], ["output.weight", width, vocabulary]];
	for (let i = 0; i < layers; i++)
		for (const [name, ...size] of architecture === "qwen35" ? recurrentLayer(i, width, inner)
			: architecture === "deepseek2" ? latentLayer(width) : [["attn_norm", width], ["attn_q", width, width],
			["attn_k", width, width], ["attn_v", width, width], ["attn_output", width, width], ["ffn_norm", width], ["ffn_gate", width, inner],
			["ffn_up", width, inner], ["ffn_down", inner, width]])
			tensors.push([`blk.${i}.${name}${/^ssm_(a|dt\.bias)$/.test(name) ? "" : ".weight"}`, ...size]);
	let offset = 0;
	const offsets = [], packed = [], places = new Map(), isPacked = ([name]) => Boolean(packing) && /ffn_(up|gate)/.test(name);
	tensors.sort((one, other) => isPacked(one) - isPacked(other)); // behind the others, which are the same then
	const infos = tensors.map(([name, ...size], i) => {
		const count = size.reduce((a, b) => a * b), own = isPacked([name]) && packing;
		const info = Buffer.concat([text(name), u32(size.length), ...size.map(u64), u32(own ? own.type : i + 1 === tensors.length ? type : 0), u64(offset)]);
		offsets.push(offset);
		if (own) packed.push([offset, count / 32]);
		places.set(name, offset);
		offset += Math.ceil((own ? count / 32 * own.bytes : count * 4) / 32) * 32;
		return info;
	});
	const file = (ofFile, ofTensors, bytes) => {
		const head = Buffer.concat([Buffer.from("GGUF"), u32(3), u64(ofTensors.length), u64(ofFile.length), ...ofFile, ...ofTensors]);
		return Buffer.concat([head, Buffer.alloc((32 - head.length % 32) % 32), bytes]);
	};
	const data = Buffer.alloc(offset);
	for (let i = 0, state = seed; i + 4 <= offset; i += 4) {
		state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
		data.writeFloatLE((state / 2 ** 32 - 0.5) / 10, i);
	}
	if (architecture === "qwen35") // states that fade slowly, and layers that give as much as they get: what is lost of a state shows in the text
		for (const [name, , columns, rows] of tensors.map(([name, ...size]) => [name, size, ...size])) {
			const at = places.get(name), norm = name.includes("norm");
			for (let i = 0; name.endsWith(".ssm_a") && i < 4; i++) data.writeFloatLE(-0.02 * (i + 1), at + 4 * i);
			for (let i = 0; (norm || rows) && i < columns * (rows ?? 1); i++)
				data.writeFloatLE(norm ? 1 + data.readFloatLE(at + 4 * i) : 5 * data.readFloatLE(at + 4 * i), at + 4 * i);
		}
	let state = seed;
	const draw = () => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) >>> 16;
	for (const [at, blocks] of packed) // scales from 2^-9 to 2^-8
		for (let i = 0; i < blocks; i++) packing.put(data, at + i * packing.bytes, 6 << 10 | draw() % 1024, Array.from({ length: 32 }, () => draw() % 32 - 16));
	if (damage) damage.bytes.copy(data, places.get(damage.tensor) + damage.at);
	if (!parts) return file(keys, infos, data);
	return Array.from({ length: parts }, (_, i) => {
		const [first, end] = [i, i + 1].map((n) => Math.round(n * tensors.length / parts)), base = offsets[first] ?? offset;
		const moved = infos.slice(first, end).map((info, n) => Buffer.concat([info.subarray(0, -8), u64(offsets[first + n] - base)]));
		const split = [key("split.no", "u16", i), key("split.count", "u16", parts), key("split.tensors.count", "i32", tensors.length)];
		return file(i ? split : [...keys, ...split], moved, data.subarray(base, offsets[end] ?? offset));
	});
}

// The same in `count` files, as llama.cpp's gguf-split has it: the first with the metadata.
export const splitFile = (count, options) => modelFile({ ...options, parts: count });

// A file without a tokenizer, and words for it.
export function withWords(file, vocabulary = 128) {
	const { end, infos } = layout(file), own = words.slice(0, vocabulary);
	const added = [key("tokenizer.ggml.model", "string", "llama"), key("tokenizer.ggml.unknown_token_id", "u32", 0), key("tokenizer.ggml.tokens", "array of string", own),
		key("tokenizer.ggml.scores", "array of f32", own.map(() => 0)), key("tokenizer.ggml.token_type", "array of i32", kinds.slice(0, vocabulary))];
	const head = Buffer.concat([file.subarray(0, 16), u64(Number(file.readBigUInt64LE(16)) + added.length), file.subarray(24, infos), ...added, file.subarray(infos, end)]);
	return Buffer.concat([head, Buffer.alloc((32 - head.length % 32) % 32), file.subarray(Math.ceil(end / 32) * 32)]);
}

const scalars = { 4: (b, at) => [b.readUInt32LE(at), 4], 5: (b, at) => [b.readInt32LE(at), 4], 6: (b, at) => [b.readFloatLE(at), 4],
	7: (b, at) => [b[at] === 1, 1], 8: (b, at) => [b.toString("utf8", at + 8, at + 8 + Number(b.readBigUInt64LE(at))), 8 + Number(b.readBigUInt64LE(at))] };
const formats = { 0: ["F32", 4], 1: ["F16", 2], 30: ["BF16", 2] };

/** {keys: Map, tensors: [{name, type, size, bytes}]} of a file whose tensors have no blocks. */
export function readFile(file) {
	const { keys, tensors, end } = layout(file), start = Math.ceil(end / 32) * 32;
	return { keys, tensors: tensors.map(({ name, size, type, length, offset }) => ({ name, size, type, bytes: file.subarray(start + offset, start + offset + length) })) };
}

// Also where its list of tensors begins and ends.
function layout(file) {
	let at = 24;
	const take = (type) => {
		const [value, length] = scalars[type](file, at);
		at += length;
		return value;
	};
	const count = () => Number(file.readBigUInt64LE((at += 8) - 8));
	const keys = new Map();
	for (let i = Number(file.readBigUInt64LE(16)); i > 0; i--) {
		const name = take(8), type = take(4);
		const element = type === types.array && take(4);
		keys.set(name, element ? Array.from({ length: count() }, () => take(element)) : take(type));
	}
	const infos = at;
	const tensors = Array.from({ length: Number(file.readBigUInt64LE(8)) }, () => {
		const name = take(8), size = Array.from({ length: take(4) }, count), [type, width] = formats[take(4)];
		return { name, size, type, length: size.reduce((a, b) => a * b, width), offset: count() };
	});
	return { keys, tensors, infos, end: at };
}
