/* What a user's WGSL module says of itself: its compute entry points and what a launch passes to each.
 *
 * WebGPU tells nothing of a module's variables, so the text is read here, at module scope only: attributes, variables,
 * structs, aliases, and the names that occur in functions. The compiler has the last word on whether it is WGSL; what is
 * read here decides only about names, kinds and order. The convention (docs/lend.md): all in @group(0); storage buffers
 * are the launch's allocations, in the order of @binding; one uniform variable, a scalar or a struct of scalars, is the
 * launch's values, in the order of the members. Pure functions. */
import type { Kind, Parameter } from "./builtin";
import { Fault } from "./fault";

export const SOURCE_MAX = 256 * 1024;
const TOKENS_MAX = 100_000;
const ENTRIES_MAX = 32;
/** As a launch's args. */
const PARAMETERS_MAX = 32;
/** Values of a launch have one uniform buffer. */
export const VALUES_MAX = 32;

export interface Storage {
  name: string;
  binding: number;
  written: boolean;
}
export interface Entry {
  name: string;
  storages: Storage[]; // by binding
  values: { binding: number; members: { name: string; kind: "f32" | "i32" | "u32" }[] } | null;
  /** As the text fixes it; null: by an expression, which is not computed here. */
  block: [number, number, number] | null;
}

/** What a launch passes, in order. */
export function parametersOf(entry: Entry): Parameter[] {
  const memory: Parameter[] = entry.storages.map(({ name }) => ({ name, kind: "allocation" }));
  return [...memory, ...(entry.values?.members ?? []).map(({ name, kind }) => ({ name, kind: kind as Kind }))];
}

const bad = (message: string): Fault =>
  new Fault("invalid_params", `the module: ${message}`, "docs/lend.md says what a WGSL module of a launch looks like");

// ---- tokens ----

const BLANK = /[\s\p{Pattern_White_Space}]+|\/\/[^\n\v\f\r\u0085\u2028\u2029]*/uy;
const TOKEN = /[\p{XID_Start}_][\p{XID_Continue}]*|[0-9][0-9A-Za-z_.]*|->|[^\s]/uy;

/** The end of a comment that may hold others. */
function endOfComment(text: string, start: number): number {
  let depth = 0;
  for (let i = start; i < text.length; i++) {
    if (text.startsWith("/*", i)) {
      depth++;
      i++;
    } else if (text.startsWith("*/", i)) {
      i++;
      if (--depth === 0) return i + 1;
    }
  }
  throw bad("a comment does not end");
}

function tokensOf(text: string): string[] {
  const out: string[] = [];
  for (let at = 0; at < text.length; ) {
    BLANK.lastIndex = TOKEN.lastIndex = at;
    if (text.startsWith("/*", at)) {
      at = endOfComment(text, at);
      continue;
    }
    const blank = BLANK.exec(text);
    if (blank) {
      at += blank[0].length;
      continue;
    }
    const token = TOKEN.exec(text);
    if (!token) throw bad(`a character at ${at} belongs to no word`);
    if (out.push(token[0]) > TOKENS_MAX) throw new Fault("limit_exceeded", `a WGSL module has ${TOKENS_MAX} words at most`);
    at += token[0].length;
  }
  return out;
}

// ---- declarations ----

type Attributes = Map<string, string[][]>; // name: its arguments, each as tokens
interface Variable {
  name: string;
  space: string[]; // between < and >, without commas
  type: string[];
  group: number | null;
  binding: number | null;
}
interface Struct {
  members: { name: string; type: string[]; attributes: Attributes }[];
}
interface Module {
  variables: Map<string, Variable>;
  structs: Map<string, Struct>;
  aliases: Map<string, string[]>;
  constants: Map<string, string[]>;
  functions: Map<string, { names: Set<string>; attributes: Attributes }>;
}

const CLOSING: Record<string, string> = { "(": ")", "[": "]", "{": "}" };
const IDENTIFIER = /^[\p{XID_Start}_]/u;

class Reader {
  private readonly tokens: string[];
  private at = 0;
  constructor(tokens: string[]) {
    this.tokens = tokens;
  }

  get next(): string {
    return this.tokens[this.at] ?? "";
  }
  take(): string {
    const token = this.tokens[this.at++];
    if (token === undefined) throw bad("it ends in the middle of a declaration");
    return token;
  }
  accept(token: string): boolean {
    if (this.next !== token) return false;
    this.at++;
    return true;
  }
  expect(token: string): void {
    const found = this.take();
    if (found !== token) throw bad(`${token} is missing before ${found.slice(0, 32)}`);
  }
  name(): string {
    const token = this.take();
    if (!IDENTIFIER.test(token)) throw bad(`a name is missing before ${token.slice(0, 32)}`);
    return token;
  }

  /** All up to one of `ends`, which is not taken; brackets are skipped whole. */
  until(...ends: string[]): string[] {
    const out: string[] = [];
    const open: string[] = [];
    while (open.length || !ends.includes(this.next)) {
      const token = this.take();
      out.push(token);
      const closing = CLOSING[token];
      if (closing) open.push(closing);
      else if (token === open[open.length - 1]) open.pop();
      else if (token === ")" || token === "]" || token === "}") throw bad(`a ${token} closes nothing`);
    }
    return out;
  }

  /** A type: its < and > are no brackets elsewhere. */
  type(...ends: string[]): string[] {
    const out: string[] = [];
    for (let depth = 0; depth > 0 || !ends.includes(this.next); ) {
      const token = this.take();
      if (token === "<") depth++;
      if (token === ">" && --depth < 0) throw bad("a > closes nothing");
      if (token === ";" || token === "{" || token === "}") throw bad("a type does not end");
      out.push(token);
    }
    return out;
  }

  /** The tokens between a bracket, which is next, and its partner. */
  inside(bracket: string): string[] {
    const closing = CLOSING[bracket] ?? "";
    this.expect(bracket);
    const out = this.until(closing);
    this.expect(closing);
    return out;
  }

  attributes(): Attributes {
    const out: Attributes = new Map();
    while (this.accept("@")) {
      const name = this.name();
      const args: string[][] = [];
      if (this.next === "(") {
        const inside = new Reader([...this.inside("("), ","]);
        while (inside.next) {
          const arg = inside.until(",");
          inside.expect(",");
          if (arg.length) args.push(arg);
        }
      }
      out.set(name, args);
    }
    return out;
  }
}

function readVariable(reader: Reader, module: Module, attributes: Attributes): void {
  const space = reader.accept("<") ? reader.until(">").filter((token) => token !== ",") : [];
  if (space.length) reader.expect(">");
  const name = reader.name();
  const type = reader.accept(":") ? reader.type("=", ";") : [];
  if (reader.accept("=")) reader.until(";");
  reader.expect(";");
  module.variables.set(name, {
    name,
    space,
    type,
    group: numberOf(module, attributes.get("group")?.[0]),
    binding: numberOf(module, attributes.get("binding")?.[0]),
  });
}

function readStruct(reader: Reader, module: Module): void {
  const name = reader.name();
  const members: Struct["members"] = [];
  reader.expect("{");
  while (!reader.accept("}")) {
    const attributes = reader.attributes();
    const member = reader.name();
    reader.expect(":");
    members.push({ name: member, type: reader.type(",", "}"), attributes });
    reader.accept(",");
  }
  module.structs.set(name, { members });
}

function readFunction(reader: Reader, module: Module, attributes: Attributes): void {
  const name = reader.name();
  const words = reader.inside("(");
  words.push(...reader.until("{"), ...reader.inside("{"));
  const names = words.filter((word, at) => IDENTIFIER.test(word) && words[at - 1] !== "."); // but members
  module.functions.set(name, { names: new Set(names), attributes });
}

function readModule(text: string): Module {
  const reader = new Reader(tokensOf(text));
  const module: Module = {
    variables: new Map(),
    structs: new Map(),
    aliases: new Map(),
    constants: new Map(),
    functions: new Map(),
  };
  while (reader.next) {
    if (reader.accept(";")) continue;
    const attributes = reader.attributes();
    const word = reader.take();
    if (word === "var") readVariable(reader, module, attributes);
    else if (word === "struct") readStruct(reader, module);
    else if (word === "fn") readFunction(reader, module, attributes);
    else if (word === "alias") {
      const name = reader.name();
      reader.expect("=");
      module.aliases.set(name, reader.type(";"));
    } else if (word === "const" || word === "override") {
      const name = reader.name();
      if (reader.accept(":")) reader.type("=", ";");
      const value = reader.accept("=") ? reader.until(";") : [];
      if (word === "const") module.constants.set(name, value);
    } else if (["enable", "requires", "diagnostic", "const_assert"].includes(word)) reader.until(";");
    else throw bad(`nothing begins with ${word.slice(0, 32)}`);
  }
  return module;
}

// ---- meaning ----

const DECIMAL = /^[0-9]{1,9}[iu]?$/;

/** A whole number, or a constant that is one; null: an expression. */
function numberOf(module: Module, tokens: string[] | undefined): number | null {
  let [token, more] = tokens ?? [];
  for (let steps = 0; token !== undefined && more === undefined && steps < 8; steps++) {
    if (DECIMAL.test(token)) return Number.parseInt(token, 10);
    [token, more] = module.constants.get(token) ?? [];
  }
  return null;
}

function typeOf(module: Module, type: string[]): string {
  let found = type;
  for (let steps = 0; found.length === 1 && steps < 16; steps++) {
    const alias = module.aliases.get(found[0] ?? "");
    if (!alias) break;
    found = alias;
  }
  return found.join("");
}

function scalar(module: Module, type: string[], name: string): "f32" | "i32" | "u32" {
  const word = typeOf(module, type);
  if (word !== "f32" && word !== "i32" && word !== "u32")
    throw bad(`${name} is ${word.slice(0, 64)}; values of a launch are f32, i32 and u32`);
  return word;
}

function valuesOf(module: Module, variable: Variable): NonNullable<Entry["values"]> {
  const struct = module.structs.get(typeOf(module, variable.type));
  const members = (struct?.members ?? [{ name: variable.name, type: variable.type, attributes: new Map() }]).map((one) => {
    if (one.attributes.size) throw bad(`${one.name} has attributes; members of a launch's values have none`);
    return { name: one.name, kind: scalar(module, one.type, one.name) };
  });
  if (members.length > VALUES_MAX) throw bad(`${variable.name} has over ${VALUES_MAX} values`);
  return { binding: variable.binding ?? 0, members };
}

/** The names that a function and all that it calls contain. */
function reached(module: Module, name: string): Set<string> {
  const all = new Set<string>();
  const open = [name];
  for (let one = open.pop(); one !== undefined; one = open.pop())
    for (const word of module.functions.get(one)?.names ?? []) {
      if (all.has(word)) continue;
      all.add(word);
      if (module.functions.has(word)) open.push(word);
    }
  return all;
}

function entryOf(module: Module, name: string, attributes: Attributes): Entry {
  const names = reached(module, name);
  const entry: Entry = { name, storages: [], values: null, block: null };
  for (const variable of module.variables.values()) {
    const [space, access] = variable.space;
    if (!names.has(variable.name) || space === "private" || space === "workgroup") continue;
    if (space !== "storage" && space !== "uniform")
      throw bad(`${variable.name} is no buffer; textures and samplers cannot be passed`);
    if (variable.group !== 0 || variable.binding === null || variable.binding > 999)
      throw bad(`${variable.name} needs @group(0) and a whole number as @binding`);
    const others = [...entry.storages, ...(entry.values ? [entry.values] : [])];
    if (others.some(({ binding }) => binding === variable.binding))
      throw bad(`${variable.name} has the binding of another variable of ${name}`);
    if (space === "storage")
      entry.storages.push({ name: variable.name, binding: variable.binding, written: access === "read_write" });
    else if (entry.values) throw bad(`${name} uses two uniform variables; values of a launch are one`);
    else entry.values = valuesOf(module, variable);
  }
  entry.storages.sort((one, other) => one.binding - other.binding);
  if (parametersOf(entry).length > PARAMETERS_MAX) throw bad(`${name} takes over ${PARAMETERS_MAX} arguments`);
  const size = attributes.get("workgroup_size") ?? [];
  const block = [0, 1, 2].map((axis) => (size[axis] ? numberOf(module, size[axis]) : axis ? 1 : null));
  if (block.every((one) => one !== null)) entry.block = block as [number, number, number];
  return entry;
}

/** The compute entry points of a module. Throws Fault. */
export function entriesOf(text: string): Entry[] {
  const module = readModule(text);
  const entries = [...module.functions]
    .filter(([, { attributes }]) => attributes.has("compute"))
    .map(([name, { attributes }]) => entryOf(module, name, attributes));
  if (!entries.length) throw bad("it has no @compute function");
  if (entries.length > ENTRIES_MAX) throw new Fault("limit_exceeded", `a WGSL module has ${ENTRIES_MAX} kernels at most`);
  if (entries.some(({ name }) => name.length > 128)) throw bad("a kernel's name has over 128 characters");
  return entries;
}

/** The source of a module. Throws Fault. */
export function sourceOf(body: Uint8Array): string {
  if (body.length > SOURCE_MAX)
    throw new Fault("limit_exceeded", `a WGSL module of ${body.length} bytes; at most ${SOURCE_MAX}`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    throw new Fault("invalid_params", "a WGSL module is text in UTF-8");
  }
}
