// Cosignatures of the audit log's heads, by the words of C2SP's tlog-cosignature and with nothing of the program's.
import crypto from "node:crypto";

// A key of a witness that a test has made, of any name, and what it signs.
export function makeKey(name) {
	const { privateKey, publicKey: half } = crypto.generateKeyPairSync("ed25519");
	const bytes = Buffer.concat([Buffer.from([4]), half.export({ format: "der", type: "spki" }).subarray(-32)]);
	const id = crypto.createHash("sha256").update(`${name}\n`).update(bytes).digest().subarray(0, 4);
	return { text: `${name}+${id.toString("hex")}+${bytes.toString("base64")}`, sign(note, time = Math.floor(Date.now() / 1000)) {
		const signed = crypto.sign(null, Buffer.from(`cosignature/v1\ntime ${time}\n${note.split("\n\n")[0]}\n`), privateKey);
		const stamp = Buffer.alloc(8);
		stamp.writeBigUInt64BE(BigInt(time));
		return `— ${name} ${Buffer.concat([id, stamp, signed]).toString("base64")}`;
	} };
}

// A head of the same number of entries and another root, with the log's signature of the true one.
export function forge(head) {
	const [name, size] = head.split("\n");
	return `${name}\n${size}\n${Buffer.alloc(32, 7).toString("base64")}\n\n${head.split("\n\n")[1]}`;
}
