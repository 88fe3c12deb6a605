/* What the page /lend says of the weights of models that this browser keeps, and where a person sets the limit. */
import { useState } from "preact/hooks";
import { memory } from "../lib/format";
import { t } from "../text/text";
import type { App, View } from "./main";

export const size = (bytes: number): string => {
  const { value, unit } = memory(bytes);
  return `${value} ${unit}`;
};

/** `choices` without what is chosen: a limit that was set when there was more room. */
export function StoreSelect({ choices, value, change }: { choices: number[]; value: number; change(bytes: number): void }) {
  const all = choices.includes(value) ? choices : [...choices, value].sort((a, b) => a - b);
  return (
    <select value={value} onChange={(event) => change(Number(event.currentTarget.value))}>
      {all.map((bytes) => (
        <option key={bytes} value={bytes}>
          {bytes ? size(bytes) : t`nothing`}
        </option>
      ))}
    </select>
  );
}

/** A browser that keeps nothing, and may not, has no row. */
export const hasStored = (app: App, view: Extract<View, { kind: "node" }>): boolean => app.choices.value.length > 1 || view.state.stored.bytes > 0;

/** A row of a list of facts. */
export function Stored({ app, view }: { app: App; view: Extract<View, { kind: "node" }> }) {
  const [deleted, setDeleted] = useState(false);
  const { stored } = view.state;
  return (
    <>
      <dt>{t`Weights`}</dt>
      <dd class="lend-stored">
        <label class="lend-check">
          {stored.bytes ? t`${size(stored.bytes)} kept here, at most` : t`none kept here, at most`}{" "}
          <StoreSelect choices={app.choices.value} value={view.store_bytes} change={(bytes) => app.keepAtMost(bytes)} />
        </label>
        {stored.bytes > 0 && (
          <button class="link-btn" type="button" onClick={() => (app.deleteKept(), setDeleted(true))}>
            {t`Delete`}
          </button>
        )}
        {stored.full && <p class="small warm">{t`The browser gives no more room. What is not kept is fetched again.`}</p>}
        {deleted && !stored.bytes && <p class="small quiet">{t`Deleted. What computes now goes on; the next time its weights are fetched again.`}</p>}
      </dd>
    </>
  );
}
