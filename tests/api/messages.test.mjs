// Malformed and unexpected messages: each is answered with an error of the contract, or the connection is closed with
// the code for it, and the server continues.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, assertContractKept } from "./client.mjs";
import { connectRaw, patience, startServer, upgradeHead, within } from "./server.mjs";

const text = (value) => JSON.stringify(value);
const call = (more = {}) => ({ jsonrpc: "2.0", id: 900, method: "server.info", ...more });

function frame(head, body = Buffer.alloc(0), length = Buffer.byteLength(head)) {
	const prefix = Buffer.alloc(4);
	prefix.writeUInt32LE(length);
	return Buffer.concat([prefix, Buffer.from(head), body]);
}

describe("messages", () => {
	let server, client;

	before(async () => {
		server = await startServer();
		client = await Client.login(server);
	});
	after(async () => {
		assert.equal((await client.call("server.info")).version, (await server.http("/healthz")).json().version);
		await server?.finish();
		assertContractKept();
	});

	const malformed = {
		"nothing": "",
		"a word": "hello",
		"an open object": '{"jsonrpc":"2.0","id":1,"method":"server.info"',
		"two values": `${text(call())}${text(call())}`,
		"something behind": `${text(call())} x`,
		"a trailing comma": '{"jsonrpc":"2.0","id":1,"method":"server.info",}',
		"single quotes": "{'jsonrpc':'2.0'}",
		"NaN": '{"jsonrpc":"2.0","id":NaN,"method":"server.info"}',
		"a number with a leading zero": '{"jsonrpc":"2.0","id":01,"method":"server.info"}',
		"a number without digits behind the point": '{"jsonrpc":"2.0","id":1.,"method":"server.info"}',
		"a number out of range": '{"jsonrpc":"2.0","id":1e999,"method":"server.info"}',
		"a control character between tokens": '{"jsonrpc":"2.0",\u0001"id":1,"method":"server.info"}',
		"a byte order mark": `\ufeff${text(call())}`,
		"a comment": `/* */${text(call())}`,
		"a raw line feed in a string": '{"jsonrpc":"2.0","id":1,"method":"server\n.info"}',
		"a NUL byte in a string": text(call()).replace("server.info", "server.\0info"),
		"a NUL byte between tokens": text(call()).replace(",", ",\0"),
		"NUL bytes alone": "\0\0\0\0",
		"an escape without four digits": '{"jsonrpc":"2.0","id":1,"method":"server.info\\u00zz"}',
		"a NUL byte": `${text(call())}\0`,
		"a lone surrogate": '{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
		"a key twice": '{"jsonrpc":"2.0","id":1,"method":"server.info","method":"token.list"}',
		"a key twice, inside": '{"jsonrpc":"2.0","id":1,"method":"server.info","params":{"a":1,"a":2}}',
		"33 levels": `{"jsonrpc":"2.0","id":1,"method":"server.info","params":${'{"a":'.repeat(32)}1${"}".repeat(32)}}`,
		"100,000 levels": "[".repeat(100000),
	};
	for (const [name, bytes] of Object.entries(malformed))
		test(`not JSON: ${name}`, async () => {
			const answer = await client.raw(bytes);
			assert.equal(answer.error?.code, -32700, text(answer));
			assert.equal(answer.id, null);
		});

	const invalid = {
		"a batch": [[call()], null],
		"an empty batch": [[], null],
		"a string": ["server.info", null],
		"a number": [7, null],
		"null": [null, null],
		"an empty object": [{}, null],
		"no jsonrpc": [{ id: 5, method: "server.info" }, 5],
		"jsonrpc 1.0": [call({ jsonrpc: "1.0", id: 6 }), 6],
		"jsonrpc as a number": [call({ jsonrpc: 2, id: 6 }), 6],
		"no method": [{ jsonrpc: "2.0", id: 7 }, 7],
		"a method that is a number": [call({ id: 8, method: 1 }), 8],
		"a method that is null": [call({ id: 8, method: null }), 8],
		"an id that is null": [call({ id: null }), null],
		"an id that is an object": [call({ id: {} }), null],
		"an id that is true": [call({ id: true }), null],
		"an id with a fraction": [call({ id: 1.5 }), null],
		"an id beyond 2^53": [call({ id: 1e300 }), null],
		"an id of 65 bytes": [call({ id: "i".repeat(65) }), null],
		"params in an array": [call({ id: 9, params: [] }), 9],
		"params that are a string": [call({ id: "nine", params: "x" }), "nine"],
		"a call with a result": [call({ id: 10, result: 1 }), 10],
		"a NUL in the method": [call({ id: 12, method: "server.info\0" }), 12],
		"a NUL in a parameter": [call({ id: 13, method: "auth.login", params: { token: "exo_\0" } }), 13],
		"a NUL in a parameter's name": [call({ id: 14, params: { "\0": 1 } }), 14],
		"a NUL far inside": [call({ id: 15, params: { a: [{ b: ["\0"] }] } }), 15],
		"a NUL in the id": [call({ id: "six\0teen" }), null],
		"a NUL elsewhere, of an id that is a string": [call({ id: "seventeen", params: { a: "\0" } }), "seventeen"],
		"a NUL where no call is": [["\0"], null],
		"a result and an error": [{ jsonrpc: "2.0", id: 11, result: 1, error: {} }, 11],
	};
	for (const [name, [message, id]] of Object.entries(invalid))
		test(`not JSON-RPC: ${name}`, async () => {
			const answer = await client.raw(text(message));
			assert.equal(answer.error?.code, -32600, text(answer));
			assert.deepEqual(answer.id, id);
		});

	const badUtf8 = { "a stray continuation": [0x80], "an overlong slash": [0xc0, 0xaf], "a surrogate": [0xed, 0xa0, 0x80],
		"beyond the last": [0xf4, 0x90, 0x80, 0x80], "cut off": [0xe2, 0x82] };
	for (const [name, bytes] of Object.entries(badUtf8))
		test(`not UTF-8: ${name}`, async () => {
			const head = Buffer.concat([Buffer.from('{"jsonrpc":"2.0","id":1,"method":"'), Buffer.from(bytes), Buffer.from('"}')]);
			const inBinary = await client.raw(frame(head), { binary: true });
			assert.equal(inBinary.error?.code, -32700, text(inBinary));
			// In a text frame the library below may already refuse it, with 1007.
			const other = await Client.login(server);
			other.socket.send(head, { binary: false });
			await other.until(() => other.answers.length || other.end, "an answer or a close").catch(() => {});
			if (other.end) assert.equal(other.end.code, 1007);
			else assert.equal(other.answers[0].error?.code, -32700, text(other.answers));
			other.socket.terminate();
		});

	test("a call in a binary frame is answered as in a text frame", async () => {
		const info = await client.call("server.info", {}, (head) => client.socket.send(frame(head)));
		assert.deepEqual(info, await client.call("server.info"));
	});

	test("a call in many fragments", async () => {
		const head = text(call({ id: 77 }));
		for (const [i, letter] of [...head].entries())
			client.socket.send(letter, { fin: i === head.length - 1, binary: false });
		await client.until(() => client.answers.find((one) => one.id === 77)?.result, "the answer");
	});

	test("a body where none is taken", async () => {
		const answer = await client.raw(frame(text(call({ id: 78 })), Buffer.from("body")), { binary: true });
		assert.equal(answer.error?.data.reason, "invalid_params", text(answer));
		assert.equal(answer.id, 78);
	});

	test("half a binary frame", async () => {
		for (const bytes of [Buffer.alloc(0), Buffer.from([1, 0, 0]), frame("{}", undefined, 3), Buffer.from([0, 0, 0, 0])]) {
			const answer = await client.raw(bytes, { binary: true });
			assert.equal(answer.error?.code, -32700, text(answer));
		}
		const over = await client.raw(frame("{}", undefined, 1024 * 1024 + 1), { binary: true });
		assert.equal(over.error?.data.reason, "limit_exceeded", text(over));
	});

	test("ids come back as they were sent", async () => {
		for (const id of [0, -1, 42, 9007199254740991, "", "a", "ü", "i".repeat(64)]) {
			const answer = await client.raw(text(call({ id })));
			assert.deepEqual(answer.id, id);
			assert.ok(answer.result, text(answer));
		}
	});

	test("notifications, and answers to nothing, are not answered", async () => {
		const before = client.answers.length;
		client.socket.send(text({ jsonrpc: "2.0", method: "server.info" }));
		client.socket.send(text({ jsonrpc: "2.0", method: "no.such" }));
		client.socket.send(text({ jsonrpc: "2.0", id: 5, result: {} }));
		client.socket.send(text({ jsonrpc: "2.0", id: 5, error: { code: 1, message: "x" } }));
		await client.call("server.info"); // answers come in order
		assert.deepEqual(client.answers.slice(before), []);
	});

	test("a head of 1 MiB is read, one byte more is refused", async () => {
		const padded = (bytes) => {
			const head = text(call({ id: 80, params: { pad: "" } }));
			return head.replace('"pad":""', `"pad":"${"x".repeat(bytes - Buffer.byteLength(head))}"`);
		};
		const full = await client.raw(padded(1024 * 1024));
		assert.equal(full.error?.data.reason, "invalid_params", text(full).slice(0, 300));
		for (const [bytes, options] of [[padded(1024 * 1024 + 1), {}], [frame(padded(1024 * 1024 + 1)), { binary: true }]]) {
			const over = await client.raw(bytes, options);
			assert.equal(over.error?.data.reason, "limit_exceeded", text(over));
		}
	});

	test("a body of 16 MiB is received, a longer message closes with 1009", async () => {
		const other = await Client.login(server);
		const head = text(call({ id: 81 }));
		const answer = await other.raw(frame(head, Buffer.alloc(16 * 1024 * 1024)), { binary: true });
		assert.equal(answer.error?.data.reason, "invalid_params", text(answer));
		other.socket.send(Buffer.alloc(17 * 1024 * 1024 + 5));
		assert.equal((await within(other.closed, "the close")).code, 1009);
	});

	test("before the login 4096 bytes are read, one more closes with 1009", async () => {
		const padded = (bytes) => text(call({ id: 82, params: { p: "" } })).replace('""',
			`"${"x".repeat(bytes - Buffer.byteLength(text(call({ id: 82, params: { p: "" } }))))}"`);
		const stranger = await Client.open(server);
		const answer = await stranger.raw(padded(4096));
		assert.equal(answer.error?.data.reason, "invalid_params", text(answer));
		stranger.socket.send(padded(4097));
		assert.equal((await within(stranger.closed, "the close")).code, 1009);
	});

	test("fragments do not get around the limit", async () => {
		const stranger = await Client.open(server);
		for (let i = 0; i < 5 && stranger.socket.readyState === 1; i++)
			stranger.socket.send("x".repeat(1000), { fin: false, binary: false });
		assert.equal((await within(stranger.closed, "the close")).code, 1009);
	});

	test("a frame that stops half way holds nothing up", async () => {
		const raw = connectRaw(server, upgradeHead(server));
		await raw.until(/101 Switching Protocols/);
		raw.socket.write(Buffer.from([0x81, 0x80 + 100, 1, 2, 3, 4, 5, 6]));
		raw.socket.end();
		await within(raw.ended, "the end of the half frame's connection");
		await client.call("server.info");
	});

	test("frames that break RFC 6455 are answered with a close or the end", async () => {
		const frames = { "a reserved bit": [0xc1, 0x82, 0, 0, 0, 0, 0x7b, 0x7d],
			"a reserved opcode": [0x83, 0x82, 0, 0, 0, 0, 0x7b, 0x7d],
			"a ping of 126 bytes": [0x89, 0xfe, 0, 126, 0, 0, 0, 0, ...Array(126).fill(65)] };
		for (const [name, bytes] of Object.entries(frames)) {
			const raw = connectRaw(server, upgradeHead(server));
			await raw.until(/101 Switching Protocols/);
			raw.socket.write(Buffer.from(bytes));
			await Promise.race([raw.ended, raw.until(/\r\n\r\n(.|\n)*\x88/).catch(() => raw.ended)]);
			assert.match(raw.received, /\r\n\r\n(\x88(.|\n)*)?$/, `${name}: a close frame, or the end`);
			raw.socket.destroy();
		}
		await client.call("server.info");
	});

	test("more messages a second than there may be close with 4429", async () => {
		const strict = await startServer({ args: ["--limit", "messages_per_s=500"] });
		const flood = await Client.login(strict), other = await Client.login(strict);
		const { limits: { messages_per_s: most } } = await flood.call("server.info");
		assert.equal(most, 500);
		const head = text({ jsonrpc: "2.0", method: "server.info" }); // not answered, so that only its coming counts
		let sent = 0;
		// A new burst whenever the last one has left, faster than anybody could answer.
		while (!flood.end && sent < 40 * most) {
			for (let i = 0; i < most; i++) flood.socket.send(head);
			sent += most;
			await new Promise((resolve) => setImmediate(resolve));
		}
		assert.equal((await within(flood.closed, "the close", 6 * patience)).code, 4429);
		await other.call("server.info");
		await strict.stop();
	});
});
