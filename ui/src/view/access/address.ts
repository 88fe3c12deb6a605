/* Where others reach this server. */
import { useEffect, useState } from "preact/hooks";
import { isRefusal } from "../../command/access";
import { readDiscovery } from "../../command/topology";
import type { Heard } from "../../lib/api.gen";
import { isLoopback, joinAddress } from "../../state/access";
import { isLive } from "../../state/select";
import { useApp } from "../app-context";

/** Where machines reach this server. */
export function useAddress(): string {
  const { state, server } = useApp();
  const [asked, setAsked] = useState<readonly Heard[] | null>(null);
  const wanted = isLive(state.value) && state.value.heard === null && isLoopback(location.hostname);
  useEffect(() => {
    if (!wanted) return;
    let current = true;
    void readDiscovery(server).then((outcome) => current && !isRefusal(outcome) && setAsked(outcome.heard));
    return () => void (current = false);
  }, [wanted]);
  return joinAddress(location, state.value.heard ?? asked);
}
