/* A dedicated Web Worker for one session, or for one part of a model: it owns its socket to the server and its GPU
 * device.
 *
 * It dials the server as a native node's relay does for its worker (engine/node/links/relay.c), says whose it is
 * (link.hello), and serves the session's calls. It ends when either side closes, when the device is lost, or when the
 * server breaks the protocol. */
import { printNotice } from "./contract";
import { Device } from "./device";
import type { Ledger } from "./memory";
import { Hops, SUBPROTOCOL } from "./hops";
import type { FromWorker, OpenParams, StoreAsk, ToWorker } from "./messages";
import { Session } from "./session";
import { type Kept, Part, type PartParams } from "./stage/part";

/** Until the server has taken the connection; as LIMIT_WORKER_START_MS. */
const DIAL_MS = 60_000;
/** For what was sent last, and for the server's farewell. */
const FAREWELL_MS = 2_000;

const scope = self as unknown as {
  postMessage(message: FromWorker, transfer?: Transferable[]): void;
  close(): void;
  onmessage: ((event: MessageEvent<ToWorker>) => void) | null;
};

let session: Session | Part | null = null;
let hops: Hops | null = null;
let ended = false;

function end(reason: string): void {
  if (ended) return;
  ended = true;
  scope.postMessage({ kind: "ended", reason });
  // The last answers are still on their way out: the page ends this worker when it has heard.
}

// ---- what the tab lends ----

const grants = new Map<number, (granted: boolean) => void>();
let lastGrant = 0;
const ledger: Ledger = {
  reserve(bytes) {
    return new Promise((resolve) => {
      grants.set(++lastGrant, resolve);
      scope.postMessage({ kind: "reserve", id: lastGrant, bytes });
    });
  },
  release(bytes) {
    scope.postMessage({ kind: "release", bytes });
  },
};

// ---- what the tab keeps ----

const asked = new Map<number, (answer: { found: boolean; body: Uint8Array<ArrayBuffer> | null }) => void>();
let lastAsk = 0;

const ask = (what: StoreAsk): Promise<{ found: boolean; body: Uint8Array<ArrayBuffer> | null }> =>
  new Promise((resolve) => {
    asked.set(++lastAsk, resolve);
    scope.postMessage({ kind: "store", id: lastAsk, ask: what }, what.what === "keep" ? [what.body.buffer] : []);
  });
const store: Kept = {
  begin: async () => (await ask({ what: "begin" })).found,
  find: async (sha256, bytes) => (await ask({ what: "find", sha256, bytes })).body,
  keep: async (sha256, body) => void (await ask({ what: "keep", sha256, body })),
};

// ---- the server ----

function dial(params: OpenParams): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(params.url, SUBPROTOCOL);
    const late = setTimeout(() => {
      reject(new Error("the server did not answer in time"));
      socket.close();
    }, DIAL_MS);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      clearTimeout(late);
      socket.send(printNotice("link.hello", { worker_id: params.worker_id, key: params.key }) as Uint8Array<ArrayBuffer>);
      resolve(socket);
    };
    socket.onclose = () => {
      clearTimeout(late);
      reject(new Error("the server cannot be dialled for a worker"));
    };
  });
}

function openPart(params: OpenParams, common: Pick<PartParams, "device" | "ledger" | "send" | "ended">): Part {
  const made = new Hops({
    url: params.url,
    connected: ({ hop_id, end }) => scope.postMessage({ kind: "hopped", hop_id, end }),
    ended: ({ hop_id, end }, reason) => scope.postMessage({ kind: "hop ended", hop_id, end, reason }),
    take: (message) => part.take(message),
  });
  const part = new Part({ ...common, store, pass: (message) => made.pass(message), tell: (told) => scope.postMessage({ kind: "stage", told }) });
  hops = made;
  return part;
}

async function open(params: OpenParams): Promise<void> {
  const device = await Device.open(params.buffer_bytes);
  const socket = await dial(params);
  const common = {
    device,
    ledger,
    send: (message: Uint8Array) => socket.send(message as Uint8Array<ArrayBuffer>),
    ended: (reason: string) => {
      hops?.close();
      socket.onclose = () => end(reason);
      socket.close(1000);
      setTimeout(() => end(reason), FAREWELL_MS); // a server that says nothing holds nobody
      if (socket.readyState === WebSocket.CLOSED) end(reason);
    },
  };
  session = params.part
    ? openPart(params, common)
    : new Session({
        ...common,
        limit_bytes: params.memory_limit_bytes ?? null,
        unsent: () => (socket.readyState === WebSocket.OPEN ? socket.bufferedAmount : 0),
        late: () => scope.postMessage({ kind: "late" }),
      });
  socket.onmessage = ({ data }) => session?.receive(data);
  socket.onclose = ({ code }) => session?.end(`the server closed the connection (${code})`);
  if (socket.readyState !== WebSocket.OPEN) session.end("the server closed the connection");
  scope.postMessage({ kind: "ready", software: device.software });
}

async function probe(): Promise<void> {
  const device = await Device.open();
  await device.done();
  device.close();
}

scope.onmessage = ({ data }) => {
  switch (data.kind) {
    case "open":
      open(data.params).catch((error: unknown) => end(error instanceof Error ? error.message : String(error)));
      break;
    case "probe":
      probe()
        .catch(() => {})
        .finally(() => scope.postMessage({ kind: "alive" }));
      break;
    case "device":
      if (session instanceof Session) session.openDevice(data.number);
      scope.postMessage({ kind: "opened", number: data.number });
      break;
    case "granted":
      grants.get(data.id)?.(data.granted);
      grants.delete(data.id);
      break;
    case "stored":
      asked.get(data.id)?.(data);
      asked.delete(data.id);
      break;
    case "hop":
      hops?.connect(data.params);
      break;
    case "fence":
      session?.fence(data.held);
      break;
  }
};
