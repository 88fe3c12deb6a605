/* A command to type into a terminal, or lines for a program, with a button that copies them where the browser allows that. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { t } from "../text/text";

/** Whether `text` was copied within the last 2 s, and what copies it. */
function useCopy(text: string): [boolean, () => void] {
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
  return [copied, copy];
}

export function CopyButton({ text, label, class: name }: { text: string; label: string; class?: string }) {
  const [copied, copy] = useCopy(text);
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

/** An id or an address in a list: a button itself, so that the row has no second one. `children`: a shorter form of it. */
export function CopyId({ text, children, title }: { text: string; children?: ComponentChildren; title?: string }) {
  const [copied, copy] = useCopy(text);
  const shown = <span class="code" translate={false} title={title}>{children ?? text}</span>;
  if (!("clipboard" in navigator)) return shown;
  return (
    <button class={`text-btn copy-id ${copied ? "done" : ""}`} type="button" onClick={copy} title={title ? undefined : t`Copy`} aria-label={copied ? undefined : t`Copy: ${text}`}>
      {shown}
      {copied && <span class="copy-done">{t`Copied`}</span>}
    </button>
  );
}

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
