/* What every view may reach: the state to draw, the server to ask, the filter that pages share. */
import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Server } from "../net/socket";
import type { State } from "../state/state";

export interface App {
  state: ReadonlySignal<State>;
  server: Server;
  filter: Signal<string>;
  help: Signal<boolean>;
}

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
  const app = useContext(AppContext);
  if (!app) throw new Error("a view outside of the app");
  return app;
}

export const createApp = (state: ReadonlySignal<State>, server: Server): App => ({
  state,
  server,
  filter: signal(""),
  help: signal(false),
});
