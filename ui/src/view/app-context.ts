/* The context of every view: the state to draw, the server to call, the filter of devices. */
import { type ReadonlySignal, type Signal, signal, useComputed } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Server } from "../net/socket";
import { now } from "../lib/clock";
import { isStale } from "../state/select";
import type { State } from "../state/state";
import type { Store } from "../state/store";

export interface App {
  state: ReadonlySignal<State>;
  server: Server;
  /** The newest state, ahead of `state` by up to a frame, and also while the tab is hidden. */
  current: () => State;
  /** What narrows the devices of two pages. */
  filter: Signal<string>;
  help: Signal<boolean>;
  /** Is the search of the whole page open? */
  finding: Signal<boolean>;
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (!app) throw new Error("a view outside of the app");
  return app;
}

/** The ids of the devices whose readings are old; changes only when one becomes so or is heard again. */
export function useStale(): ReadonlySet<string> {
  const { state } = useApp();
  const ids = useComputed(() => {
    const all = state.value;
    return Object.values(all.devices)
      .filter((one) => isStale(all, one, now.value))
      .map((one) => one.record.device_id)
      .join("\n");
  });
  return new Set(ids.value.split("\n"));
}

export const createApp = (store: Pick<Store, "state" | "current">, server: Server): App => ({
  state: store.state,
  current: store.current,
  server,
  filter: signal(""),
  help: signal(false),
  finding: signal(false),
});
