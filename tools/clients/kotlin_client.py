"""Writes the Kotlin face of the Java client, dev.exogpu.kotlin.Calls: every method of the contract as a function that
suspends, with what may be left out as parameters that have no value unless it is given. Types are those of Api.java.
"""
import re
import textwrap

from contract import camel, note
from java_client import WIDTH, name_of, written

NAMES = {"long": "Long", "double": "Double", "boolean": "Boolean", "String": "String", "Long": "Long", "Double": "Double",
         "Boolean": "Boolean", "Object": "Any", "List": "List", "Map": "Map", "ByteBuffer": "ByteBuffer", "WithBody": "WithBody"}
KEYWORDS = set("as break class continue do else false for fun if in interface is null object package return super this throw true "
               "try typealias typeof val var when while".split())

HEAD = '''// Made from schema/api.json by tools/clients/generate.py.
package dev.exogpu.kotlin

import dev.exogpu.client.Api
import dev.exogpu.client.WithBody
import java.nio.ByteBuffer
import kotlinx.coroutines.future.await

/** Every method of the server as a function that suspends: `client.calls.memory.allocate(deviceId, 1024)`. What is null is not sent. */
class Calls internal constructor(api: Api) {
'''


def type_of(kind):
    """A type of Java as Kotlin writes it; what is not the language's own is one of Api."""
    return re.sub(r"[A-Za-z_][\w.]*", lambda found: NAMES.get(found[0]) or "Api." + found[0], kind)


def word(name):
    return "`%s`" % name if name in KEYWORDS else name


def kdoc(lines):
    out = []
    for line in filter(None, lines):
        out += textwrap.wrap(line.replace("*/", "* /").replace("[", "\\["), WIDTH - 4, initial_indent="\t * ", subsequent_indent="\t * ",
                             break_long_words=False, break_on_hyphens=False)
    return "\t/**\n%s\n\t */\n" % "\n".join(out)


def function(contract, made):
    method, takes, said = made["method"], [], []
    for kind, name, key in made["required"]:
        takes.append("%s: %s" % (word(name), type_of(kind)))
        schema = next(param["schema"] for param in method["params"] if param["name"] == key)
        said.append((name, note(key, schema, True)))
    passed = [word(name) for _, name, _ in made["required"]]
    if made["body"] == "required":
        takes.append("body: ByteBuffer")
        passed.append("body")
        said.append(("body", method["x-body"]))
    given = [(name_of(param["name"]), kind, note(param["name"], param["schema"], True)) for param, kind in made["optional"]]
    if made["body"] == "optional":
        given.append(("body", "ByteBuffer", method["x-body"]))
    takes += ["%s: %s? = null" % (word(name), type_of(kind)) for name, kind, _ in given]
    said += [(name, about) for name, _, about in given]
    if made["options"]:
        passed.append("Api.%s().also {%s\n\t\t}" % (made["options"], "".join(
            "\n\t\t\tif (%s != null) it.%s(%s)" % (word(name), word(name), word(name)) for name, _, _ in given)))
    errors = ", ".join(contract.errors(method))
    about = [method["summary"] + " Scope: %s.%s" % (method["x-scope"], " Errors: %s." % errors if errors else "")]
    about += ["@param %s %s" % pair for pair in said if pair[1]]
    about += ["@return with a body: %s" % method["x-result-body"]] if "x-result-body" in method else []
    head = "suspend fun %s(%s): %s =" % (word(made["name"]), ", ".join(takes), type_of(made["answer"]))
    if len(head) > WIDTH - 4:
        head = "suspend fun %s(\n\t\t%s,\n\t): %s =" % (word(made["name"]), ",\n\t\t".join(takes), type_of(made["answer"]))
    return "\n%s\t%s\n\t\tjava.%sAsync(%s).await()\n" % (kdoc(about), head, made["name"], ", ".join(passed))


def write(contract):
    groups = written(contract).made
    out = [HEAD]
    for group in groups:
        name = "%sCalls" % camel(group)
        out.append("\t/** The methods %s.*. */\n\tval %s = %s(api.%s)\n" % (group, word(name_of(group)), name, word(name_of(group))))
    out.append("}\n")
    for group, methods in groups.items():
        out.append("\n/** The methods %s.*. */\nclass %sCalls internal constructor(private val java: Api.%sMethods) {%s}\n" % (
            group, camel(group), camel(group), "".join(function(contract, made) for made in methods)))
    return "".join(out)
