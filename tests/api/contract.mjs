// The contract as a client sees it: read from schema/*.json and checked by ajv, which shares nothing with the server's
// own validator. What the documents do not say is not known here either: methods, parameters, scopes and topics all
// come from them.
import Ajv from "ajv";
import { readFileSync } from "node:fs";

const read = (name) => readFileSync(new URL(`../../schema/${name}`, import.meta.url), "utf8");
const base = "https://exogpu.invalid/";

export const apiText = read("api.json");
export const api = JSON.parse(apiText);
export const node = JSON.parse(read("node.json"));

// Compiled as it comes and each schema once: otherwise that takes so long, in one go, that on a busy machine the nodes and
// workers that the same process plays are given up meanwhile.
const ajv = new Ajv({ strict: false, allErrors: false, inlineRefs: false, meta: false, validateSchema: false, code: { optimize: false } });
ajv.addSchema(api, `${base}api.json`);
ajv.addSchema(node, `${base}node.json`);

const compiled = new Map();

function compile(key, schema) {
	if (!compiled.has(key)) compiled.set(key, ajv.compile({ $id: `${base}compiled/${compiled.size}`, ...schema }));
	return compiled.get(key);
}

const fileOf = (document) => (document === api ? "api.json" : "node.json");
const at = (document, pointer) => ({ $ref: `${base}${fileOf(document)}#${pointer}` });

// undefined if `value` fits, else where and why it does not.
function fault(validate, value) {
	return validate(value) ? undefined : ajv.errorsText(validate.errors, { dataVar: "" });
}

export function method(document, name) {
	const index = document.methods.findIndex((one) => one.name === name);
	return index < 0 ? undefined : { index, ...document.methods[index] };
}

export function paramsFault(document, name, params) {
	const { index, params: list } = method(document, name);
	const properties = Object.fromEntries(
		list.map((one, i) => [one.name, at(document, `/methods/${index}/params/${i}/schema`)]));
	const required = list.filter((one) => one.required).map((one) => one.name);
	const schema = { type: "object", properties, required, additionalProperties: false };
	return fault(compile(`${fileOf(document)} params ${name}`, schema), params ?? {});
}

export function resultFault(document, name, result) {
	const { index } = method(document, name);
	return fault(compile(`${fileOf(document)} result ${name}`, at(document, `/methods/${index}/result/schema`)), result);
}

export function eventFault({ topic, epoch, seq, at: time, data, ...rest }) {
	if (!api["x-events"].topics[topic]) return `there is no topic ${topic}`;
	if (Object.keys(rest).length) return `an event has no ${Object.keys(rest)}`;
	if (typeof epoch !== "string" || !Number.isSafeInteger(seq) || seq < 0) return `epoch ${epoch}, seq ${seq}`;
	if (!isTime(time)) return `at is ${time}`;
	return fault(compile(`event ${topic}`, at(api, `/x-events/topics/${topic}/schema`)), data);
}

// A notification to one session's connections.
export function notificationFault(name, params) {
	const schema = api["x-notifications"][name];
	return schema ? fault(compile(`notification ${name}`, at(api, schema.$ref.slice(1))), params) : `there is no notification ${name}`;
}

// An error must be one of those that the document lists, its reason must be that one's, and it must say what to do or
// null.
export function errorFault(error) {
	const known = Object.values(api.components.errors).find((one) => one.code === error?.code);
	if (!known) return `error code ${error?.code} is not in the document`;
	if (typeof error.message !== "string" || !error.message) return "an error without a message";
	if (error.data?.reason !== known.data.reason) return `${error.code} has the reason ${error.data?.reason}`;
	return fault(compile("error data", at(api, "/components/schemas/ErrorData")), error.data);
}

// RFC 3339 in UTC with milliseconds, as every time of the API is.
export function isTime(text) {
	return /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(text) && !Number.isNaN(Date.parse(text));
}

function resolve(document, schema) {
	while (schema.$ref) {
		const [file, pointer] = schema.$ref.split("#");
		if (file) document = api; // the one that node.json leads into
		schema = pointer.slice(1).split("/").reduce((part, key) => part[key], document);
	}
	return [document, schema];
}

// Values near `valid` that may break `schema`: wrong types, one past each bound, a missing or foreign member.
function* nearby(document, schema, valid) {
	[document, schema] = resolve(document, schema);
	yield* [null, true, 0, -1, 0.5, 1e15, 1e300, "", "x", "no such word", [], {}, [null], { a: 1 }];
	if (schema.maximum !== undefined) yield schema.maximum + 1;
	if (schema.minimum !== undefined) yield* [schema.minimum - 1, schema.minimum - 0.01];
	if (schema.maxLength !== undefined) yield "x".repeat(schema.maxLength + 1);
	if (schema.minLength) yield "x".repeat(schema.minLength - 1);
	if (schema.maxItems !== undefined) yield Array(schema.maxItems + 1).fill(valid?.[0] ?? null);
	if (schema.items && Array.isArray(valid))
		for (const item of nearby(document, schema.items, valid[0])) yield [...valid, item];
	for (const [name, inner] of Object.entries(schema.properties ?? {})) {
		const { [name]: value, ...others } = valid ?? {};
		yield others;
		for (const changed of nearby(document, inner, value)) yield { ...others, [name]: changed };
	}
	if (schema.properties) yield { ...valid, foreign: 1 };
}

// Parameter lists of `name`, each made from `valid` by one change; some still fit.
export function* variants(document, name, valid) {
	for (const { name: param, schema } of method(document, name).params) {
		const { [param]: value, ...others } = valid;
		yield others;
		for (const changed of nearby(document, schema, value)) yield { ...others, [param]: changed };
	}
	yield { ...valid, foreign: 1 };
}

// Those of them that the document does not allow, each once. ajv decides.
export function* invalidParams(document, name, valid) {
	const seen = new Set();
	for (const params of variants(document, name, valid)) {
		const text = JSON.stringify(params);
		if (seen.has(text) || !paramsFault(document, name, params)) continue;
		seen.add(text);
		yield params;
	}
}
