/* A command to type into a terminal, or lines for a program, with a button that copies them where the browser allows that. */
import { useState } from "preact/hooks";
import { t } from "../text/text";

export function CopyButton({ text, label, class: name }: { text: string; label: string; class?: string }) {
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
  if (!("clipboard" in navigator)) return null;
  return (
    <button class={name} type="button" onClick={copy} aria-label={copied ? undefined : label}>
      {copied ? t`Copied` : t`Copy`}
    </button>
  );
}

export function Command({ text }: { text: string }) {
  return (
    <span class="cmd">
      <code>
        {text.split(" ").map((word, i) => [i > 0 && " ", <span key={word}>{word}</span>])}
      </code>
      <CopyButton text={text} label={t`Copy: ${text}`} />
    </span>
  );
}

/** An id or an address as it is, with a button that copies it. */
export const Copied = ({ text }: { text: string }) => (
  <span class="copied">
    <span class="code">{text}</span> <CopyButton text={text} label={t`Copy: ${text}`} class="text-btn small" />
  </span>
);

/** Lines as they are; `name` says whose. */
export function Lines({ text, name }: { text: string; name: string }) {
  return (
    <span class="cmd lines">
      <pre tabIndex={0} role="group" aria-label={name}>
        {text}
      </pre>
      <CopyButton text={text} label={t`Copy: ${name}`} />
    </span>
  );
}
