/* Sentences of the server. It sends each in English as `reason`, `hint` and the like; where it can, `reason_said` beside
 * it tells which sentence that is: its key (printf's format) and what was printed into it. Each message is put into the
 * page's language where it arrives, so that nothing behind that has to know of this. A sentence without stays English. */
import { language, texts } from "./language";
import { filled, marked } from "./text";

export interface Said {
  readonly key: string;
  readonly args: readonly (string | Said)[];
}

const isSaid = (value: unknown): value is Said => {
  const { key, args } = (value ?? {}) as Partial<Said>;
  return typeof key === "string" && Array.isArray(args) && args.every((one) => typeof one === "string" || isSaid(one));
};

/** One conversion of printf: "%s", "%-5.2lf"; "%%" too. */
const CONVERSION = /%(?:%|[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|[jztL])?[a-zA-Z])/g;

/** The key with its args, in English, as the server prints it. */
function english({ key, args }: Said): string {
  let next = 0;
  return key.replace(CONVERSION, (whole) => {
    if (whole === "%%") return whole[0]!;
    const arg = args[next++];
    return arg === undefined ? whole : typeof arg === "string" ? arg : english(arg);
  });
}

/** What the server said, in the page's language where there is a text for it. `from`: what stands beside it, if anything. */
export function said(text: string, from: unknown): string {
  if (!isSaid(from)) return text;
  const known = texts?.[from.key];
  if (known === undefined) return marked(text);
  return filled(known, from.args.map((one) => (typeof one === "string" ? one : said(english(one), one))));
}

/** A whole text of the server that has no args: what the catalogue says of a model. */
export const told = (text: string): string => texts?.[text] ?? marked(text);

/** In the test language, other sentences of the server are told from those of the page by other marks. */
const foreign = (text: string): string => (language === "zz" && /[a-z]{2,}[,;:]? [a-z]{2,}/.test(text) ? `⟪${text}⟫` : text);

function put(value: unknown, beside: unknown): unknown {
  if (typeof value === "string") return beside ? said(value, beside) : foreign(value);
  if (Array.isArray(value)) return value.map((one, i) => put(one, Array.isArray(beside) ? beside[i] : undefined));
  if (typeof value !== "object" || value === null) return value;
  const of = value as Readonly<Record<string, unknown>>;
  return Object.fromEntries(Object.entries(of).map(([name, one]) => [name, name.endsWith("_said") ? one : put(one, of[`${name}_said`])]));
}

/** A message of the server with its sentences in the page's language. */
export const inLanguage = <T>(message: T): T => (language === "en" ? message : (put(message, undefined) as T));
