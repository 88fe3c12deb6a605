/* Markdown as models write it, in blocks: headings, lists, tables, quotes, code, formulas. Nothing of it is HTML, and a
 * text that is cut off anywhere, as one that still comes, is read as far as it goes. Pure. */
import { type Span, spansOf } from "./spans";

export type Align = "left" | "center" | "right";

export type Block =
  | { readonly kind: "text"; readonly spans: readonly Span[] }
  | { readonly kind: "heading"; readonly level: number; readonly spans: readonly Span[] }
  /** open: its end has not come. */
  | { readonly kind: "code"; readonly language: string; readonly text: string; readonly open: boolean }
  | { readonly kind: "math"; readonly text: string }
  | { readonly kind: "rule" }
  | { readonly kind: "quote"; readonly blocks: readonly Block[] }
  | { readonly kind: "list"; readonly start: number | null; readonly items: readonly (readonly Block[])[] }
  | { readonly kind: "table"; readonly aligns: readonly Align[]; readonly head: readonly (readonly Span[])[]; readonly rows: readonly (readonly (readonly Span[])[])[] };

const DEEPEST = 8;
/** Lines of a formula. */
const MOST_MATH = 200;
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])([ \t]+|$)/;
const QUOTE = /^ {0,3}> ?/;
const MATH = /^ {0,3}(?:\$\$|\\\[)/;

const isBlank = (line: string | undefined): boolean => line !== undefined && line.trim() === "";
const indentOf = (line: string): number => line.length - line.trimStart().length;
const isRule = (line: string): boolean => {
  const marks = line.replace(/\s/g, "");
  return marks.length >= 3 && indentOf(line) < 4 && [..."-*_"].some((mark) => marks === mark.repeat(marks.length));
};

/** The marks of a fence, and what stands behind them; null: it is none. */
function fenceOf(line: string): { marks: string; rest: string } | null {
  const found = FENCE.exec(line);
  const rest = found ? line.slice(found[0].length) : "";
  return found && !(found[1]!.startsWith("`") && rest.includes("`")) ? { marks: found[1]!, rest: rest.trim() } : null;
}

/** The cells of a line of a table; null where it has no bar. */
function cellsOf(line: string | undefined): string[] | null {
  if (!line?.includes("|")) return null;
  const cells = line.trim().replace(/^\|/, "").replaceAll("\\|", "\0").split("|");
  if (cells.at(-1)?.trim() === "") cells.pop();
  return cells.map((cell) => cell.replaceAll("\0", "|").trim());
}

function alignsOf(line: string | undefined, columns: number): Align[] | null {
  const cells = cellsOf(line);
  if (cells?.length !== columns || !cells.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return cells.map((cell) => (!cell.endsWith(":") ? "left" : cell.startsWith(":") ? "center" : "right"));
}

class Blocks {
  #at = 0;
  readonly #out: Block[] = [];

  constructor(
    readonly lines: readonly string[],
    readonly depth: number,
    /** Only code is told from text. */
    readonly plain: boolean,
  ) {}

  read(): Block[] {
    while (this.#at < this.lines.length) if (!this.#code() && (this.plain || !this.#other())) this.#text();
    return this.#out;
  }

  get #line(): string | undefined {
    return this.lines[this.#at];
  }

  #inner(lines: readonly string[]): Block[] {
    if (this.depth < DEEPEST) return new Blocks(lines, this.depth + 1, false).read();
    return [{ kind: "text", spans: [{ kind: "text", text: lines.join("\n") }] }];
  }

  #code(): boolean {
    const fence = fenceOf(this.#line!);
    if (!fence) return false;
    const indent = indentOf(this.#line!);
    const lines: string[] = [];
    let open = true;
    for (this.#at++; open && this.#at < this.lines.length; this.#at++) {
      const line = this.#line!;
      const trimmed = line.trim();
      open = trimmed.length < fence.marks.length || trimmed !== fence.marks[0]!.repeat(trimmed.length);
      if (open) lines.push(line.slice(Math.min(indent, indentOf(line))));
    }
    this.#out.push({ kind: "code", language: fence.rest.split(/[\s{,]/, 1)[0]!.toLowerCase(), text: lines.join("\n"), open });
    return true;
  }

  #other(): boolean {
    const line = this.#line!;
    if (isBlank(line)) {
      this.#at++;
      return true;
    }
    const heading = HEADING.exec(line);
    if (heading) {
      const said = line.slice(heading[0].length).trim().replace(/(^|[ \t])#+$/, "");
      this.#out.push({ kind: "heading", level: heading[1]!.length, spans: spansOf(said) });
      this.#at++;
      return true;
    }
    if (isRule(line)) {
      this.#out.push({ kind: "rule" });
      this.#at++;
      return true;
    }
    return this.#math() || this.#quote() || this.#list() || this.#table();
  }

  #math(): boolean {
    const begin = MATH.exec(this.#line!)?.[0];
    if (begin === undefined) return false;
    const end = begin.trim() === "$$" ? "$$" : "\\]";
    const lines: string[] = [];
    let rest = this.#line!.slice(begin.length);
    for (let at = this.#at + 1; at - this.#at <= MOST_MATH; rest = this.lines[at++]!) {
      const close = rest.indexOf(end);
      lines.push(close < 0 ? rest : rest.slice(0, close));
      if (close >= 0) {
        this.#out.push({ kind: "math", text: lines.join("\n").trim() });
        const behind = rest.slice(close + end.length).trim();
        if (behind !== "") this.#out.push({ kind: "text", spans: spansOf(behind) });
        this.#at = at;
        return true;
      }
      if (this.lines[at] === undefined || isBlank(this.lines[at])) return false;
    }
    return false;
  }

  #quote(): boolean {
    const lines: string[] = [];
    for (; this.#line !== undefined && QUOTE.test(this.#line); this.#at++) lines.push(this.#line.replace(QUOTE, ""));
    if (lines.length > 0) this.#out.push({ kind: "quote", blocks: this.#inner(lines) });
    return lines.length > 0;
  }

  #list(): boolean {
    const first = ITEM.exec(this.#line!);
    if (!first || isRule(this.#line!)) return false;
    const numbered = /\d/.test(first[2]!);
    const base = first[1]!.length;
    const items: string[][] = [];
    let need = base + 2;
    const isItem = (line: string): RegExpExecArray | null => {
      const found = ITEM.exec(line);
      return found && !isRule(line) && Math.abs(found[1]!.length - base) < 2 && /\d/.test(found[2]!) === numbered ? found : null;
    };
    const belongs = (line: string): boolean => isItem(line) !== null || indentOf(line) >= base + 2;
    while (this.#line !== undefined) {
      const line: string = this.#line;
      if (isBlank(line)) {
        let next = this.#at;
        while (isBlank(this.lines[next])) next++;
        if (next >= this.lines.length || !belongs(this.lines[next]!)) break;
        items.at(-1)!.push("");
        this.#at = next;
        continue;
      }
      const item = isItem(line);
      if (item) {
        need = Math.max(base + 2, item[0].length);
        items.push([line.slice(item[0].length)]);
      } else if (indentOf(line) >= base + 2) items.at(-1)!.push(line.slice(Math.min(need, indentOf(line))));
      else if (!isBlank(items.at(-1)!.at(-1)) && !this.#begins(line)) items.at(-1)!.push(line.trim());
      else break;
      this.#at++;
    }
    this.#out.push({ kind: "list", start: numbered ? parseInt(first[2]!, 10) : null, items: items.map((lines) => this.#inner(lines)) });
    return true;
  }

  #table(): boolean {
    const head = cellsOf(this.#line);
    const aligns = head && alignsOf(this.lines[this.#at + 1], head.length);
    if (!head || !aligns) return false;
    const rows: (readonly Span[])[][] = [];
    for (this.#at += 2; this.#line !== undefined; this.#at++) {
      const cells = cellsOf(this.#line);
      if (!cells) break;
      rows.push(head.map((_, i) => spansOf(cells[i] ?? "")));
    }
    this.#out.push({ kind: "table", aligns, head: head.map(spansOf), rows });
    return true;
  }

  /** Whether a paragraph ends before this line. */
  #begins(line: string): boolean {
    return fenceOf(line) !== null || HEADING.test(line) || QUOTE.test(line) || MATH.test(line) || ITEM.test(line) || isRule(line);
  }

  #text(): void {
    const lines: string[] = [];
    const ends = (line: string): boolean => (this.plain ? fenceOf(line) !== null : isBlank(line) || (this.#begins(line) && lines.length > 0));
    while (this.#line !== undefined && !ends(this.#line)) {
      if (!this.plain && lines.length > 0 && this.#beginsTable()) break;
      lines.push(this.#line);
      this.#at++;
    }
    const text = this.plain ? lines.join("\n").replace(/^\n+|\n+$/g, "") : lines.join("\n").trim();
    if (text !== "") this.#out.push({ kind: "text", spans: this.plain ? [{ kind: "text", text }] : spansOf(text) });
  }

  #beginsTable(): boolean {
    const head = cellsOf(this.#line);
    return head !== null && alignsOf(this.lines[this.#at + 1], head.length) !== null;
  }
}

/** What a model wrote. */
export const blocksOf = (text: string): Block[] => new Blocks(text.split(/\r?\n/), 0, false).read();
/** What a person wrote: as it is, but for code between fences. */
export const plainBlocksOf = (text: string): Block[] => new Blocks(text.split(/\r?\n/), 0, true).read();
