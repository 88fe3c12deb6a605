/* The wall view: what there is, whether it is well, what it does and what may go wrong, for a large screen that nobody
 * touches. There is nothing to press; Esc goes to the Overview. */
import { useEffect, useLayoutEffect } from "preact/hooks";
import { now } from "../../lib/clock";
import { age, clockTime, count } from "../../lib/format";
import { readTheme } from "../../lib/prefs";
import { theme } from "../../lib/theme";
import { isLive } from "../../state/select";
import { type Verdict, ahead, verdict } from "../../state/wall";
import { t } from "../../text/text";
import { useApp } from "../app-context";
import { type Mark, MarkIcon } from "../parts";
import { WallDevices, WallModels } from "./lists";
import { WallVitals } from "./vitals";

const AHEAD = 5;
const marks: Record<Verdict["level"], Mark> = { well: "ok", attention: "throttled", error: "offline", unknown: "stale" };

/** Dark, unless this browser was told otherwise by the switch of another page. */
function useDark(): void {
  useLayoutEffect(() => {
    const { dataset } = document.documentElement;
    dataset["theme"] = readTheme() ?? "dark";
    return () => {
      dataset["theme"] = theme.value;
    };
  }, [theme.value]);
}

function useEscape(): void {
  useEffect(() => {
    const back = (event: KeyboardEvent): void => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) location.hash = "#/overview";
    };
    addEventListener("keydown", back);
    return () => removeEventListener("keydown", back);
  }, []);
}

export function WallPage() {
  const { state } = useApp();
  useDark();
  useEscape();
  const all = state.value;
  const { level, text } = verdict(all);
  const any = Object.keys(all.nodes).length > 0;
  return (
    <main class={`wall ${isLive(all) ? "" : "stale"}`}>
      <header class="wall-head">
        <h1 class={`wall-verdict ${level}`}>
          <MarkIcon mark={marks[level]} />
          <span>{text}</span>
        </h1>
        <p class="wall-who">
          <b class="clip">{all.server?.name}</b>
          <span>
            {clockTime(now.value)} <Heard />
          </span>
        </p>
      </header>
      {any ? (
        <>
          <WallVitals />
          <div class="wall-body">
            <WallDevices />
            <div class="wall-side">
              <WallModels />
              <WallAhead />
            </div>
          </div>
        </>
      ) : (
        all.loaded && <p class="wall-none">{t`Start exogpu node on a machine. Its devices show here as soon as it has joined.`}</p>
      )}
    </main>
  );
}

/** How old everything here is. */
function Heard() {
  const { heardAt } = useApp().state.value;
  return heardAt === null ? null : <span class="faint">{t`heard ${age(now.value - heardAt)} ago`}</span>;
}

function WallAhead() {
  const { state } = useApp();
  const { lines, more } = ahead(state.value, now.value, AHEAD);
  return (
    <section class="panel wall-panel" aria-label={t`What to watch`}>
      <h2 class="wall-title">{t`What to watch`}</h2>
      <ul>
        {lines.map(({ key, level, text }) => (
          <li key={key} class={`wall-line ${level}`}>
            <MarkIcon mark={level === "error" ? "offline" : level === "attention" ? "throttled" : "info"} />
            <span>{text}</span>
          </li>
        ))}
        {lines.length === 0 && <li class="wall-line quiet">{t`No device reports its memory or temperature.`}</li>}
      </ul>
      {more > 0 && <p class="wall-more">{t`and ${count(more, "more thing")}`}</p>}
    </section>
  );
}
