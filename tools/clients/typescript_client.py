"""Writes the TypeScript face of the contract: a type for every record, and what each method takes and answers.

The dashboard (ui/src) and bindings/typescript use the same text.
"""
import json

from contract import Unknown, note, reference

BASIC = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def comment(text, indent=""):
    return "%s/** %s */\n" % (indent, text.replace("*/", "* /")) if text else ""


def type_of(schema, indent=""):
    if "$ref" in schema:
        return reference(schema)
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(type_of(part, indent) for part in schema["anyOf"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(type_of({**schema, "type": one}, indent) for one in kind)
    if kind == "array":
        item = type_of(schema["items"], indent) if "items" in schema else "unknown"
        return "(%s)[]" % item if "|" in item else "%s[]" % item
    if kind == "object":
        return object_of(schema, indent)
    if kind in BASIC:
        return BASIC[kind]
    raise Unknown("a schema without a type that is known: %s" % json.dumps(schema)[:120])


def object_of(schema, indent):
    properties, more = schema.get("properties", {}), schema.get("additionalProperties")
    if not properties:
        if isinstance(more, dict):
            return "Record<string, %s>" % type_of(more, indent)
        return "Record<string, never>" if more is False else "Record<string, unknown>"
    inner, required = indent + "\t", schema.get("required", [])
    lines = [comment(note(name, part), inner) + "%s%s: %s;" % (
        inner, key(name) + ("" if name in required else "?"), type_of(part, inner)) for name, part in properties.items()]
    return "{\n%s\n%s}" % ("\n".join(lines), indent)


def key(name):
    return name if name.isidentifier() else json.dumps(name)


def params_of(method):
    if not method["params"]:
        return "Record<string, never>"
    lines = [comment(note(param["name"], param["schema"], True), "\t\t\t") + "\t\t\t%s%s: %s;" % (
        key(param["name"]), "" if param.get("required") else "?", type_of(param["schema"], "\t\t\t"))
        for param in method["params"]]
    return "{\n%s\n\t\t}" % "\n".join(lines)


def write(contract):
    out = ["/* Made from schema/api.json by tools/clients/generate.py. */\n"]
    for name, schema in contract.schemas.items():
        out.append(comment(schema.get("description")) + (
            "export interface %s %s\n" if schema.get("type") == "object" and schema.get("properties")
            else "export type %s = %s;\n") % (name, type_of(schema)))
    out.append("/** Every method: what it takes and answers; `body`: its call takes one; `answerBody`: its answer has one. */")
    out.append("export interface Methods {")
    for method in contract.methods:
        errors = ", ".join(contract.errors(method))
        out.append(comment("%s Scope: %s.%s" % (method["summary"], method["x-scope"],
                                               " Errors: %s." % errors if errors else ""), "\t")
                   + "\t%s: {\n\t\tparams: %s;\n\t\tresult: %s;\n\t\tbody: %s;\n\t\tanswerBody: %s;\n\t};" % (
                       json.dumps(method["name"]), params_of(method), type_of(method["result"]["schema"], "\t\t"),
                       json.dumps(contract.body(method)), "true" if "x-result-body" in method else "false"))
    out.append("}\n\n/** What the events of each topic carry. */\nexport interface Topics {")
    for topic, event in contract.topics.items():
        out.append(comment(event.get("description"), "\t") + "\t%s: %s;" % (key(topic), type_of(event["schema"], "\t")))
    out.append("}\n\n/** What the server says by itself, beside events. */\nexport interface Notifications {")
    for name, schema in contract.notices.items():
        out.append("\t%s: %s;" % (json.dumps(name), schema))
    out.append("}\n\n/** Every error by its reason: its JSON-RPC code, and what it means. */\nexport const errors = {")
    for reason, entry in contract.reasons.items():
        out.append("\t%s: { code: %d, message: %s }," % (key(reason), entry["code"], json.dumps(entry["message"])))
    out.append("} as const;\nexport type Reason = keyof typeof errors;\n")
    out.append("/** Why the server closes a connection. */\nexport const closeCodes: Record<number, string> = {")
    for code, text in contract.document["x-close-codes"].items():
        out.append("\t%s: %s," % (code, json.dumps(text, ensure_ascii=False)))
    out.append("};\n\nexport const subprotocol = %s;\n" % json.dumps(contract.document["x-subprotocol"]))
    return "\n".join(out)
