/* One side's words: an answer as Markdown, a question as it was written; thoughts folded, calls of tools as blocks; below
   it how fast it came, what can be done with it, and the way to its other versions. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { figure, took } from "../../lib/format";
import { type Call, type Figures, type Turn, argsText, foreseenText, prefillText, speedOf } from "../../state/chat";
import { t } from "../../text/text";
import { CopyButton } from "../command-line";
import { Markdown } from "./markdown";

const ends: Record<string, string> = {
  length: t`stopped at the token limit`,
  error: t`interrupted`,
};

function FiguresLine({ figures, model }: { figures: Figures; model: string | undefined }) {
  const speed = speedOf(figures);
  const foreseen = foreseenText(figures.foreseen);
  const end = figures.reason === null ? t`stopped` : ends[figures.reason];
  const about = figures.about ? t`about ` : "";
  return (
    <p class="turn-figures">
      {model && <span>{model}</span>}
      {figures.tokens !== null && (
        <span>
          {t`${about}${figure(figures.tokens)} tokens`}
        </span>
      )}
      {speed !== null && (
        <span>
          {t`${about}${figure(speed, speed < 100 ? 1 : 0)} tokens per s`}
        </span>
      )}
      {foreseen !== null && <span>{t`foreseen tokens: ${foreseen}`}</span>}
      {figures.firstMs > 0 && <span>{t`first token after ${took(figures.firstMs)}`}</span>}
      {figures.joules !== undefined && <span>{figure(figures.joules, figures.joules < 10 ? 1 : 0)} J</span>}
      {figures.prefill && <span>{prefillText(figures.prefill)}</span>}
      {end && <span>{end}</span>}
    </p>
  );
}

/** Open while nothing else has come. */
function Thought({ text, open }: { text: string; open: boolean }) {
  return (
    <details class="thought" open={open}>
      <summary>{open ? t`Thinking` : t`Thoughts`}</summary>
      <p>{text}</p>
    </details>
  );
}

function CallBlock({ call }: { call: Call }) {
  return (
    <details class="call" aria-label={t`Calls ${call.name}`}>
      <summary class="call-name">
        {t`Calls`}{" "}<strong>{call.name}</strong>
      </summary>
      <pre class="code">{argsText(call.args)}</pre>
    </details>
  );
}

/** What a tool answers is written by whoever has the conversation. */
export function CallAnswer({ call, send }: { call: Call; send: (text: string) => void }) {
  const [text, setText] = useState("");
  return (
    <form
      class="call-answer"
      onSubmit={(event) => {
        event.preventDefault();
        send(text);
      }}
    >
      <label class="in">
        <span class="label">{t`Result of ${call.name}`}</span>
        <textarea rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <button class="btn small-btn" type="submit">
        {t`Send result`}
      </button>
    </form>
  );
}

function Edit({ text, word, done, cancel }: { text: string; word: string; done: (text: string) => void; cancel: () => void }) {
  const [now, setNow] = useState(text);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => area.current?.focus(), []); // before the next key
  return (
    <form
      class="edit"
      onSubmit={(event) => {
        event.preventDefault();
        if (now.trim() !== "") done(now);
      }}
    >
      <textarea
        rows={Math.min(12, text.split("\n").length + 1)}
        value={now}
        aria-label={t`Edited text`}
        ref={area}
        onInput={(event) => setNow(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.stopPropagation();
          cancel();
        }}
      />
      <p class="acts">
        <button class="btn small-btn" type="button" onClick={cancel}>
          {t`Cancel`}
        </button>
        <button class="btn small-btn primary" type="submit" disabled={now.trim() === ""}>
          {word}
        </button>
      </p>
    </form>
  );
}

/** The versions of a turn that follow the same one: which is shown, and the way to the one before and behind it. */
function Versions({ place, count, show }: { place: number; count: number; show: (place: number) => void }) {
  const step = (by: number, word: string, sign: string) => (
    <button class="text-btn" type="button" disabled={place + by < 0 || place + by >= count} aria-label={word} onClick={() => show(place + by)}>
      {sign}
    </button>
  );
  return (
    <span class="versions" role="group" aria-label={t`Versions`}>
      {step(-1, t`Earlier version`, "‹")}
      <span class="label" role="status">
        <span class="sr">{t`Version`}{" "}</span>
        {place + 1} / {count}
      </span>
      {step(1, t`Later version`, "›")}
    </span>
  );
}

export interface TurnActs {
  /** Which of its versions is shown, of how many. */
  readonly place: number;
  readonly count: number;
  readonly show: (place: number) => void;
  /** A new version: a question is asked again, an answer only put down. Null: not now. */
  readonly edit: ((text: string) => void) | null;
  /** Let it be answered, or answered anew; null: not now, or it is nothing to be answered. */
  readonly again: (() => void) | null;
}

export function TurnView({ turn, writing, acts }: { turn: Turn; writing?: boolean; acts?: TurnActs }) {
  const [edits, setEdits] = useState(false);
  const mine = turn.role !== "assistant";
  const calls = turn.calls ?? [];
  const empty = turn.text === "" && !turn.thought && calls.length === 0;
  const edit = acts?.edit;
  const many = acts && acts.count > 1;
  const copies = !mine && turn.text !== "";
  return (
    <article class={`turn ${mine ? "mine" : ""}`} aria-label={turn.role === "tool" ? t`Tool result` : mine ? t`You` : t`The model`}>
      {edits && edit ? (
        <Edit
          text={turn.text}
          word={mine ? t`Send` : t`Save`}
          cancel={() => setEdits(false)}
          done={(text) => {
            setEdits(false);
            if (text !== turn.text) edit(text);
          }}
        />
      ) : (
        <div class={`turn-text ${writing && turn.text !== "" ? "writing" : ""}`} translate={false}>
          {empty && writing && <span class="faint">{t`reading the question`}</span>}
          {turn.thought && <Thought text={turn.thought} open={Boolean(writing) && turn.text === "" && calls.length === 0} />}
          <Markdown text={turn.text} plain={mine} />
          {calls.map((call, i) => (
            <CallBlock key={i} call={call} />
          ))}
        </div>
      )}
      {!writing && !edits && (!mine || many || edit || acts?.again) && (
        <div class="turn-foot">
          {turn.figures && <FiguresLine figures={turn.figures} model={turn.model} />}
          {copies && <CopyButton class="text-btn" text={turn.text} label={t`Copy the answer`} />}
          {edit && (
            <button class="text-btn" type="button" onClick={() => setEdits(true)}>
              {t`Edit`}
            </button>
          )}
          {acts?.again && (
            <button class="text-btn" type="button" onClick={acts.again}>
              {t`Again`}
            </button>
          )}
          {many && <Versions place={acts.place} count={acts.count} show={acts.show} />}
        </div>
      )}
    </article>
  );
}
