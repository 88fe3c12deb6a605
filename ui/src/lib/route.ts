/* The address of a page: the part of the URL after #. A token in it is removed before anything else sees it. */
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

/** The token of `#token=…`, null if there is none. */
export function tokenOf(hash: string): string | null {
  const found = /^#token=([^&]+)/.exec(hash);
  return found ? decodeURIComponent(found[1]!) : null;
}

/** Follows the address; `onToken` gets a token that was in it, now or later (a link opened in this tab). */
export function startRouting(onToken: (token: string) => void): void {
  const follow = (): void => {
    const token = tokenOf(location.hash);
    if (token !== null) {
      history.replaceState(null, "", `${location.pathname}${location.search}#/overview`);
      onToken(token);
    }
    const next = parseRoute(location.hash);
    if (JSON.stringify(next) === JSON.stringify(route.value)) return;
    route.value = next;
    scrollTo(0, 0);
  };
  addEventListener("hashchange", follow);
  follow();
}
