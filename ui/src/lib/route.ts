/* The address of a page: the part of the URL after #. A token or code in it is removed before anything else sees it. */
import { signal } from "@preact/signals";

export type Route =
  | { page: "overview" }
  | { page: "devices" }
  | { page: "device"; id: string }
  | { page: "node"; id: string }
  | { page: "topology" }
  | { page: "models" }
  | { page: "model"; id: string }
  | { page: "playground"; id: string }
  | { page: "allocations" }
  | { page: "access" }
  | { page: "audit" }
  | { page: "alerts" }
  | { page: "usage" }
  | { page: "logs" }
  | { page: "wall" }
  | { page: "unknown"; path: string };

export function parseRoute(hash: string): Route {
  const [page = "", id = "", ...more] = hash.replace(/^#?\/?/, "").split("/");
  let name: string;
  try {
    name = decodeURIComponent(id);
  } catch {
    name = id;
  }
  if (more.length === 0) {
    if (page === "" || (page === "overview" && !id)) return { page: "overview" };
    if (page === "devices") return name ? { page: "device", id: name } : { page: "devices" };
    if ((page === "topology" || page === "allocations" || page === "access" || page === "audit" || page === "alerts" || page === "usage" || page === "logs" || page === "wall") && !id) return { page };
    if (page === "models") return name ? { page: "model", id: name } : { page: "models" };
    if (page === "playground") return { page: "playground", id: name };
    if (page === "nodes" && name) return { page: "node", id: name };
  }
  return { page: "unknown", path: hash };
}

export const deviceHref = (id: string): string => `#/devices/${encodeURIComponent(id)}`;
export const modelHref = (id: string): string => `#/models/${encodeURIComponent(id)}`;
export const playgroundHref = (instance: string): string => `#/playground/${encodeURIComponent(instance)}`;
export const nodeHref = (id: string): string => `#/nodes/${encodeURIComponent(id)}`;

export const route = signal<Route>({ page: "overview" });

/** What an address may bring to log in with: a token, or a code that is exchanged for one. */
export type Brought = { kind: "token" | "code"; text: string };

/** What stands in `#token=…` or `#code=…`, null if neither does. */
export function broughtBy(hash: string): Brought | null {
  const found = /^#(token|code)=([^&]+)/.exec(hash);
  return found ? { kind: found[1] as Brought["kind"], text: decodeURIComponent(found[2]!) } : null;
}

/** Follows the address; `onBrought` gets what was in it to log in with, now or later (a link opened in this tab). */
export function startRouting(onBrought: (brought: Brought) => void): void {
  const follow = (): void => {
    const brought = broughtBy(location.hash);
    if (brought !== null) {
      history.replaceState(null, "", `${location.pathname}${location.search}#/overview`);
      onBrought(brought);
    }
    const next = parseRoute(location.hash);
    if (JSON.stringify(next) === JSON.stringify(route.value)) return;
    route.value = next;
    scrollTo(0, 0);
  };
  addEventListener("hashchange", follow);
  follow();
}
