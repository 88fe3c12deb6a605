/* What is told of several servers is a file of its own, which is fetched where there are several. */
import type { ComponentChildren } from "preact";
import { useApp } from "../app-context";
import { lazy } from "../lazy";

export interface Props {
  /** `lost`: in the banner of a lost connection, whose usual text are the children. `nothing`: only fetched, while it can be. */
  as: "panel" | "lost" | "nothing";
  children?: ComponentChildren;
}

const { View } = lazy<Props>(() => import("./servers").then((part) => part.default));

export function Servers(props: Props) {
  const { server, servers } = useApp().state.value;
  const several = Math.max(servers.length, server?.servers.length ?? 0) > 1;
  return several ? <View {...props} waiting={() => props.children} /> : <>{props.children}</>;
}
