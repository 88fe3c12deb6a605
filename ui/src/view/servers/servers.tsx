/* Several servers that take turns: how they stand, and what to do when the one of this page is gone. */
import { type Props } from "./lazy";
import { Lost } from "./lost";
import { ServersPanel } from "./panel";

export default function ServersPart({ as, children }: Props) {
  return as === "panel" ? <ServersPanel /> : as === "lost" ? <Lost>{children}</Lost> : null;
}
