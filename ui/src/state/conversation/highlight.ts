/* Code in parts: comments, strings, numbers and words of the language, told by how each family of languages writes them.
 * They are shown by weight and shade: colour has other meanings on this page. Pure. */

export interface Part {
  readonly kind: "plain" | "comment" | "string" | "number" | "word";
  readonly text: string;
}

/** More than this stays plain: it would be read anew with each piece that comes. */
const MOST = 50_000;

const C_WORDS =
  "abstract|as|async|await|auto|bool|boolean|break|byte|case|catch|char|class|const|constexpr|continue|default|defer|delete|do|double|dyn|else|enum|export|extends|extern|false|final|finally|float|fn|for|foreach|from|func|function|go|goto|if|impl|implements|import|in|inline|instanceof|int|interface|let|long|match|mod|mut|namespace|new|nil|null|nullptr|override|package|private|protected|pub|public|readonly|return|self|short|signed|sizeof|static|string|struct|super|switch|template|this|throw|throws|trait|true|try|type|typedef|typename|typeof|undefined|union|unsafe|unsigned|use|using|val|var|virtual|void|volatile|where|while|yield";
const HASH_WORDS =
  "and|as|assert|async|await|begin|break|case|class|continue|def|del|do|done|elif|else|elsif|end|esac|except|exec|export|false|False|fi|finally|for|from|function|global|if|import|in|is|lambda|local|module|nil|None|nonlocal|not|null|or|pass|raise|require|rescue|return|self|set|sub|then|true|True|try|unless|until|use|while|with|yield";
const SQL_WORDS =
  "add|all|alter|and|as|asc|begin|between|by|case|commit|create|delete|desc|distinct|drop|else|end|exists|from|group|having|in|index|inner|insert|into|is|join|key|left|like|limit|local|function|return|not|null|offset|on|or|order|outer|primary|references|returning|right|select|set|table|then|union|unique|update|values|view|when|where|with";

const STRINGS = `"(?:\\\\[\\s\\S]|[^"\\\\\\n])*"?|'(?:\\\\[\\s\\S]|[^'\\\\\\n])*'?`;
const NUMBER = "\\b(?:0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*";

const reader = (comment: string, strings: string, words: string, flags = ""): RegExp =>
  new RegExp(`(?<comment>${comment})|(?<string>${strings})|(?<number>${NUMBER})|(?<word>\\b(?:${words})\\b)|[A-Za-z_$][\\w$]*`, `g${flags}`);

const slash = reader("\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)", `${STRINGS}|\`(?:\\\\[\\s\\S]|[^\`\\\\])*\`?`, C_WORDS);
const hash = reader("#[^\\n]*", `"""[\\s\\S]*?(?:"""|$)|'''[\\s\\S]*?(?:'''|$)|${STRINGS}`, HASH_WORDS);
const dash = reader("--[^\\n]*", STRINGS, SQL_WORDS, "i");
const tags = reader("<!--[\\s\\S]*?(?:-->|$)", `"[^"\\n]*"?`, "(?!)");

const families: readonly [RegExp, string][] = [
  [slash, "c h cc cpp c++ hpp cxx cs csharp java js javascript jsx mjs ts typescript tsx go golang rust rs swift kotlin kt scala dart php json json5 jsonc css scss less cuda cu glsl hlsl wgsl zig groovy proto solidity d v objc"],
  [hash, "py python python3 sh bash shell zsh fish console ruby rb perl pl yaml yml toml ini conf r julia jl make makefile dockerfile docker cmake elixir ex nix powershell ps1 tcl"],
  [dash, "sql postgresql mysql sqlite plsql lua haskell hs ada vhdl elm"],
  [tags, "html xml svg vue svelte"],
];
const byLanguage = new Map(families.flatMap(([family, names]) => names.split(" ").map((name): [string, RegExp] => [name, family])));

export function partsOf(text: string, language: string): readonly Part[] {
  const family = byLanguage.get(language);
  if (!family || text.length > MOST) return [{ kind: "plain", text }];
  const parts: Part[] = [];
  let plain = 0;
  for (const match of text.matchAll(family)) {
    const kind = (["comment", "string", "number", "word"] as const).find((name) => match.groups?.[name] !== undefined);
    if (!kind) continue; // a name
    if (match.index > plain) parts.push({ kind: "plain", text: text.slice(plain, match.index) });
    parts.push({ kind, text: match[0] });
    plain = match.index + match[0].length;
  }
  if (plain < text.length) parts.push({ kind: "plain", text: text.slice(plain) });
  return parts;
}
