"""The contract: OpenRPC documents in schema/ that use only what our own validator knows, with nothing left open."""
import json
import os
import re

from tree import error, warning

TYPES = {"null", "boolean", "integer", "number", "string", "array", "object"}
KNOWN = {"$ref", "type", "properties", "required", "additionalProperties", "items", "enum", "const", "minimum",
         "maximum", "minLength", "maxLength", "minItems", "maxItems", "anyOf"}
NOTES = {"title", "description", "default", "examples", "deprecated"}
SCOPES = {"none", "observe", "allocate", "compute", "infer", "join", "admin"}
DIRECTION = re.compile(r"^(node|server|worker)-to-(node|server|worker)$")


def check(tree):
    documents = {}
    for path in tree.files:
        if not re.match(r"schema/[^/]+\.json$", path):
            continue
        try:
            documents[os.path.basename(path)] = json.loads(tree.text(path), object_pairs_hook=no_duplicates)
        except ValueError as fault:
            yield error(path, getattr(fault, "lineno", 1), "schema", str(fault))
    used = set(re.findall(r'"\$ref":\s*"[^"#]*#/components/(\w+/\w+)"', "".join(map(tree.text, sorted(
        "schema/" + name for name in documents)))))
    for name in documents:
        if "openrpc" in documents[name]:
            document = Document("schema/" + name, name, documents, tree.text("schema/" + name))
            yield from document.check()
            yield from document.check_unused(used)


def no_duplicates(pairs):
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError("the key \"%s\" stands twice in one object" % name)
    return dict(pairs)


class Document:
    def __init__(self, path, name, documents, text):
        self.path, self.name, self.documents, self.text = path, name, documents, text
        self.document = documents[name]

    def error(self, where, message, severity=error):
        """At the line of the named thing, as nearly as its name tells."""
        word = "\"%s\"" % where.split(" ")[-1].split(".properties.")[-1].split(":")[0]
        at = self.text.find(word)
        return severity(self.path, self.text.count("\n", 0, at) + 1 if at >= 0 else 1, "schema",
                        "%s: %s" % (where, message))

    def check(self):
        names = [method.get("name", "?") for method in self.document.get("methods", [])]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield self.error("method " + name, "is defined twice")
        for method in self.document.get("methods", []):
            yield from self.check_method(method)
        for topic, event in self.document.get("x-events", {}).get("topics", {}).items():
            yield from self.check_event(topic, event)
        for name, schema in self.document.get("components", {}).get("schemas", {}).items():
            yield from self.check_schema("schema " + name, schema, True)

    def check_unused(self, used):
        for name in self.document.get("components", {}).get("schemas", {}):
            if "schemas/" + name not in used:
                yield self.error("schema " + name, "nothing refers to it", warning)

    def check_method(self, method):
        where = "method %s" % method.get("name", "?")
        for key in ("name", "summary", "params"):
            if key not in method:
                yield self.error(where, "has no %s" % key)
        if "result" not in method and not method.get("x-notification"):
            yield self.error(where, "has neither a result nor x-notification")
        if "result" in method and method.get("x-notification"):
            yield self.error(where, "a notification has no result")
        if method.get("paramStructure") != "by-name":
            yield self.error(where, "paramStructure is not by-name")
        if self.name == "api.json" and method.get("x-scope") not in SCOPES:
            yield self.error(where, "x-scope is none of %s" % ", ".join(sorted(SCOPES)))
        if self.name == "node.json" and not DIRECTION.match(str(method.get("x-direction"))):
            yield self.error(where, "x-direction does not say who calls")
        for param in method.get("params", []):
            yield from self.check_value("%s parameter %s" % (where, param.get("name", "?")), param)
        if "result" in method:
            yield from self.check_value(where + " result", method["result"])
        for entry in method.get("errors", []):
            if "$ref" in entry:
                yield from self.check_reference(where + " error", entry["$ref"])

    def check_event(self, topic, event):
        if event.get("x-scope") not in SCOPES:
            yield self.error("topic " + topic, "x-scope is none of %s" % ", ".join(sorted(SCOPES)))
        yield from self.check_value("topic " + topic, event)

    def check_value(self, where, value):
        if "$ref" in value:
            yield from self.check_reference(where, value["$ref"])
        elif not isinstance(value.get("schema"), dict):
            yield self.error(where, "has no schema")
        else:
            yield from self.check_schema(where, value["schema"], False)

    def check_reference(self, where, reference):
        file, _, pointer = reference.partition("#")
        target = self.documents.get(file or self.name)
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            target = target.get(part) if isinstance(target, dict) else None
        if not pointer.startswith("/") or target is None:
            yield self.error(where, "$ref leads nowhere: %s" % reference)

    def check_schema(self, where, schema, record):
        if not isinstance(schema, dict):
            yield self.error(where, "is not a schema")
            return
        for key in schema:
            if key not in KNOWN and key not in NOTES and not key.startswith("x-"):
                yield self.error(where, "the validator does not know the keyword %s" % key)
        if "$ref" in schema:
            yield from self.check_reference(where, schema["$ref"])
            for key in set(schema) & (KNOWN - {"$ref"}):
                yield self.error(where, "%s stands beside $ref" % key)
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        for kind in kinds:
            if kind not in TYPES:
                yield self.error(where, "no such type: %s" % kind)
        if not (set(schema) & {"$ref", "type", "anyOf", "enum", "const"}):
            yield self.error(where, "says nothing about its value")
        yield from self.check_object(where, schema, kinds, record)
        yield from self.check_parts(where, schema, kinds, record)

    def check_object(self, where, schema, kinds, record):
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        for name in required:
            if name not in properties:
                yield self.error(where, "requires %s, which is not among its properties" % name)
        if record:
            for name in properties:
                # What a sentence consists of stands beside it where the server knows it: common/wire/said.h.
                if name not in required and not name.endswith("_said"):
                    yield self.error(where, "a record always has all its keys: %s is not required" % name)
        if properties and "additionalProperties" not in schema:
            yield self.error(where, "does not say whether it takes additionalProperties")
        if isinstance(schema.get("additionalProperties"), dict):
            yield from self.check_schema(where + ".additionalProperties", schema["additionalProperties"], record)
        for name, part in properties.items():
            yield from self.check_schema("%s.properties.%s" % (where, name), part, record)

    def check_parts(self, where, schema, kinds, record):
        if "array" in kinds and "items" not in schema:
            yield self.error(where, "does not say what its items are")
        if "items" in schema:
            yield from self.check_schema(where + ".items", schema["items"], record)
        for index, part in enumerate(schema.get("anyOf", [])):
            yield from self.check_schema("%s.anyOf.%d" % (where, index), part, record)
