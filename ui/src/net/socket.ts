/* The one WebSocket, and the only writer of the store.
 *
 * Opens it, logs in, subscribes, turns what arrives into actions, and comes back by itself after a loss: with what
 * was missed if the server still has it, else with a fresh snapshot. Nothing is polled; only when nothing at all has
 * come for 10 s one small call asks whether the other side is still there. */
import { forgetToken, readOwnToken, readToken, writeOwnToken, writeToken } from "../lib/prefs";
import type { ChatStatus, ConversationChanged, Device, Methods } from "../lib/api.gen";
import { isGuest } from "../state/guest";
import type { ServerEvent } from "../state/reduce";
import { lastHeard } from "../state/select";
import type { DeviceEntry, LoginReason, LostCause } from "../state/state";
import type { Store } from "../state/store";
import { STEP_MS, STEPS } from "../state/trail";
import { inLanguage } from "../text/said";
import { t } from "../text/text";
import { backoff } from "./backoff";
import { type Answer, CallError, Calls } from "./calls";
import { FrameError, type Json, decodeFrame, decodeText, encodeFrame } from "./codec";

const SUBPROTOCOL = "exogpu.v1";
const TOPICS: Methods["events.subscribe"]["params"]["topics"] = [
  "inventory",
  "telemetry",
  "alerts",
  "topology",
  "placement",
];
const ADMIN_TOPICS: typeof TOPICS = [...TOPICS, "audit", "log"];
const CALL_MS = 15_000;
const BODY_MS = 60_000;
const OPEN_MS = 10_000;
/** A log-out waits so long for the end of its token. */
const LOGOUT_MS = 2_000;
const SILENCE_MS = 10_000;
/** Only a connection that held so long makes the next wait short again. */
const STEADY_MS = 5_000;
const TRAILS_AT_ONCE = 6;
const SKEW_MS = 30_000;
/** Asked a little less than the ten minutes of which the server has samples: the clocks may differ. */
const MARGIN_MS = 5_000;

/** The connection, as commands and views may use it. */
export interface Server {
  call<M extends keyof Methods>(method: M, params: Methods[M]["params"]): Promise<Methods[M]["result"]>;
  /** The same with a body, for which there is more time: it may have a slow way. */
  callWith<M extends keyof Methods>(method: M, params: Methods[M]["params"], body: Uint8Array): Promise<Methods[M]["result"]>;
  /** A call whose answer has a body. */
  callFor<M extends keyof Methods>(method: M, params: Methods[M]["params"]): Promise<Answer<M>>;
  /** Log in with another token; `keep` also for later visits. */
  login(token: string, keep: boolean): void;
  /** Log in with a login code, in this tab. */
  redeem(code: string): void;
  logout(): void;
  tryNow(): void;
}

/** `brought`: a login code that the page came with; null without one. */
export function connect(store: Store, url: string, brought: string | null): Server {
  const { dispatch } = store;
  const calls = new Calls();
  let socket: WebSocket | null = null;
  let token: string | null = null;
  let code: string | null = null; // to log in with, until it is answered
  let attempt = 0;
  let lostSince: number | null = null;
  let lostCause: LostCause = "gone"; // since then, by the last server that said one
  let retryTimer: ReturnType<typeof setTimeout> | undefined;
  let steadyTimer: ReturnType<typeof setTimeout> | undefined;
  let probing = false;

  const call: Server["call"] = (method, params) => {
    const open = socket;
    if (!open || open.readyState !== WebSocket.OPEN)
      return Promise.reject(new CallError("disconnected", t`Not connected to the server`, t`Try again when it is back.`));
    const answer = calls.make(method, params, CALL_MS, (head) => open.send(head));
    if (method !== "device.verify" && method !== "device.drain") return answer;
    return answer.then((device) => {
      dispatch({ type: "device", device: device as Device });
      return device;
    });
  };

  const callWith: Server["callWith"] = (method, params, body) => {
    const open = socket;
    if (!open || open.readyState !== WebSocket.OPEN)
      return Promise.reject(new CallError("disconnected", t`Not connected to the server`, t`Try again when it is back.`));
    return calls.make(method, params, BODY_MS, (head) => open.send(encodeFrame(head, body)));
  };

  const callFor: Server["callFor"] = (method, params) => {
    const open = socket;
    if (!open || open.readyState !== WebSocket.OPEN)
      return Promise.reject(new CallError("disconnected", t`Not connected to the server`, t`Try again when it is back.`));
    return calls.makeFor(method, params, BODY_MS, (head) => open.send(head));
  };

  /** A new socket in place of the old; `greet` runs when it is open. */
  function open(greet: () => Promise<void>): void {
    drop();
    const mine = new WebSocket(url, SUBPROTOCOL);
    mine.binaryType = "arraybuffer";
    socket = mine;
    const slow = setTimeout(() => closed(mine, 1006), OPEN_MS);
    mine.onopen = () => {
      clearTimeout(slow);
      greet().catch((error: unknown) => failed(mine, error));
    };
    mine.onmessage = (message: MessageEvent<string | ArrayBuffer>) => {
      if (socket === mine) received(message.data);
    };
    mine.onclose = (event) => {
      clearTimeout(slow);
      closed(mine, event.code);
    };
  }

  function drop(): void {
    clearTimeout(retryTimer);
    clearTimeout(steadyTimer);
    const old = socket;
    socket = null;
    if (old) {
      old.onopen = old.onmessage = old.onclose = null;
      old.close();
      calls.fail();
    }
  }

  function received(data: string | ArrayBuffer): void {
    let head: Json;
    let body: Uint8Array | null = null;
    try {
      if (typeof data === "string") head = decodeText(data);
      else ({ head, body } = decodeFrame(new Uint8Array(data)));
    } catch (error) {
      if (error instanceof FrameError)
        return console.error("exogpu: a frame that is no message:", error.fault, error.message);
      throw error;
    }
    if (!head || typeof head !== "object" || Array.isArray(head)) return;
    head = inLanguage(head);
    const now = Date.now();
    dispatch({ type: "heard", now });
    if (head["method"] === "event") {
      const first = store.current().serverAheadMs === null;
      dispatch({ type: "event", event: head["params"] as unknown as ServerEvent, now });
      const ahead = store.current().serverAheadMs;
      if (first && ahead !== null && Math.abs(ahead) > SKEW_MS) void fetchTrails();
    } else if (head["method"] === "chat.status") dispatch({ type: "chat", status: head["params"] as unknown as ChatStatus });
    else if (head["method"] === "conversation.changed")
      dispatch({ type: "conversation", change: head["params"] as unknown as ConversationChanged });
    else calls.settle(head, body);
  }

  // ---- logging in ----

  function enter(): void {
    if (lostSince !== null) lost({ retryAt: null, waitMs: 0, cause: lostCause });
    else dispatch({ type: "connection", connection: { phase: "connecting" } });
    open(greet);
  }

  /** Exchanges a code for a token; with one that is refused, whoever was logged in here stays so. */
  function redeem(text: string): void {
    dispatch({ type: "connection", connection: { phase: "connecting" } });
    token = null;
    code = text;
    open(async () => {
      const kept = readToken();
      try {
        const made = await call("auth.redeem", { code: text });
        token = made.token;
        writeToken(token, false);
        writeOwnToken(made.token_id);
      } catch (error) {
        if (!(error instanceof CallError) || error.reason === "disconnected" || kept === null) throw error;
        token = kept;
      }
      code = null;
      await greet();
    });
  }

  async function greet(): Promise<void> {
    if (token === null) return;
    const login = await call("auth.login", { token });
    dispatch({ type: "login", login });
    dispatch({ type: "server", server: await call("server.info", {}) });
    if (isGuest(login)) {
      dispatch({ type: "chat", status: await call("chat.models", { watch: true }) });
      return entered();
    }
    const { epoch, seq } = store.current();
    const since = epoch === null ? {} : { since: { epoch, seq } };
    const topics = login.scopes.includes("admin") ? ADMIN_TOPICS : TOPICS;
    const { resumed, snapshot } = await call("events.subscribe", { topics, ...since });
    if (!resumed && snapshot) dispatch({ type: "snapshot", snapshot });
    entered();
    void fetchTrails();
  }

  function entered(): void {
    lostSince = null;
    dispatch({ type: "connection", connection: { phase: "live" } });
    steadyTimer = setTimeout(() => (attempt = 0), STEADY_MS);
  }

  function failed(mine: WebSocket, error: unknown): void {
    if (socket !== mine) return;
    if (!(error instanceof CallError)) throw error;
    const { reason, message, hint } = error;
    if (reason === "disconnected") return;
    if (code !== null) return askLogin({ kind: "link", message, hint }, false);
    if (reason === "unauthenticated") askLogin({ kind: "refused", message, hint }, true);
    else if (reason === "forbidden")
      askLogin({ kind: "forbidden", message: t`This token shows nothing here: it lacks the scopes observe and infer.`, hint }, true);
    else if (reason === "timeout" || reason === "unavailable" || reason === "rate_limited") closed(mine, 1006);
    else askLogin({ kind: "refused", message, hint }, false);
  }

  function askLogin(reason: LoginReason, forget: boolean): void {
    if (forget) forgetToken();
    token = null;
    code = null;
    lostSince = null;
    attempt = 0;
    dispatch({ type: "logged_out" });
    dispatch({ type: "connection", connection: { phase: "login", reason } });
    peek();
  }

  /** server.info answers before login: the login screen says which server this is. */
  function peek(): void {
    open(async () => {
      dispatch({ type: "server", server: await call("server.info", {}) });
      drop();
    });
  }

  /** The token that a login code gave this tab is nobody else's: it ends. One that was typed stays good. */
  async function endOwnToken(): Promise<void> {
    const { login } = store.current();
    if (!login || login.token_id !== readOwnToken()) return;
    token = null; // so that its end is no surprise to whoever looks at the page
    const asked = call("token.revoke", { token_id: login.token_id }).catch((error: unknown) => {
      if (!(error instanceof CallError)) throw error; // it ends by itself, a day after it was made
    });
    await Promise.race([asked, new Promise((done) => setTimeout(done, LOGOUT_MS))]);
  }

  // ---- losing and coming back ----

  function closed(mine: WebSocket, why: number): void {
    if (socket !== mine) return;
    drop();
    if (code !== null) return askLogin({ kind: "not_logged_in" }, false);
    if (token === null) {
      retryTimer = setTimeout(peek, backoff(attempt++, Math.random()));
      return;
    }
    if (why === 4401) return askLogin({ kind: "not_logged_in" }, false);
    if (why === 4403)
      return askLogin({ kind: "forbidden", message: t`The server does not admit this token.`, hint: null }, true);
    if (why === 4410) return askLogin({ kind: "revoked" }, true);
    const causes: Record<number, LostCause> = { 1001: "shutdown", 1009: "too_big", 4408: "slow", 4429: "rate" };
    lostCause = causes[why] ?? (lostSince === null ? "gone" : lostCause);
    lostSince ??= store.current().heardAt ?? Date.now();
    const waitMs = backoff(attempt++, Math.random()) + (why === 4429 ? 5_000 : 0);
    lost({ retryAt: Date.now() + waitMs, waitMs, cause: lostCause });
    retryTimer = setTimeout(enter, waitMs);
  }

  function lost(how: { retryAt: number | null; waitMs: number; cause: LostCause }): void {
    const since = lostSince ?? Date.now();
    dispatch({ type: "connection", connection: { phase: "lost", since, ...how } });
  }

  function tryNow(): void {
    if (store.current().connection.phase !== "lost" || socket?.readyState === WebSocket.CONNECTING) return;
    clearTimeout(retryTimer);
    enter();
  }

  async function probe(): Promise<void> {
    const { connection, heardAt } = store.current();
    if (probing || connection.phase !== "live" || heardAt === null || Date.now() - heardAt < SILENCE_MS) return;
    const mine = socket;
    probing = true;
    try {
      await call("server.info", {});
    } catch {
      if (mine) closed(mine, 1006);
    } finally {
      probing = false;
    }
  }

  // ---- what events do not carry ----

  async function fetchTrails(): Promise<void> {
    const mine = socket;
    const { devices, serverAheadMs } = store.current();
    const now = Date.now() + (serverAheadMs ?? 0);
    const span = { from: new Date(now - STEPS * STEP_MS + MARGIN_MS).toISOString(), to: new Date(now).toISOString() };
    const recent = (entry: DeviceEntry): boolean => Date.parse(lastHeard(entry)) > now - STEPS * STEP_MS;
    const ids = Object.keys(devices).filter((id) => recent(devices[id]!));
    const next = async (): Promise<void> => {
      for (let id = ids.shift(); id !== undefined && socket === mine; id = ids.shift()) {
        try {
          const history = await call("telemetry.history", { device_id: id, ...span, step_s: STEP_MS / 1000 });
          dispatch({ type: "history", deviceId: id, history });
        } catch (error) {
          if (!(error instanceof CallError)) throw error; // without history the lines begin now
        }
      }
    };
    await Promise.all(Array.from({ length: TRAILS_AT_ONCE }, next));
  }

  setInterval(() => void probe(), 2_500);
  addEventListener("online", tryNow);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) tryNow();
  });

  const server: Server = {
    call,
    callWith,
    callFor,
    tryNow,
    login(text, keep) {
      token = text;
      code = null;
      writeToken(text, keep);
      writeOwnToken(null);
      enter();
    },
    redeem,
    logout() {
      void endOwnToken().then(() => askLogin({ kind: "logged_out" }, true));
    },
  };
  token = readToken();
  if (brought !== null) redeem(brought);
  else if (token === null) askLogin({ kind: "none" }, false);
  else enter();
  return server;
}
