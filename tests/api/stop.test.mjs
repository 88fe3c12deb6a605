// A server that stops while calls wait for their entries in the audit log: none is left that nobody frees, which the
// address sanitizer's build sees.
import { test } from "node:test";
import { Client } from "./client.mjs";
import { startServer } from "./server.mjs";

test("calls under way end before the server does", async () => {
	for (let round = 0; round < 6; round++) {
		const server = await startServer(), admin = await Client.login(server);
		const calls = Array.from({ length: 16 }, (_, i) => (i % 2 ? admin.call("token.create", { name: `one ${i}`, scopes: ["observe"] })
			: admin.call("instance.create", { model_id: "mod_none" })));
		const ended = Promise.allSettled(calls); // with an answer or not
		await server.finish();
		await ended;
	}
});
