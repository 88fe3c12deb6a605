/* The conversations of this page: those of this browser and, where the person asks for it, those on the server. */
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { type Round, type Shelf, bringTogether, forgetAll, keepsChats, tellServer } from "../../command/keep";
import type { Refusal } from "../../command/tried";
import { readKeepsChats, writeKeepsChats } from "../../lib/prefs";
import { type Conversation, freshId, sortConversations } from "../../state/chat";
import { type Imported, type Refused, importFrom, importInto, tooLarge } from "../../state/conversation/file";
import { keepConversations, readConversations } from "../../state/conversation/storage";
import { isKept, keptNow } from "../../state/keeping";
import { isLive } from "../../state/select";
import { useApp } from "../app-context";

/** After the last change. */
const SEND_MS = 1_000;
/** Changes of another browser that come so soon after one another are looked at together. */
const LOOK_MS = 200;
const DAY_MS = 86_400_000;

const fresh = (): Conversation => ({ id: freshId(), at: Date.now(), system: "", turns: [] });
const nothing: Round = { refusal: null, forked: [], offline: false, held: 0 };

/** What a page has, apart from drawing it: effects and answers of the server see the newest. */
interface Page {
  all: readonly Conversation[];
  open: Conversation;
}

function usePage() {
  const page = useRef<Page | null>(null);
  const [, draw] = useReducer((n: number) => n + 1, 0);
  page.current ??= ((all) => ({ all, open: all[0] ?? fresh() }))(readConversations());
  const now = (): Page => page.current!;
  const stored = useRef(true);
  const set = (all: readonly Conversation[], open: Conversation): void => {
    if (all !== now().all) stored.current = keepConversations(all);
    page.current = { all, open };
    draw(0);
  };
  const others = (id: string): readonly Conversation[] => now().all.filter((one) => one.id !== id);
  const put = (one: Conversation): void => {
    const { open } = now();
    set(one.turns.length ? sortConversations([one, ...others(one.id)]) : others(one.id), open.id === one.id ? one : open);
  };
  const drop = (id: string): void => {
    const rest = others(id);
    set(rest, now().open.id === id ? (rest[0] ?? fresh()) : now().open);
  };
  const shelf: Shelf = {
    all: () => now().all,
    put,
    drop,
    rename(id, to) {
      const { kept: _, ...mine } = now().all.find((one) => one.id === id)!;
      const copy = { ...mine, id: to };
      set(sortConversations([copy, ...others(id)]), now().open.id === id ? copy : now().open);
    },
  };
  return { now, set, shelf, stored };
}

export function useConversations(answering: () => string | null) {
  const { state, server } = useApp();
  const { login, server: info } = state.value;
  const live = isLive(state.value);
  const token = login?.token_id ?? "";
  const { now, set, shelf, stored } = usePage();
  const [wanted, setWanted] = useState(() => readKeepsChats(token));
  const days = info?.limits["conversation_days"] ?? 0;
  const keeps = wanted && days > 0;
  const keepsNow = useRef(keeps);
  keepsNow.current = keeps;
  const [round, setRound] = useState<Round>(nothing);
  const [forked, setForked] = useState<readonly string[]>([]);
  const work = useRef<Promise<unknown>>(Promise.resolve());
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  // One thing at a time: what is deleted is not fetched by a round that began before.
  const inTurn = <T,>(run: () => Promise<T>): Promise<T> => {
    const next = work.current.then(run);
    work.current = next.catch(() => undefined);
    return next;
  };
  const bring = (only: boolean): Promise<void> =>
    inTurn(async () => {
      const done = await bringTogether({ server, shelf, token, busy: answering, looks: only });
      setRound(done);
      if (done.forked.length) setForked(done.forked);
    });
  /** Whether something waited to be sent. */
  const stopTimer = (): boolean => {
    const waited = timer.current !== undefined;
    clearTimeout(timer.current);
    timer.current = undefined;
    return waited && keepsNow.current;
  };
  const send = (): void => {
    if (stopTimer()) void bring(false);
  };
  const soon = (): void => {
    stopTimer();
    timer.current = setTimeout(send, SEND_MS);
  };
  useEffect(() => {
    keepsChats.value = keeps;
    if (!live || !token || days === 0) return;
    void bring(!keeps);
    const look = (): void => {
      if (!document.hidden && keeps) void bring(false);
    };
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [live, token, keeps, days]);
  // Another browser has changed one; what this one has changed itself it knows already.
  const told = state.value.conversation;
  useEffect(() => {
    if (!told || !keeps || !live) return;
    const timer = setTimeout(() => {
      const mine = shelf.all().find((one) => one.id === told.conversation_id);
      if (!mine || (keptNow(mine, token)?.version ?? 0) < told.version) void bring(false);
    }, LOOK_MS);
    return () => clearTimeout(timer);
  }, [told]);
  useEffect(() => send, []); // whoever leaves the page within that second

  /** What a person changed, and looks at. */
  const put = (one: Conversation): void => {
    const { kept: _, ...mine } = one;
    const kept = now().all.find((other) => other.id === one.id)?.kept; // a round may have sent it meanwhile
    const next = kept ? { ...mine, kept } : mine;
    set(now().all, next);
    shelf.put(next);
    soon();
  };
  const remove = (id: string): Promise<Refusal | null> =>
    inTurn(async () => {
      const one = shelf.all().find((other) => other.id === id);
      const there = keeps && one !== undefined && keptNow(one, token) !== null;
      const refusal = there ? await tellServer(server, { conversation_id: id }) : null;
      if (!refusal) shelf.drop(id);
      return refusal;
    });
  const removeAll = (): Promise<Refusal | null> =>
    inTurn(async () => {
      const refusal = keeps ? await tellServer(server, { all: true }) : null;
      if (!refusal) set([], fresh());
      return refusal;
    });
  const forget = (): Promise<Refusal | null> =>
    inTurn(async () => {
      const refusal = await forgetAll(server, shelf);
      if (!refusal) setRound(nothing);
      return refusal;
    });
  /** Puts the conversations of a file beside those that are here. */
  const take = async (file: File): Promise<Imported | Refused> => {
    const from = tooLarge(file.size) ?? importFrom(await file.text());
    if ("what" in from) return from;
    const imported = importInto(now().all, from, Date.now());
    const [first] = imported.added;
    if (first) {
      set(sortConversations([...imported.added, ...now().all]), first);
      soon();
    }
    return imported;
  };
  const { all, open } = now();
  const ends = login?.expires_at ? Date.parse(login.expires_at) : Infinity;
  return {
    all,
    open,
    put,
    show: (one: Conversation): void => set(now().all, one),
    remove,
    removeAll,
    take,
    /** False: this browser's storage did not take the last change. */
    stored: stored.current,
    newest: (id: string): Conversation | undefined => [now().open, ...now().all].find((one) => one.id === id),
    begin: (): void => set(now().all, fresh()),
    keeping: {
      on: keeps,
      days,
      live,
      /** When the token ends, ms, if that is before anything kept now is over; null: it is not. */
      tokenEnds: ends < Date.now() + days * DAY_MS ? ends : null,
      /** Those that the server does not have as they are here. */
      waiting: keeps ? all.filter((one) => !isKept(one, token)).map((one) => one.id) : [],
      round,
      forked,
      noted: (): void => setForked([]),
      turn(on: boolean): void {
        writeKeepsChats(on ? token : null);
        setWanted(on);
      },
      forget,
    },
  };
}

export type Keeping = ReturnType<typeof useConversations>["keeping"];
