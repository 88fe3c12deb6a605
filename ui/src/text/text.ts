/* What the page says, in its language. The English in the code is the key: t`${name} is offline` is "{1} is offline" in
 * text/de/. A text that is missing there stays English; ui/test/german.test.mjs lets none be missing. */
import type { ComponentChildren } from "preact";
import { language, texts } from "./language";

/** The English of a template, with {1}, {2} … for what is put in: the key. */
const keyOf = (parts: readonly string[]): string => parts.reduce((all, part, i) => `${all}{${i}}${part}`);

/** "{2} of {1}" → [["", " of ", ""], [2, 1]] */
function take(text: string): { readonly parts: readonly string[]; readonly places: readonly number[] } {
  const pieces = text.split(/\{(\d+)[nl]?\}/);
  return { parts: pieces.filter((_, i) => i % 2 === 0), places: pieces.filter((_, i) => i % 2 === 1).map(Number) };
}

export const marked = (text: string): string => (language === "zz" ? `⟦${text}⟧` : text);

/** "3 Geräte" → "3 Geräten", as after "auf": {2n}. A single one and names stay as they are. */
const dative = (text: string): string => (/^[\d.]{2,}|^[02-9] /.test(text) && !/[ns]$/.test(text) ? `${text}n` : text);
const lowered = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1);

/** A text with {1}, {2} … and what stands there. {1n}: in the dative; {1l}: with a small letter at the beginning. */
export function filled(text: string, values: readonly (string | number)[]): string {
  return text.replace(/\{(\d+)([nl]?)\}/g, (whole, place: string, form: string) => {
    const value = values[Number(place) - 1];
    if (value === undefined) return whole;
    return form === "n" ? dative(String(value)) : form === "l" ? lowered(String(value)) : String(value);
  });
}

/** A text in the page's language: t`${name} is offline`. */
export function t(parts: TemplateStringsArray, ...values: readonly (string | number)[]): string {
  const known = texts?.[keyOf(parts)];
  return known === undefined ? marked(String.raw({ raw: parts }, ...values)) : filled(known, values);
}

/** The same with elements in it: tx`See ${<a href="#/access">Access</a>}.` */
export function tx(parts: TemplateStringsArray, ...values: readonly ComponentChildren[]): ComponentChildren {
  const known = texts?.[keyOf(parts)];
  const { parts: said, places } = known === undefined ? { parts, places: parts.slice(1).map((_, i) => i + 1) } : take(known);
  const children = said.flatMap((part, i) => [part, values[(places[i] ?? 0) - 1]]);
  return language === "zz" ? ["⟦", ...children, "⟧"] : children;
}

/** One or many of something: of the key "device|devices" the half that is right for `n`. */
export function noun(n: number, one: string, many: string): string {
  const [first, others = many] = texts?.[`${one}|${many}`]?.split("|") ?? [one];
  return n === 1 ? first! : others;
}

/** A sentence that differs between one and many: plural(n, t`It stays`, t`They stay`). */
export const plural = (n: number, one: string, many: string): string => (n === 1 ? one : many);
