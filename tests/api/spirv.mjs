// SPIR-V modules, assembled here: a test needs no compiler, and can cut and break them as it likes.
const op = (code, ...words) => [(words.length + 1) << 16 | code, ...words];
const text = (string) => {
	const bytes = Buffer.alloc(Math.floor(string.length / 4 + 1) * 4);
	bytes.write(string);
	return Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readUInt32LE(i * 4));
};

// One compute shader `main` over the storage buffer `data` of uints at binding 0. data[0] += 1 once; or, if it is
// `endless`, data[0] += 2 for as long as it is not data[1], which an odd data[1] makes for ever.
export function counter(endless) {
	const [VOID, UINT, FN, ARRAY, BLOCK, POINTER, DATA, ELEMENT, ZERO, ONE, MAIN, BOOL, LABEL, STEP] =
		Array.from({ length: 14 }, (_, i) => i + 1);
	let last = 14;
	const id = () => ++last;
	const step = () => {
		const [at, old, sum] = [id(), id(), id()];
		return [...op(65, ELEMENT, at, DATA, ZERO, ZERO), ...op(61, UINT, old, at), ...op(128, UINT, sum, old, STEP), ...op(62, at, sum)];
	};
	const equal = (result) => {
		const [at, one, other, value] = [id(), id(), id(), id()];
		return [...op(65, ELEMENT, at, DATA, ZERO, ZERO), ...op(61, UINT, one, at), ...op(65, ELEMENT, other, DATA, ZERO, ONE),
			...op(61, UINT, value, other), ...op(170, BOOL, result, one, value)];
	};
	const loop = () => {
		const [head, body, next, end, same] = [id(), id(), id(), id(), id()];
		return [
			...op(249, head), ...op(248, head), ...op(246, end, next, 0), ...op(249, body), ...op(248, body),
			...step(), ...op(249, next), ...op(248, next), ...equal(same),
			...op(250, same, end, head), ...op(248, end)];
	};
	const code = endless ? loop() : step();
	const words = [
		0x07230203, 0x00010300, 0, last + 1, 0,
		...op(17, 1), ...op(14, 0, 1), ...op(15, 5, MAIN, ...text("main")), ...op(16, MAIN, 17, 1, 1, 1),
		...op(71, ARRAY, 6, 4), ...op(72, BLOCK, 0, 35, 0), ...op(71, BLOCK, 2), ...op(71, DATA, 34, 0), ...op(71, DATA, 33, 0),
		...op(19, VOID), ...op(21, UINT, 32, 0), ...op(20, BOOL), ...op(33, FN, VOID), ...op(29, ARRAY, UINT),
		...op(30, BLOCK, ARRAY), ...op(32, POINTER, 12, BLOCK), ...op(32, ELEMENT, 12, UINT), ...op(43, UINT, ZERO, 0),
		...op(43, UINT, ONE, 1), ...op(43, UINT, STEP, endless ? 2 : 1), ...op(59, POINTER, DATA, 12),
		...op(54, VOID, MAIN, 0, FN), ...op(248, LABEL), ...code, ...op(253), ...op(56)];
	return Buffer.from(Uint32Array.from(words).buffer);
}
