/* Pages and parts that are files of their own: what the first paint does not need. They are fetched soon after it, so
 * that they are there when they are opened, also while the connection is lost. */
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { isLive } from "../state/select";
import { useApp } from "./app-context";

export interface Lazy<P> {
  /** The placeholder until it is loaded; its argument says whether loading failed. */
  View: ComponentType<P & { waiting: (failed: boolean) => ComponentChildren }>;
  /** Fetches it; false when it cannot be had now. */
  load(): Promise<boolean>;
}

export function lazy<P extends object>(fetchPart: () => Promise<ComponentType<P>>): Lazy<P> {
  let Part: ComponentType<P> | null = null;
  const load = async (): Promise<boolean> => {
    try {
      Part = await fetchPart();
      return true;
    } catch {
      return false;
    }
  };
  const View: Lazy<P>["View"] = ({ waiting, ...properties }) => {
    const { state } = useApp();
    const [outcome, setOutcome] = useState<boolean | null>(Part ? true : null);
    const live = isLive(state.value);
    useEffect(() => {
      if (!Part) void load().then(setOutcome);
    }, [live]);
    return Part ? <Part {...(properties as unknown as P)} /> : <>{waiting(outcome === false || !live)}</>;
  };
  return { View, load };
}
