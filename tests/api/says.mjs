// A test puts words into the model's mouth: each worker asks here what its model says to a request, and proposes the tokens of that to its
// sampler (engine/worker/instance/instance_says.c, in debug builds only). All behind it is as ever: mask, detokeniser, parser.
import { once } from "node:events";
import { chmodSync, readFileSync } from "node:fs";
import net from "node:net";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { binary, temporary } from "./server.mjs";

// Why there is nothing to be said: "" where there is.
export const mute = readFileSync(binary).includes("EXOGPU_TEST_SAYS") ? "" : "skipped: this build lets no test say what the model says (a release build)";

export class Says {
	/** `answer`: what the model says to the parameters of generate.start, {text, ends}; {}: what its weights say. */
	static async start(answer = () => ({})) {
		const says = new Says();
		Object.assign(says, { answer, path: join(temporary(), "says"), sockets: new Set() });
		says.server = net.createServer((socket) => {
			says.sockets.add(socket.on("error", () => {}).on("close", () => says.sockets.delete(socket)));
			createInterface({ input: socket }).on("line", async (line) => socket.write(`${JSON.stringify(await says.answer(JSON.parse(line)))}\n`));
		}).listen(says.path);
		await once(says.server, "listening");
		chmodSync(dirname(says.path), 0o711); // a worker has a user of its own
		chmodSync(says.path, 0o777);
		return says;
	}

	get env() {
		return { EXOGPU_TEST_SAYS: this.path };
	}

	stop() {
		this.server.close();
		this.sockets.forEach((one) => one.destroy());
	}
}
