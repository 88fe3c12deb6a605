/* What the page /lend says of the weights of models that this browser keeps, and where a person sets the limit. */
import { useState } from "preact/hooks";
import { memory } from "../lib/format";
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
          {bytes ? size(bytes) : "nothing"}
        </option>
      ))}
    </select>
  );
}

export function Stored({ app, view }: { app: App; view: Extract<View, { kind: "node" }> }) {
  const [deleted, setDeleted] = useState(false);
  const { stored } = view.state;
  const choices = app.choices.value;
  if (choices.length < 2 && !stored.bytes) return null;
  return (
    <dl class="facts lend-facts">
      <dt>Weights of models</dt>
      <dd class="lend-stored">
        <span>{stored.bytes ? `${size(stored.bytes)} kept in this browser` : "none kept in this browser"}</span>
        <label class="lend-check">
          at most <StoreSelect choices={choices} value={view.store_bytes} change={(bytes) => app.keepAtMost(bytes)} />
        </label>
        {stored.bytes > 0 && (
          <button class="btn" type="button" onClick={() => (app.deleteKept(), setDeleted(true))}>
            Delete
          </button>
        )}
        {stored.full && <p class="small warm">The browser gives no more room. What is not kept is fetched again.</p>}
        {deleted && !stored.bytes && <p class="small quiet">Deleted. What computes now goes on; the next time its weights are fetched again.</p>}
      </dd>
    </dl>
  );
}
