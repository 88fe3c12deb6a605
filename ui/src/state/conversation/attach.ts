/* Files that go with a message, as text between fences that no line of them closes. Pure. */
import { t } from "../../text/text";

export interface Attached {
  readonly name: string;
  readonly text: string;
}

const MOST_BYTES = 256 * 1024;

/** The file as text, or why it cannot go with a message. */
export function attachedFrom(name: string, bytes: Uint8Array): Attached | string {
  if (bytes.length > MOST_BYTES) return t`${name} has ${Math.ceil(bytes.length / 1024)} KiB; a file of at most ${MOST_BYTES / 1024} KiB goes with a message.`;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? t`${name} is not text.` : { name, text };
  } catch {
    return t`${name} is not text in UTF-8.`;
  }
}

function fenceFor(text: string): string {
  const longest = (text.match(/`{3,}/g) ?? []).reduce((most, run) => Math.max(most, run.length), 2);
  return "`".repeat(longest + 1);
}

/** The language by the name's ending, for the fence. */
const endingOf = (name: string): string => /\.([A-Za-z0-9]{1,10})$/.exec(name)?.[1]?.toLowerCase() ?? "";

/** The message with its files behind it. */
export function withFiles(message: string, files: readonly Attached[]): string {
  const parts = files.map(({ name, text }) => {
    const fence = fenceFor(text);
    return `${name.replace(/[\r\n`]/g, " ")}:\n${fence}${endingOf(name)}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [message, ...parts].filter((part) => part !== "").join("\n\n");
}
