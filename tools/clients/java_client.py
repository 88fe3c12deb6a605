"""Writes the Java face of the contract, dev.exogpu.client.Api: a record for every record, an enum for every set of words,
an exception for every reason, and for every group of methods a class with two for each: one that waits, one that does not.

A component or parameter is called as its key, in Java's way: device_id is deviceId. Between JSON and records goes
Records.java, by reflection, so that what is written here are declarations, and for each method its key words.
"""
import html
import json
import re
import textwrap

from contract import Unknown, camel, note, reference

BOXED = {"string": "String", "number": "Double", "integer": "Long", "boolean": "Boolean"}
PLAIN = {"Double": "double", "Long": "long", "Boolean": "boolean"}
WIDTH = 118
# Words of the language, methods that every object has, and what the text of a method calls its own.
TAKEN = set("""abstract assert boolean break byte case catch char class const continue default do double else enum extends
final finally float for goto if implements import instanceof int interface long native new null package private protected
public return short static strictfp super switch synchronized this throw throws transient try void volatile while true false
clone finalize getClass hashCode notify notifyAll toString wait options body word""".split())

HEAD = '''// Made from schema/api.json by tools/clients/generate.py.
package dev.exogpu.client;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * Every method, event and error of the server, typed; {@link Client} is one. A method waits for its answer, its sister
 * whose name ends in Async does not. Of what a record has, {@code null} is what is not known.
 */
public abstract class Api {
	Api() {}

	abstract CompletableFuture<Answer> call(String method, Map<String, Object> params, ByteBuffer body);
'''
WORDS = '''
	%spublic enum %s implements Word {
%s
		/** A word that this client does not know, of a newer server. It cannot be sent. */
		UNRECOGNIZED(null);

		private final String word;

		%s(String word) {
			this.word = word;
		}

		/** As it is sent; null for UNRECOGNIZED. */
		@Override
		public String word() {
			return word;
		}
	}
'''


def plain(text):
    """Text for a comment, in which Java sees no mark of its own."""
    for mark in "\\@{}*/":
        text = text.replace(mark, "&#%d;" % ord(mark)) if mark in "\\@{}" else text
    return html.escape(text, quote=False).replace("&amp;#", "&#").replace("*/", "*&#47;")


def javadoc(lines, indent):
    """Paragraphs; an entry of two parts is a tag and what is said of it. Nothing for nothing."""
    pad, out = "\t" * indent, []
    for line in filter(None, lines):
        text = "@%s %s" % (line[0], plain(line[1])) if isinstance(line, tuple) else plain(line)
        out += textwrap.wrap(text, WIDTH - 4 * indent, initial_indent=" * ", subsequent_indent=" * " + "    " * isinstance(line, tuple),
                             break_long_words=False, break_on_hyphens=False)
    if len(out) == 1 and not out[0].startswith(" * @"):
        return "/** %s. */\n%s" % (out[0][3:].rstrip("."), pad)
    return "".join("%s\n%s" % (line, pad) for line in ["/**", *out, " */"]) if out else ""


def name_of(key):
    word = camel(key)
    word = word[:1].lower() + word[1:]
    return word + "_" if word in TAKEN else word


def key_of(name):
    """As Records.java finds the key of a component."""
    return re.sub("([A-Z])", r"_\1", name).lower()


def constant(word):
    name = re.sub("[^A-Za-z0-9]+", "_", word).upper()
    return name if name and not name[0].isdigit() else "_" + name


class Writer:
    def __init__(self, contract):
        self.contract = contract
        self.names = {"Word", "Group", "Options", "Answer", "Records", "WithBody", "Client", "Events", "ApiException"}
        self.enums = {}  # name: words
        self.made = {}  # group: what became of its methods, for the face that another language gives to the same classes
        self.out = [HEAD]

    def claim(self, name):
        if name in self.names:
            raise Unknown("two things would be called %s" % name)
        self.names.add(name)
        return name

    def add(self, text):
        self.out.append(text)

    # The type of what may be null; `name`: what has no name of its own is called, by the way to it.
    def type_of(self, schema, name):
        if "$ref" in schema:
            target = self.contract.schemas[reference(schema)]
            named = self.is_named(target)
            return reference(schema) if named else self.type_of(target, name)
        if "const" in schema or "enum" in schema:
            return self.words(schema, name)
        if "anyOf" in schema:
            parts = [part for part in schema["anyOf"] if part.get("type") != "null"]
            return self.type_of(parts[0], name) if len(parts) == 1 else self.union(parts, name)
        kinds = [schema.get("type")] if not isinstance(schema.get("type"), list) else schema["type"]
        kinds = [kind for kind in kinds if kind != "null"]
        if len(kinds) > 1:
            return "Object"
        kind = kinds[0] if kinds else None
        if kind == "array":
            return "List<%s>" % (self.type_of(schema["items"], name) if "items" in schema else "Object")
        if kind == "object" and schema.get("properties"):
            return self.record(name, schema)
        if kind == "object":
            more = schema.get("additionalProperties")
            return "Map<String, %s>" % (self.type_of(more, name + "Value") if isinstance(more, dict) else "Object")
        if kind in BOXED:
            return BOXED[kind]
        raise Unknown("%s: a schema without a type that is known" % name)

    def is_named(self, schema):
        return bool(schema.get("properties") or "enum" in schema or self.records_of(schema.get("anyOf", [])))

    @staticmethod
    def records_of(parts):
        return len(parts) > 1 and all(part.get("type") == "object" and part.get("properties") for part in parts)

    def union(self, parts, name):
        if not self.records_of(parts):
            return "Object"
        self.claim(name)
        inner = Writer(self.contract)
        inner.out = []
        kinds = [inner.record(camel("_".join(part.get("required", []))), part, name) for part in parts]
        self.add("\n\t/** One of its records. */\n\tpublic sealed interface %s permits %s {%s\t}\n" % (
            name, ", ".join("%s.%s" % (name, kind) for kind in kinds), "".join(inner.out)))
        return name

    def words(self, schema, name):
        values = [value for value in schema.get("enum", [schema.get("const")]) if value is not None]
        if not all(isinstance(value, str) for value in values):
            raise Unknown("%s: an enum of other values than words" % name)
        names = [constant(value) for value in values]
        if len(set(names) | {"UNRECOGNIZED"}) != len(names) + 1:
            raise Unknown("%s: two of its words are one constant" % name)
        if self.enums.get(name) == values:
            return name
        self.enums[name] = values
        self.claim(name)
        self.add(WORDS % (javadoc([schema.get("description")], 1), name, "\n".join(
            "\t\t%s(%s)," % pair for pair in zip(names, map(json.dumps, values))), name))
        return name

    def component(self, key, kind, schema, required):
        """"@Key("load_1m") Double load1m", and what is said of it."""
        nullable = not required or self.contract.nullable(schema)
        name = name_of(key)
        kind = kind if nullable else PLAIN.get(kind, kind)
        said = ". ".join(filter(None, (note(key, schema).rstrip("."), "May be null" if nullable else "")))
        tag = "" if key_of(name) == key else "@Key(%s) " % json.dumps(key)
        return "%s%s %s" % (tag, kind, name), ("param", "%s %s" % (name, said)) if said else None

    def record(self, name, schema, union=None):
        self.claim(name)
        parts = [self.component(key, self.type_of(part, name + camel(key)), part, key in schema.get("required", []))
                 for key, part in schema["properties"].items()]
        pad = "\t\t" if union else "\t"
        fields = ", ".join(text for text, _ in parts)
        if len(fields) + len(name) > WIDTH - 24:
            fields = "\n%s\t\t%s" % (pad, (",\n%s\t\t" % pad).join(text for text, _ in parts))
        self.add("\n%s%spublic record %s(%s)%s {}\n" % (
            pad, javadoc([schema.get("description"), *(said for _, said in parts)], len(pad)), name, fields,
            " implements %s" % union if union else ""))
        return name

    def schemas(self):
        for name, schema in self.contract.schemas.items():
            if self.is_named(schema):
                self.type_of(schema, name)

    def errors(self):
        makers = []
        for reason, entry in self.contract.reasons.items():
            name = self.claim(camel(reason) + "Exception")
            makers.append("Map.entry(%s, %s::new)" % (json.dumps(reason), name))
            self.add("\n\t%spublic static final class %s extends ApiException {\n\t\tprivate static final long serialVersionUID = 1;\n\n"
                     "\t\t%s(Refusal refusal) {\n\t\t\tsuper(refusal);\n\t\t}\n\t}\n" % (javadoc([entry["message"]], 1), name, name))
        self.add("\n\tstatic final Map<String, Function<ApiException.Refusal, ApiException>> ERRORS = Map.ofEntries(\n\t\t\t%s);\n"
                 % ",\n\t\t\t".join(makers))
        self.add("\n\t/** Why the server closes a connection. */\n\tpublic static final Map<Integer, String> CLOSE_CODES = Map.ofEntries(\n\t\t\t%s);\n"
                 "\n\tstatic final String SUBPROTOCOL = %s;\n" % (",\n\t\t\t".join(
                     "Map.entry(%s, %s)" % (code, json.dumps(text, ensure_ascii=False))
                     for code, text in self.contract.document["x-close-codes"].items()),
                     json.dumps(self.contract.document["x-subprotocol"])))

    def events(self):
        topics = self.contract.topics
        self.words({"enum": list(topics), "description": "What events are about."}, "Topic")
        names = [self.claim(camel(topic) + "Message") for topic in topics]
        self.add("\n\t/** What {@link Events} hands out. */\n\tpublic sealed interface Event permits %s {\n\t\t/** Which run of the server it is of. */\n"
                 "\t\tString epoch();\n\n\t\t/** Its number, which grows; gaps are normal. */\n\t\tlong seq();\n\t}\n"
                 % ", ".join([self.claim("SnapshotMessage"), *names]))
        self.add("\n\t/** The whole state, which comes first, and again where what was missed is no longer to be had. */\n"
                 "\tpublic record SnapshotMessage(String epoch, long seq, Snapshot data) implements Event {}\n")
        for name, (topic, event) in zip(names, topics.items()):
            kind = self.type_of(event["schema"], camel(topic) + "Data")
            self.add("\n\t%spublic record %s(String epoch, long seq, String at, %s data) implements Event {}\n" % (
                javadoc([event.get("description") or "An event of the topic %s." % topic], 1), name, kind))
        self.add("\n\tstatic final Map<String, Class<? extends Event>> EVENTS = Map.ofEntries(\n\t\t\t%s);\n" % ",\n\t\t\t".join(
            "Map.entry(%s, %s.class)" % (json.dumps(topic), name) for name, topic in zip(names, topics)))
        kinds = {method: self.claim(camel(method) + "Notification") for method in self.contract.notices}
        self.add("\n\t/** What the server says by itself, beside events. */\n\tpublic sealed interface Notification permits %s {}\n"
                 % ", ".join(kinds.values()))
        cases = []
        for method, name in kinds.items():
            self.add("\n\t/** The notification %s. */\n\tpublic record %s(%s params) implements Notification {}\n" % (
                method, name, self.contract.notices[method]))
            cases.append("\t\tif (method.equals(%s))\n\t\t\treturn new %s(Records.read(params, %s.class));\n" % (
                json.dumps(method), name, self.contract.notices[method]))
        self.add("\n\tstatic Notification notification(String method, Map<String, Object> params) {\n%s\t\treturn null;\n\t}\n" % "".join(cases))

    def methods(self):
        groups = {}
        for method in self.contract.methods:
            groups.setdefault(method["name"].split(".")[0], []).append(method)
        for group, methods in groups.items():
            text = [self.method(method) for method in methods]
            name = self.claim("%sMethods" % camel(group))
            self.add("\n\t/** The methods %s.*. */\n\tpublic static final class %s extends Group {\n\t\t%s(Api api) {\n\t\t\tsuper(api);\n\t\t}\n%s\t}\n" % (
                group, name, name, "".join(text)))
            self.add("\n\t/** The methods %s.*. */\n\tpublic final %s %s = new %s(this);\n" % (group, name, name_of(group), name))

    def options(self, method, optional, body):
        """A class with a setter for each; its name."""
        name = self.claim(camel(method["name"]) + "Options")
        text = []
        setter = "\n\t\t%spublic %s %s(%s) {\n\t\t\t%s;\n\t\t\treturn this;\n\t\t}\n"
        for param, kind in optional:
            word = name_of(param["name"])
            said = ". ".join(filter(None, (note(param["name"], param["schema"], True),
                                           "May be null" if self.contract.nullable(param["schema"]) else "")))
            text.append(setter % (javadoc([said], 2), name, word, "%s %s" % (kind, word), "values.put(%s, %s)" % (
                json.dumps(param["name"]), word)))
        if body == "optional":
            text.append(setter % (javadoc([method["x-body"]], 2), name, "body", "ByteBuffer body", "bytes = body"))
        self.add("\n\t/** What %s may also take. */\n\tpublic static final class %s extends Options {%s\t}\n" % (
            method["name"], name, "".join(text)))
        return name

    def method(self, method):
        """Its forms: waiting or not, with options or, where there are any, without."""
        full, body = method["name"], self.contract.body(method)
        result = self.type_of(method["result"]["schema"], camel(full) + "Result")
        required, optional, said = [], [], [method["summary"]]
        for param in method["params"]:
            kind = self.type_of(param["schema"], camel(full) + camel(param["name"]))
            if param.get("required"):
                if self.contract.nullable(param["schema"]):
                    raise Unknown("%s: a parameter that must be there and may be null" % full)
                about = note(param["name"], param["schema"], True)
                required.append((PLAIN.get(kind, kind), name_of(param["name"]), param["name"]))
                said.append(("param", "%s %s" % (name_of(param["name"]), about)) if about else None)
            else:
                optional.append((param, kind))
        options = self.options(method, optional, body) if optional or body == "optional" else None
        takes = ["%s %s" % (kind, name) for kind, name, _ in required]
        passed = [name for _, name, _ in required]
        if body == "required":
            takes.append("ByteBuffer body")
            passed.append("body")
            said.append(("param", "body %s" % method["x-body"]))
        errors = ", ".join(self.contract.errors(method))
        said[0] += " Scope: %s.%s" % (method["x-scope"], " Errors: %s." % errors if errors else "")
        way, answer = "send", result
        if "x-result-body" in method:
            way, answer = "sendForBody", "WithBody<%s>" % result
        name = name_of(full.split(".", 1)[1])
        self.made.setdefault(full.split(".")[0], []).append({
            "method": method, "name": name, "required": required, "optional": optional, "body": body, "options": options, "answer": answer})
        call = "%s(%s, params(%s%s), %s, %s.class)" % (
            way, json.dumps(full), "options" if options else "null",
            "".join(", %s, %s" % (json.dumps(key), word) for _, word, key in required),
            "body" if body == "required" else "options == null ? null : options.bytes" if options else "null", result)
        forms = [(takes, passed, said)]
        if options:
            forms.append((takes + ["%s options" % options], passed + ["options"], said + [("param", "options what it may also take, or null")]))
        text = []
        for index, (all_takes, all_passed, about) in enumerate(forms):
            last = index == len(forms) - 1
            there = call if last else "%sAsync(%s)" % (name, ", ".join(all_passed + ["null"]))
            if "x-result-body" in method:
                about = about + [("return", "with a body: %s" % method["x-result-body"])]
            text.append("\n\t\t%spublic %s %s(%s) {\n\t\t\treturn await(%sAsync(%s));\n\t\t}\n" % (
                javadoc(about, 2), answer, name, ", ".join(all_takes), name, ", ".join(all_passed)))
            text.append("\n\t\t%spublic CompletableFuture<%s> %sAsync(%s) {\n\t\t\treturn %s;\n\t\t}\n" % (
                javadoc(["As %s, without waiting. Cancelling it gives the call up." % full, *about[1:]], 2), answer, name,
                ", ".join(all_takes), there))
        return "".join(text)


def written(contract):
    writer = Writer(contract)
    writer.schemas()
    writer.errors()
    writer.events()
    writer.methods()
    return writer


def write(contract):
    return "".join(written(contract).out) + "}\n"
