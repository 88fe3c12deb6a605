/* In the banner of a lost connection: whether another server takes over, or which other address to open. The page asks
 * its own address alone: a token is for the address that it was given to, and a page of another one is not trusted here. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { now } from "../../lib/clock";
import { age, clockTime } from "../../lib/format";
import { type Health, mayConnect, otherAddresses, readHealth } from "../../state/servers";
import { t } from "../../text/text";
import { useApp } from "../app-context";

const ASK_MS = 2_000;
/** A busy server may take so long to answer. */
const PATIENCE_MS = 5_000;

async function askHealth(): Promise<Health | null> {
  const control = new AbortController();
  const late = setTimeout(() => control.abort(), PATIENCE_MS);
  try {
    return readHealth(await (await fetch("/healthz", { cache: "no-store", signal: control.signal })).json());
  } catch {
    return null;
  } finally {
    clearTimeout(late);
  }
}

export function Lost({ children }: { children: ComponentChildren }) {
  const { state, server } = useApp();
  const { connection, loaded } = state.value;
  const [health, setHealth] = useState<Health | null | "asked">("asked");
  useEffect(() => {
    let over = false;
    let timer: ReturnType<typeof setTimeout>;
    const ask = async (): Promise<void> => {
      const answer = await askHealth();
      if (over) return;
      setHealth(answer);
      if (answer && mayConnect(answer)) server.tryNow();
      timer = setTimeout(() => void ask(), ASK_MS);
    };
    void ask();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, []);
  if (connection.phase !== "lost" || health === "asked") return <>{children}</>;
  if (connection.cause !== "gone" && connection.cause !== "shutdown") return <>{children}</>;
  const others = otherAddresses(state.value, location.origin);
  const since = <span aria-live="off">{t`for ${age(now.value - connection.since)}`}</span>;
  const from = loaded && t`What you see is from ${clockTime(connection.since)}.`;
  if (health)
    return (
      <>
        <b>{t`Another server takes over`}</b>
        <p>
          {t`The server that led does not answer any more. One of the others takes its place within seconds, and this page goes on by itself. Models on other machines stay loaded; answers and sessions have ended.`}{" "}
          {from}
        </p>
      </>
    );
  if (others.length === 0) return <>{children}</>;
  return (
    <>
      <b>{t`This server does not answer`} {since}</b>
      <p>
        {t`If it is gone, another server leads the cluster by now. Open the dashboard there, and log in with the same token:`}{" "}
        {others.map((address, i) => (
          <span key={address}>
            {i > 0 && ", "}
            <a class="link" href={address} rel="noreferrer" translate={false}>{address}</a>
          </span>
        ))}
        {". "}
        {from}
      </p>
    </>
  );
}
