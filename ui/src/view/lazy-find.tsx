/* The search, fetched after the first paint. */
import { useApp } from "./app-context";
import { lazy } from "./lazy";

const { View, load } = lazy(() => import("./find").then((part) => part.default));

export const loadFind = load;

export function LazyFind() {
  const { finding } = useApp();
  return finding.value ? <View waiting={() => null} /> : null;
}
