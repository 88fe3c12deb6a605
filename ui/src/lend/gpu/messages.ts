/* What the page and one of its workers say to each other. */
export interface OpenParams {
  worker_id: string;
  key: string;
  /** The server's /node, as a WebSocket address. */
  url: string;
  /** Of the token whose session it is; absent: none. */
  memory_limit_bytes?: number;
  /** It holds layers of a model, and not what a session has. */
  part?: boolean;
  /** Bytes of one buffer at most, below what the adapter takes: for tests, and for devices that report too much. */
  buffer_bytes?: number;
}

/** As DeviceLimits of schema/node.json. */
export interface DeviceLimits {
  capabilities: ("zeroed" | "software")[];
  memory_bytes: number;
  free_bytes: number;
  buffer_bytes: number;
}

/** Layers of a model that a worker holds, or is given; tokens: rows that have gone through them. */
export interface StageTold {
  name: string;
  first_layer: number;
  layer_count: number;
  weights_bytes: number;
  /** Of the weights: what came from the server; the rest was kept here. */
  fetched_bytes: number;
  tokens: number;
}

/** What is asked of the weights that are kept here, one at a time for each worker. begin: whether there are any. */
export type StoreAsk = { what: "begin" } | { what: "find"; sha256: string; bytes: number } | { what: "keep"; sha256: string; body: Uint8Array<ArrayBuffer> };

/** An end of a ring that goes by way of the server. */
export interface HopParams {
  hop_id: string;
  key: string;
  end: "in" | "out";
}

export type ToWorker =
  | { kind: "open"; params: OpenParams }
  | { kind: "probe" }
  | { kind: "device"; number: number }
  | { kind: "granted"; id: number; granted: boolean }
  | { kind: "hop"; params: HopParams }
  | { kind: "stored"; id: number; found: boolean; body: Uint8Array<ArrayBuffer> | null }
  | { kind: "fence"; held: boolean };

export type FromWorker =
  | { kind: "alive" } // to a probe: the GPU works, or is lost to everybody
  | { kind: "ready"; software: boolean }
  | { kind: "opened"; number: number }
  | { kind: "reserve"; id: number; bytes: number }
  | { kind: "release"; bytes: number }
  | { kind: "hopped"; hop_id: string; end: HopParams["end"] } // both ends are there
  | { kind: "hop ended"; hop_id: string; end: HopParams["end"]; reason: string }
  | { kind: "stage"; told: StageTold }
  | { kind: "store"; id: number; ask: StoreAsk }
  | { kind: "late" } // a call took too long; the server ends the worker soon
  | { kind: "ended"; reason: string };
