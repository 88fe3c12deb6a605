/* The libraries and drivers that are loaded at run time: found or not, and what to do. */
import type { Library } from "../../lib/api.gen";
import { sentence } from "../../lib/format";
import { t } from "../../text/text";
import { type Mark, MarkIcon } from "../parts";

const words: Record<Library["state"], { word: string; mark: Mark; tone: string }> = {
  found: { word: t`found`, mark: "ok", tone: "ok" },
  missing: { word: t`missing`, mark: "idle", tone: "" },
  too_old: { word: t`too old`, mark: "throttled", tone: "wait" },
  broken: { word: t`does not work`, mark: "offline", tone: "no" },
};

export function LibraryList({ libraries }: { libraries: readonly Library[] }) {
  return (
    <ul class="libs">
      {libraries.map((one) => {
        const { word, mark, tone } = words[one.state];
        return (
          <li key={one.name}>
            <span class="line">
              <b>{one.name}</b>
              <span class={`verdict small ${tone}`}>
                <MarkIcon mark={mark} />
                {word}
              </span>
            </span>
            {one.minimum_version && one.state === "too_old" && (
              <span class="small quiet">{t`needs ${one.minimum_version} or newer`}</span>
            )}
            {one.reason && <span class="small quiet">{sentence(one.reason)}</span>}
            {one.hint && one.state !== "found" && <span class="small quiet">{sentence(one.hint)}</span>}
            {one.state === "found" && (one.version || one.file) && (
              <span class="line small faint">
                <span>{one.version}</span>
                {one.file && <span class="code">{one.file}</span>}
              </span>
            )}
          </li>
        );
      })}
    </ul>
  );
}
