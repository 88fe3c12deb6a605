/* The small parts that everything is built of: icons, states, figures, ages, memory bars. */
import type { ComponentChildren } from "preact";
import type { Refusal } from "../command/tried";
import type { Device } from "../lib/api.gen";
import { now } from "../lib/clock";
import { age, fullTime, memoryOf, sentence } from "../lib/format";
import { ageOf, shownState } from "../state/select";
import { t } from "../text/text";
import { word } from "../text/words";
import { useApp } from "./app-context";

export type Mark = Device["state"] | "stale" | "ok" | "info";

export const Icon = ({ name }: { name: string }) => (
  <svg class="icon" aria-hidden="true">
    <use href={`#i-${name}`} />
  </svg>
);

export const MarkIcon = ({ mark, class: name }: { mark: Mark; class?: string }) => (
  <svg class={name} aria-hidden="true">
    <use href={`#s-${mark}`} />
  </svg>
);

/** A state: its shape and its word. `bare` keeps the word for screen readers only. */
export const StateMark = ({ state, bare }: { state: Mark; bare?: boolean }) => (
  <span class="state" data-state={state}>
    <MarkIcon mark={state} />
    <span class={bare ? "sr" : undefined}>{word(state)}</span>
  </span>
);

/** A device's state, by shownState(). */
export function DeviceMark({ record, stale, bare }: { record: Device; stale?: boolean; bare?: boolean }) {
  const { mark, word: shown } = shownState(record, stale);
  return (
    <span class="state" data-state={mark} title={record.state_reason ?? undefined}>
      <MarkIcon mark={mark} />
      <span class={bare ? "sr" : undefined}>{word(shown)}</span>
    </span>
  );
}

/** A device's name where it may be cut off: before the number that tells it from others, never that. */
export function Named({ text }: { text: string }) {
  const at = text.search(/ · \d+$/);
  if (at < 0) return <>{text}</>;
  return (
    <span class="numbered">
      <span class="clip">{text.slice(0, at)}</span>
      <span>{text.slice(at)}</span>
    </span>
  );
}

export const NotReported = () => <span class="not-reported">{t`not reported`}</span>;

/** In place of rows that a filter has taken away. */
export const NothingFits = () => <p class="panel-body small quiet">{t`Nothing here fits the filter.`}</p>;

/** A figure with its unit, smaller and fainter. */
export const Figure = ({ value, unit }: { value: string; unit: string }) => (
  <>
    {value}
    <span class="unit"> {unit}</span>
  </>
);

/** "20.3 / 24.0 GiB"; without a total only what is used. */
export function MemoryFigure({
  used,
  total,
  word = "/",
}: {
  used: number | null;
  total: number | null;
  word?: string;
}) {
  if (used === null) return <NotReported />;
  const of = memoryOf(used, total ?? used);
  if (total === null) return <Figure value={of.used} unit={of.unit} />;
  if (word === "/") return <Figure value={`${of.used} / ${of.total}`} unit={of.unit} />;
  return (
    <>
      {of.used}
      <span class="unit">
        {" "}
        {word} {of.total} {of.unit}
      </span>
    </>
  );
}

/** Memory in use, on an axis `axis` bytes long. */
export function MemoryBar({
  used,
  total,
  axis,
  other,
}: {
  used: number | null;
  total: number | null;
  axis?: number;
  other?: boolean;
}) {
  if (total === null || total <= 0) return <div class="membar unknown" />;
  const length = { "--cap": axis ? (total / axis) * 100 : 100 };
  if (used === null) return <div class="membar unknown" style={length} />;
  const share = Math.min(100, (used / total) * 100);
  const tone = share >= 97 ? " full" : other ? " other" : "";
  return (
    <div class={`membar${tone}`} style={length}>
      <i style={{ "--v": share }} />
    </div>
  );
}

/** How old something is, ticking. `at` is the server's time as text. */
export function Age({ at, mark }: { at: string | null; mark?: boolean }) {
  const { state } = useApp();
  const ms = ageOf(state.value, at, now.value);
  if (ms === null) return null;
  return (
    <span class={mark ? "age" : undefined} title={at ? fullTime(Date.parse(at)) : undefined}>
      {mark && <MarkIcon mark="stale" />}
      {t`${age(ms)} ago`}
    </span>
  );
}

/** The time since the last message; shown while the connection is lost. */
export function LostAge() {
  const { state } = useApp();
  const { heardAt } = state.value;
  if (heardAt === null) return null;
  return (
    <span class="age">
      <MarkIcon mark="stale" />
      {t`${age(now.value - heardAt)} ago`}
    </span>
  );
}

export function Panel({
  title,
  aside,
  class: name,
  children,
  label,
}: {
  title?: ComponentChildren;
  aside?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
  label?: string;
}) {
  return (
    <section class={`panel ${name ?? ""}`} aria-label={label ?? (typeof title === "string" ? title : undefined)}>
      {title !== undefined && (
        <div class="panel-head">
          <h2>{title}</h2>
          {aside !== undefined && <span class="aside">{aside}</span>}
        </div>
      )}
      {children}
    </section>
  );
}

/** Why a command was refused, beside the button that gave it. */
export const RefusalNote = ({ refusal }: { refusal: Refusal | null }) =>
  refusal && (
    <p class="small refusal" role="alert">
      <MarkIcon mark="offline" />
      <span>
        <b>{sentence(refusal.what)}</b> {sentence(refusal.hint)}
      </span>
    </p>
  );

/** A pair of term and fact in a list of facts; nothing known is said as such. */
export const Fact = ({ name, children }: { name: string; children?: ComponentChildren }) => (
  <>
    <dt>{name}</dt>
    <dd>
      {children === null || children === undefined || children === false || children === "" ? (
        <NotReported />
      ) : (
        children
      )}
    </dd>
  </>
);

export const Chips = ({ items }: { items: readonly string[] }) => (
  <span class="chips">
    {items.map((item) => (
      <span class="chip" key={item}>
        {item}
      </span>
    ))}
  </span>
);
