/* One side's words: text as it is, code set apart; thoughts folded, calls of tools as blocks; below an answer how fast it
   came. */
import { useState } from "preact/hooks";
import { figure, took } from "../../lib/format";
import { type Call, type Figures, type Turn, argsText, foreseenText, piecesOf, speedOf } from "../../state/chat";

const ends: Record<string, string> = {
  length: "stopped at the token limit",
  error: "interrupted",
};

function FiguresLine({ figures, model }: { figures: Figures; model: string | undefined }) {
  const speed = speedOf(figures);
  const foreseen = foreseenText(figures.foreseen);
  const end = figures.reason === null ? "stopped" : ends[figures.reason];
  return (
    <p class="turn-figures">
      {model && <span>{model}</span>}
      {figures.tokens !== null && <span>{figure(figures.tokens)} tokens</span>}
      {speed !== null && <span>{figure(speed, speed < 100 ? 1 : 0)} tokens per s</span>}
      {foreseen !== null && <span>foreseen tokens: {foreseen}</span>}
      {figures.firstMs > 0 && <span>first token after {took(figures.firstMs)}</span>}
      {end && <span>{end}</span>}
    </p>
  );
}

/** Open while nothing else has come. */
function Thought({ text, open }: { text: string; open: boolean }) {
  return (
    <details class="thought" open={open}>
      <summary>{open ? "Thinking" : "Thoughts"}</summary>
      <p>{text}</p>
    </details>
  );
}

function CallBlock({ call }: { call: Call }) {
  return (
    <div class="call" role="group" aria-label={`Calls ${call.name}`}>
      <p class="call-name">
        Calls <strong>{call.name}</strong>
      </p>
      <pre class="code">{argsText(call.args)}</pre>
    </div>
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
        <span class="label">Result of {call.name}</span>
        <textarea rows={2} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <button class="btn small-btn" type="submit">
        Send result
      </button>
    </form>
  );
}

export function TurnView({ turn, writing }: { turn: Turn; writing?: boolean }) {
  const [copied, setCopied] = useState(false);
  const copy = (): void => {
    void navigator.clipboard.writeText(turn.text).then(() => {
      setCopied(true);
      setTimeout(() => setCopied(false), 2000);
    });
  };
  const mine = turn.role !== "assistant";
  const calls = turn.calls ?? [];
  const empty = turn.text === "" && !turn.thought && calls.length === 0;
  return (
    <article class={`turn ${mine ? "mine" : ""}`} aria-label={turn.role === "tool" ? "Tool result" : mine ? "You" : "The model"}>
      <div class={`turn-text ${writing && turn.text !== "" ? "writing" : ""}`}>
        {empty && writing && <span class="faint">reading the question</span>}
        {turn.thought && <Thought text={turn.thought} open={Boolean(writing) && turn.text === "" && calls.length === 0} />}
        {piecesOf(mine ? turn.text : turn.text.trimStart()).map((piece, i) =>
          piece.kind === "code" ? (
            <pre key={i} class="code">
              {piece.text}
            </pre>
          ) : (
            <p key={i}>{piece.text}</p>
          ),
        )}
        {calls.map((call, i) => (
          <CallBlock key={i} call={call} />
        ))}
      </div>
      {!mine && !writing && (
        <div class="turn-foot">
          {turn.figures && <FiguresLine figures={turn.figures} model={turn.model} />}
          {"clipboard" in navigator && turn.text !== "" && (
            <button class="text-btn" type="button" onClick={copy}>
              {copied ? "Copied" : "Copy"}
            </button>
          )}
        </div>
      )}
    </article>
  );
}
