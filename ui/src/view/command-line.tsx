/* A command to type into a terminal, with a button that copies it where the browser allows that. */
import { useState } from "preact/hooks";

export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = (): void => {
    navigator.clipboard.writeText(text).then(
      () => {
        setCopied(true);
        setTimeout(() => setCopied(false), 2000);
      },
      () => setCopied(false),
    );
  };
  return (
    <span class="cmd">
      <code>
        {text.split(" ").map((word, i) => [i > 0 && " ", <span key={word}>{word}</span>])}
      </code>
      {"clipboard" in navigator && (
        <button type="button" onClick={copy} aria-label={`Copy: ${text}`}>
          {copied ? "Copied" : "Copy"}
        </button>
      )}
    </span>
  );
}
