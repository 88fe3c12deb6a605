/* What the server says of a stage before its weights come: the shape of the model, which layers are this tab's, and the
 * tensors (stage.open of schema/node.json). Every number is bounded here, and nothing behind this file checks a size
 * again. Pure functions. */
import type { Json } from "../../../net/codec";
import { Fault } from "../fault";
import { type Format, isFormat, rowBytes } from "./formats";
import { HEAD_SIZE_MOST } from "./kernels";

export interface Shape {
  embedding: number;
  feed_forward: number;
  heads: number;
  kv_heads: number;
  head_size: number;
  vocabulary: number;
  norm_epsilon: number;
  /** Of embeddings and of scores. */
  embedding_scale: number;
  attention_scale: number;
  gate: "silu" | "gelu";
  qkv_bias: boolean;
  qk_norm: boolean;
  rope_size: number;
  rope_halves: boolean;
  rope_magnitude: number;
  /** Of each pair of values. */
  rope_frequency: number[];
  /** Layers without rotary positions. */
  unturned: number[];
}

export const MATRICES = ["token_embedding", "q", "k", "v", "attention_output", "gate", "up", "down"] as const;
export const VECTORS = ["attention_norm", "ffn_norm", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm"] as const;
export type MatrixRole = (typeof MATRICES)[number];
export type VectorRole = (typeof VECTORS)[number];
export type Role = MatrixRole | VectorRole;

export interface Tensor {
  role: Role;
  layer: number;
  format: Format;
  rows: number;
  columns: number;
  row_bytes: number;
}

export interface Plan {
  /** Of the model, for the page. */
  name: string;
  /** Of the server: what all parts of a ring tell each other. */
  version: string;
  first_layer: number;
  layer_count: number;
  embeds: boolean;
  shape: Shape;
  tensors: Tensor[];
}

const LAYERS_MOST = 512;
const WIDTH_MOST = 65536;
const VOCABULARY_MOST = 1 << 20;
const TENSORS_MOST = LAYERS_MOST * 16;

type Members = { [key: string]: Json };
const isObject = (value: Json | undefined): value is Members =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function wrong(name: string): Fault {
  return new Fault("invalid_params", `stage.open: ${name} is missing or does not fit`);
}
function integer(from: Members, name: string, least: number, most: number): number {
  const value = from[name];
  if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most) throw wrong(name);
  return value;
}
function positive(from: Members, name: string): number {
  const value = from[name];
  if (typeof value !== "number" || !(value > 0) || value > 1e6) throw wrong(name);
  return value;
}
function flag(from: Members, name: string): boolean {
  const value = from[name];
  if (typeof value !== "boolean") throw wrong(name);
  return value;
}
function text(from: Members, name: string, most: number): string {
  const value = from[name];
  if (typeof value !== "string" || !value || value.length > most) throw wrong(name);
  return value;
}
function numbers(from: Members, name: string, count: number | null, check: (value: number) => boolean): number[] {
  const value = from[name];
  if (!Array.isArray(value) || (count === null ? value.length > LAYERS_MOST : value.length !== count)) throw wrong(name);
  return value.map((one) => {
    if (typeof one !== "number" || !check(one)) throw wrong(name);
    return one;
  });
}

function readShape(from: Members): Shape {
  const head_size = integer(from, "head_size", 2, HEAD_SIZE_MOST);
  const rope_size = integer(from, "rope_size", 0, head_size);
  const kv_heads = integer(from, "kv_heads", 1, 512);
  const gate = from["gate"];
  if (gate !== "silu" && gate !== "gelu") throw wrong("gate");
  const shape: Shape = {
    embedding: integer(from, "embedding", 32, WIDTH_MOST),
    feed_forward: integer(from, "feed_forward", 32, WIDTH_MOST),
    heads: integer(from, "heads", 1, 512),
    kv_heads,
    head_size,
    vocabulary: integer(from, "vocabulary", 1, VOCABULARY_MOST),
    norm_epsilon: positive(from, "norm_epsilon"),
    embedding_scale: positive(from, "embedding_scale"),
    attention_scale: positive(from, "attention_scale"),
    gate,
    qkv_bias: flag(from, "qkv_bias"),
    qk_norm: flag(from, "qk_norm"),
    rope_size,
    rope_halves: flag(from, "rope_halves"),
    rope_magnitude: positive(from, "rope_magnitude"),
    rope_frequency: numbers(from, "rope_frequency", rope_size / 2, (one) => one >= 0 && one <= 1e6),
    unturned: numbers(from, "unturned", null, (one) => Number.isInteger(one) && one >= 0 && one < LAYERS_MOST),
  };
  if (shape.heads % kv_heads || head_size % 2 || rope_size % 2) throw wrong("heads");
  return shape;
}

/** Rows and columns that follow from the shape. */
export function sizeOf(shape: Shape, role: Role): [number, number] {
  const { embedding, feed_forward, head_size, vocabulary } = shape;
  const q = shape.heads * head_size;
  const kv = shape.kv_heads * head_size;
  const sizes: Record<Role, [number, number]> = {
    token_embedding: [vocabulary, embedding],
    q: [q, embedding],
    k: [kv, embedding],
    v: [kv, embedding],
    attention_output: [embedding, q],
    gate: [feed_forward, embedding],
    up: [feed_forward, embedding],
    down: [embedding, feed_forward],
    attention_norm: [1, embedding],
    ffn_norm: [1, embedding],
    q_bias: [1, q],
    k_bias: [1, kv],
    v_bias: [1, kv],
    q_norm: [1, head_size],
    k_norm: [1, head_size],
  };
  return sizes[role];
}

export const isVector = (role: Role): role is VectorRole => (VECTORS as readonly string[]).includes(role);

function readTensor(from: Json, shape: Shape): Tensor {
  if (!isObject(from)) throw wrong("tensors");
  const role = from["role"] as Role;
  const format = from["format"];
  if (!(MATRICES as readonly string[]).includes(role) && !isVector(role)) throw wrong("role");
  if (!isFormat(format)) throw new Fault("unavailable", `a browser does not compute ${String(format).slice(0, 32)}`);
  const [rows, columns] = sizeOf(shape, role);
  const row_bytes = isVector(role) ? columns * 4 : rowBytes(format, columns);
  if (from["rows"] !== rows || from["columns"] !== columns || (isVector(role) && format !== "F32")) throw wrong(role);
  if (row_bytes === null) throw new Fault("unavailable", `a browser does not compute rows of ${columns} values in ${format}`);
  return { role, layer: integer(from, "layer", 0, LAYERS_MOST - 1), format, rows, columns, row_bytes };
}

/** The roles that each layer has. */
export function rolesOf(shape: Shape): Role[] {
  const roles: Role[] = ["attention_norm", "q", "k", "v", "attention_output", "ffn_norm", "gate", "up", "down"];
  if (shape.qkv_bias) roles.push("q_bias", "k_bias", "v_bias");
  if (shape.qk_norm) roles.push("q_norm", "k_norm");
  return roles;
}

/** All tensors are there, each once. */
function checkTensors({ shape, tensors, first_layer, layer_count, embeds }: Plan): void {
  const roles = rolesOf(shape);
  const wanted = new Set(embeds ? ["token_embedding 0"] : []);
  for (let layer = first_layer; layer < first_layer + layer_count; layer++)
    for (const role of roles) wanted.add(`${role} ${layer}`);
  for (const { role, layer } of tensors)
    if (!wanted.delete(`${role} ${layer}`)) throw new Fault("invalid_params", `stage.open: ${role} of layer ${layer} is one too many`);
  for (const name of wanted) throw new Fault("invalid_params", `stage.open: the tensor ${name} is missing`);
}

/** Throws Fault. */
export function readPlan(params: Members): Plan {
  const { shape: told, tensors } = params;
  if (!isObject(told)) throw wrong("shape");
  if (!Array.isArray(tensors) || tensors.length > TENSORS_MOST) throw wrong("tensors");
  const shape = readShape(told);
  const plan: Plan = {
    name: text(params, "name", 256),
    version: text(params, "version", 64),
    first_layer: integer(params, "first_layer", 0, LAYERS_MOST - 1),
    layer_count: integer(params, "layer_count", 1, LAYERS_MOST),
    embeds: flag(params, "embeds"),
    shape,
    tensors: tensors.map((one) => readTensor(one, shape)),
  };
  if (plan.first_layer + plan.layer_count > LAYERS_MOST) throw wrong("layer_count");
  checkTensors(plan);
  return plan;
}
