/* Turns ../schema/api.json into src/lib/api.gen.ts: a type for every record, the parameters and result of every
 * method, the data of every event topic. Run by the build; the result is not committed, the contract is.
 *
 * Knows the subset of JSON Schema that the contract uses and stops at anything else. */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { dirname, join } from "node:path";

const here = dirname(fileURLToPath(import.meta.url));

function refName(ref) {
  const found = /^#\/components\/schemas\/(\w+)$/.exec(ref);
  if (!found) throw new Error(`reference to ${ref}: only #/components/schemas/… is known`);
  return found[1];
}

const basic = { string: "string", number: "number", integer: "number", boolean: "boolean", null: "null" };

function typeOf(schema, indent = "") {
  if (schema.$ref) return refName(schema.$ref);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, indent)).join(" | ");
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type }, indent)).join(" | ");
  if (schema.type === "array") {
    const item = schema.items ? typeOf(schema.items, indent) : "unknown";
    return /[|&]/.test(item) ? `(${item})[]` : `${item}[]`;
  }
  if (schema.type === "object") return objectOf(schema, indent);
  if (basic[schema.type]) return basic[schema.type];
  throw new Error(`a schema that gen-types.mjs does not know: ${JSON.stringify(schema).slice(0, 120)}`);
}

function objectOf(schema, indent) {
  const required = new Set(schema.required ?? []);
  const entries = Object.entries(schema.properties ?? {});
  if (entries.length === 0) {
    if (typeof schema.additionalProperties === "object")
      return `Record<string, ${typeOf(schema.additionalProperties, indent)}>`;
    return schema.additionalProperties === false ? "Record<string, never>" : "Record<string, unknown>";
  }
  const inner = `${indent}\t`;
  const lines = entries.map(([name, property]) => {
    const doc = property.description ? `${inner}/** ${property.description} */\n` : "";
    return `${doc}${inner}${JSON.stringify(name).slice(1, -1)}${required.has(name) ? "" : "?"}: ${typeOf(property, inner)};`;
  });
  return `{\n${lines.join("\n")}\n${indent}}`;
}

function paramsOf(method) {
  if (method.params.length === 0) return "Record<string, never>";
  const fields = method.params.map((one) => `${one.name}${one.required ? "" : "?"}: ${typeOf(one.schema, "\t\t")}`);
  return `{ ${fields.join("; ")} }`;
}

/** The text of api.gen.ts for an OpenRPC document. */
export function generate(document) {
  const out = ["/* Made from schema/api.json by gen-types.mjs. */\n"];
  for (const [name, schema] of Object.entries(document.components.schemas)) {
    if (schema.description) out.push(`/** ${schema.description} */`);
    out.push(
      schema.type === "object" && schema.properties
        ? `export interface ${name} ${objectOf(schema, "")}\n`
        : `export type ${name} = ${typeOf(schema)};\n`,
    );
  }
  out.push("/** Every method: what it takes and what it answers. */\nexport interface Methods {");
  for (const method of document.methods) {
    out.push(`\t/** ${method.summary} Scope: ${method["x-scope"]}. */`);
    out.push(
      `\t"${method.name}": {\n\t\tparams: ${paramsOf(method)};\n\t\tresult: ${typeOf(method.result.schema, "\t\t")};\n\t};`,
    );
  }
  out.push("}\n\n/** What the events of each topic carry. */\nexport interface Topics {");
  for (const [topic, { schema }] of Object.entries(document["x-events"].topics))
    out.push(`\t${topic}: ${typeOf(schema, "\t")};`);
  out.push("}\n");
  return out.join("\n");
}

/** Writes src/lib/api.gen.ts if it would change. */
export function writeTypes() {
  const text = generate(JSON.parse(readFileSync(join(here, "../schema/api.json"), "utf8")));
  const file = join(here, "src/lib/api.gen.ts");
  let old = "";
  try {
    old = readFileSync(file, "utf8");
  } catch {
    // the first time
  }
  if (text !== old) writeFileSync(file, text);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeTypes();
