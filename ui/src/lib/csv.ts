/* Cells of CSV (RFC 4180), which a spreadsheet may open. Pure. */

/** A spreadsheet takes text that begins like a formula for one: an apostrophe says that it is text. */
const harmless = (text: string): string => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);

export const quoted = (text: string): string => `"${harmless(text).replaceAll('"', '""')}"`;

/** Quoted only where it has to be; null is empty. Numbers stay numbers, those below zero too. */
export function cell(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  return /[",\r\n]/.test(value) || harmless(value) !== value ? quoted(value) : value;
}
