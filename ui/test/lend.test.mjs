/* The node that a browser tab is: what it makes of a connection's end, and of its browser's words. */
import assert from "node:assert/strict";
import test from "node:test";
import { load } from "./load.mjs";

const { Node } = await load("lend/node.ts");
const { systemName } = await load("lend/readings.ts");

const gpu = {
  describe: async () => null,
  verify: assert.fail,
  openWorker: assert.fail,
  setMemoryLimit() {},
  memory: () => ({ limit_bytes: 1, held_bytes: 0 }),
  hangs: () => false,
  setStoreLimit() {},
  stored: () => ({ bytes: 0, full: false }),
};
const turn = () => new Promise((resolve) => setTimeout(resolve));

/** A node that is known, on a connection that the server ends with `code`, after it has answered with `error`. */
async function ended(code, error) {
  const before = globalThis.WebSocket;
  let socket, state;
  globalThis.WebSocket = class {
    static OPEN = 1;
    readyState = 1;
    sent = [];
    constructor() {
      socket = this;
    }
    send(text) {
      this.sent.push(JSON.parse(text));
    }
    close() {}
  };
  const node = new Node(gpu, (message) => (state = message.state ?? state));
  const params = { url: "ws://127.0.0.1:1/node", credential: { node_id: "nod_1", secret: "s" }, name: "n", limit_bytes: 1, facts: {}, readings: {} };
  node.start(params);
  const { onclose } = socket;
  socket.onopen();
  if (error) socket.onmessage({ data: JSON.stringify({ jsonrpc: "2.0", id: socket.sent[0].id, error: { code: -32000, message: "so", data: error } }) });
  await turn();
  onclose({ code, reason: "" });
  const last = state;
  node.stop();
  globalThis.WebSocket = before;
  return last;
}

test("only a server that does not know the tab makes it forget who it is", async () => {
  const unknown = await ended(4403, { reason: "unauthenticated" });
  assert.deepEqual([unknown.phase, unknown.message], ["refused", "so"]);
  assert.equal((await ended(4403)).phase, "refused");
  for (const reason of ["limit_exceeded", "unavailable", "out_of_memory"]) {
    const { phase, message, hint, retry_at, reached } = await ended(4503, { reason, hint: "do this" });
    assert.deepEqual([phase, message, hint, retry_at > 0, reached], ["waiting", "so", "do this", true, true], reason);
  }
  const outdated = await ended(4426, { reason: "conflict", hint: "load the page again" });
  assert.deepEqual([outdated.phase, outdated.retry_at], ["outdated", null]);
  assert.equal((await ended(1006)).phase, "waiting");
});

test("an iPad says that it is a Mac, and has a touch screen", () => {
  const mac = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15";
  assert.deepEqual([systemName(mac, 0), systemName(mac, 5)], ["macOS", "iOS"]);
  assert.equal(systemName("Mozilla/5.0 (iPhone; CPU iPhone OS 26_0 like Mac OS X)", 5), "iOS");
  assert.equal(systemName("Mozilla/5.0 (Linux; Android 15; Pixel 9)", 5), "Android");
});

test("a device that is being opened when its worker ends is answered, and so is one that is asked for later", async () => {
  const { openWorker } = await load("lend/gpu/index.ts");
  const { Worker } = globalThis;
  let thread;
  globalThis.GPU_WORKER_URL = "gpu.js";
  globalThis.Worker = class {
    constructor() {
      thread = this;
    }
    postMessage() {}
    terminate() {}
  };
  const reasons = [];
  const worker = openWorker({ worker_id: "w", key: "k", url: "ws://127.0.0.1:1/node" }, { ended: (reason) => reasons.push(reason) });
  thread.onmessage({ data: { kind: "ready", software: false } });
  const opening = worker.device(0);
  await turn();
  thread.onmessage({ data: { kind: "ended", reason: "the GPU device is lost" } });
  await assert.rejects(opening, /the GPU device is lost/);
  await assert.rejects(worker.device(1), /has ended/);
  assert.deepEqual(reasons, ["the GPU device is lost"]);
  globalThis.Worker = Worker;
});
