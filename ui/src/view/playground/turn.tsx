/* One side's words: text as it is, code set apart; below an answer how fast it came. */
import { useState } from "preact/hooks";
import { figure, took } from "../../lib/format";
import { type Figures, type Turn, piecesOf, speedOf } from "../../state/chat";

const ends: Record<string, string> = {
  length: "stopped at the token limit",
  error: "interrupted",
};

function FiguresLine({ figures, model }: { figures: Figures; model: string | undefined }) {
  const speed = speedOf(figures);
  const end = figures.reason === null ? "stopped" : ends[figures.reason];
  return (
    <p class="turn-figures">
      {model && <span>{model}</span>}
      {figures.tokens !== null && <span>{figure(figures.tokens)} tokens</span>}
      {speed !== null && <span>{figure(speed, speed < 100 ? 1 : 0)} tokens per s</span>}
      {figures.firstMs > 0 && <span>first token after {took(figures.firstMs)}</span>}
      {end && <span>{end}</span>}
    </p>
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
  const mine = turn.role === "user";
  return (
    <article class={`turn ${mine ? "mine" : ""}`} aria-label={mine ? "You" : "The model"}>
      <div class={`turn-text ${writing && turn.text !== "" ? "writing" : ""}`}>
        {turn.text === "" && writing && <span class="faint">reading the question</span>}
        {piecesOf(mine ? turn.text : turn.text.trimStart()).map((piece, i) =>
          piece.kind === "code" ? (
            <pre key={i} class="code">
              {piece.text}
            </pre>
          ) : (
            <p key={i}>{piece.text}</p>
          ),
        )}
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
