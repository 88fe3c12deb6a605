/* Text of an answer within a paragraph: code, emphasis, links, formulas. Written for what models write, which is most of
 * Markdown. Time is linear in the length, whatever the text: a search that found nothing is not made again. Pure. */

export type Span =
  | { readonly kind: "text" | "code" | "math"; readonly text: string }
  | { readonly kind: "strong" | "em" | "strike"; readonly spans: readonly Span[] }
  | { readonly kind: "link"; readonly href: string; readonly spans: readonly Span[] };

const DEEPEST = 6;
const MARKS: readonly { mark: string; kind: "strong" | "em" | "strike" }[] = [
  { mark: "**", kind: "strong" },
  { mark: "__", kind: "strong" },
  { mark: "~~", kind: "strike" },
  { mark: "*", kind: "em" },
  { mark: "_", kind: "em" },
];
const SPECIAL = /[\\`*_~[$<!h]/g;
const BARE_LINK = /https?:\/\/[^\s<>"'`|]+/y;
const BREAK = /<br\s?\/?>/iy;

const isSpace = (c: string | undefined): boolean => c === undefined || c === " " || c === "\n" || c === "\t";
const isWord = (c: string | undefined): boolean => c !== undefined && /[\p{L}\p{N}]/u.test(c);

/** Only what a browser opens as a page. */
export function safeHref(text: string): string | null {
  if (!/^https?:\/\/\S+$/i.test(text)) return null;
  try {
    return new URL(text).href;
  } catch {
    return null;
  }
}

class Reader {
  readonly #out: Span[] = [];
  #plain = "";
  #at = 0;
  /** Where something was found last, by what was looked for; -1: nowhere behind. */
  readonly #found = new Map<string, number>();

  constructor(
    readonly text: string,
    readonly depth: number,
  ) {}

  read(): Span[] {
    while (this.#at < this.text.length) {
      SPECIAL.lastIndex = this.#at;
      const next = SPECIAL.exec(this.text)?.index ?? this.text.length;
      this.#plain += this.text.slice(this.#at, next);
      this.#at = next;
      if (next < this.text.length && !this.#special()) this.#plain += this.text[this.#at++];
    }
    this.#flush();
    return this.#out;
  }

  #flush(): void {
    if (this.#plain !== "") this.#out.push({ kind: "text", text: this.#plain });
    this.#plain = "";
  }

  #push(span: Span, end: number): true {
    this.#flush();
    this.#out.push(span);
    this.#at = end;
    return true;
  }

  #inside(from: number, to: number): readonly Span[] {
    const text = this.text.slice(from, to);
    return this.depth < DEEPEST ? new Reader(text, this.depth + 1).read() : [{ kind: "text", text }];
  }

  /** The first place from `from` on where `what` stands and `fits`; -1: nowhere. `from` only grows. */
  #find(what: string, from: number, fits: (at: number) => boolean = () => true): number {
    const before = this.#found.get(what);
    if (before !== undefined && (before === -1 || before >= from)) return before;
    let at = this.text.indexOf(what, from);
    while (at >= 0 && !fits(at)) at = this.text.indexOf(what, at + 1);
    this.#found.set(what, at);
    return at;
  }

  #special(): boolean {
    const { text } = this;
    const at = this.#at;
    switch (text[at]) {
      case "\\":
        return this.#escape();
      case "`":
        return this.#code();
      case "[":
        return this.#link(at);
      case "!":
        return text[at + 1] === "[" && this.#link(at + 1);
      case "$":
        return this.#dollar();
      case "<":
        BREAK.lastIndex = at;
        if (!BREAK.test(text)) return false;
        this.#plain += "\n";
        this.#at = BREAK.lastIndex;
        return true;
      case "h":
        return this.#bare();
      default:
        return this.#emphasis();
    }
  }

  #escape(): boolean {
    const next = this.text[this.#at + 1];
    if (next === "(") {
      const end = this.#find("\\)", this.#at + 2);
      if (end > 0) return this.#push({ kind: "math", text: this.text.slice(this.#at + 2, end).trim() }, end + 2);
    }
    if (next === undefined || !/[!-/:-@[-`{-~]/.test(next)) return false;
    this.#plain += next;
    this.#at += 2;
    return true;
  }

  #code(): boolean {
    let run = this.#at;
    while (this.text[run] === "`") run++;
    const ticks = this.text.slice(this.#at, run);
    const end = this.#find(ticks, run, (at) => this.text[at - 1] !== "`" && this.text[at + ticks.length] !== "`");
    if (end < 0) {
      this.#plain += ticks;
      this.#at = run;
      return true;
    }
    return this.#push({ kind: "code", text: this.text.slice(run, end).replace(/^ (.*) $/s, "$1") }, end + ticks.length);
  }

  /** From the bracket on; a picture is a link: nothing is fetched that nobody presses. */
  #link(open: number): boolean {
    const close = this.#find("]", open + 1);
    if (close < 0 || this.text[close + 1] !== "(") return false;
    let end = this.#find(")", close + 2);
    if (end < 0) return false;
    if (this.text[end + 1] === ")" && this.text.slice(close + 2, end).includes("(")) end++; // a path with brackets
    const href = safeHref(/^\S*/.exec(this.text.slice(close + 2, end).trim())![0]);
    const spans = this.#inside(open + 1, close);
    if (href !== null) return this.#push({ kind: "link", href, spans }, end + 1);
    this.#flush();
    this.#out.push(...spans);
    this.#at = end + 1;
    return true;
  }

  #bare(): boolean {
    BARE_LINK.lastIndex = this.#at;
    const found = isWord(this.text[this.#at - 1]) ? undefined : BARE_LINK.exec(this.text)?.[0];
    if (!found) return false;
    let length = found.length;
    while (length > 0 && ".,;:!?)]}*_".includes(found[length - 1]!)) length--;
    const shown = found.slice(0, length);
    const href = safeHref(shown);
    return href !== null && this.#push({ kind: "link", href, spans: [{ kind: "text", text: shown }] }, this.#at + length);
  }

  #dollar(): boolean {
    const { text } = this;
    const at = this.#at;
    if (isSpace(text[at + 1]) || text[at + 1] === "$") return false;
    const end = this.#find("$", at + 1, (to) => !isSpace(text[to - 1]) && !/[0-9$]/.test(text[to + 1] ?? ""));
    if (end < 0 || text.slice(at, Math.min(end, at + 400)).includes("\n") || end - at > 400) return false;
    return this.#push({ kind: "math", text: text.slice(at + 1, end) }, end + 1);
  }

  #emphasis(): boolean {
    const { text } = this;
    const at = this.#at;
    const found = MARKS.find(({ mark }) => text.startsWith(mark, at));
    if (!found) return false;
    const { mark, kind } = found;
    const from = at + mark.length;
    const low = mark[0] === "_";
    if (isSpace(text[from]) || (low && isWord(text[at - 1]))) return this.#skip(mark);
    const end = this.#find(
      mark,
      from + 1,
      (to) =>
        !isSpace(text[to - 1]) &&
        (mark.length > 1 || (text[to + 1] !== mark && text[to - 1] !== mark)) &&
        !(low && isWord(text[to + mark.length])),
    );
    if (end < 0) return this.#skip(mark);
    const last = mark.length > 1 && text[end + mark.length] === mark[0] ? end + 1 : end; // "***both***"
    return this.#push({ kind, spans: this.#inside(from, last) }, last + mark.length);
  }

  #skip(mark: string): true {
    this.#plain += mark;
    this.#at += mark.length;
    return true;
  }
}

export const spansOf = (text: string): Span[] => new Reader(text, 0).read();
