"""tools/clients: what becomes of a contract in each language, also of one that grows, and what the writers refuse."""
import copy
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/clients"))

import contract  # noqa: E402
import java_client  # noqa: E402
import kotlin_client  # noqa: E402
import python_client  # noqa: E402
import typescript_client  # noqa: E402

DOCUMENT = json.loads((ROOT / "schema/api.json").read_text(encoding="utf-8"))
GROWN = {
    "name": "weather.forecast", "summary": "What comes.", "paramStructure": "by-name", "x-scope": "observe",
    "params": [
        {"name": "from", "required": True, "schema": {"type": "string"}},
        {"name": "limit_ms", "schema": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}], "description": "How long."}},
        {"name": "places", "schema": {"type": "array", "maxItems": 3, "items": {
            "type": "object", "properties": {"class": {"type": "string"}}, "required": [], "additionalProperties": False}}}],
    "result": {"name": "it", "schema": {"type": "object", "properties": {
        "power_watts": {"type": ["number", "null"]}, "kind": {"enum": ["wet", "dry"]}}, "required": ["power_watts", "kind"],
        "additionalProperties": False}},
    "x-body": "required, a picture", "x-result-body": "a sound", "errors": [{"$ref": "#/components/errors/not_found"}]}


def read(document):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        return contract.Contract(file.name)


class Clients(unittest.TestCase):
    def grown(self, **changes):
        document = copy.deepcopy(DOCUMENT)
        document["methods"].append({**GROWN, **changes})
        return document

    def test_every_method_event_and_error_of_the_contract_is_there(self):
        python, typescript = python_client.write(read(DOCUMENT)), typescript_client.write(read(DOCUMENT))
        compile(python, "api.py", "exec")
        for method in DOCUMENT["methods"]:
            self.assertEqual(python.count('_call("%s"' % method["name"]) + python.count('\n            "%s", {' % method["name"]), 2)
            self.assertIn('\t"%s": {' % method["name"], typescript)
        for reason in DOCUMENT["components"]["errors"]:
            self.assertIn('    reason: ClassVar[str] = "%s"' % reason, python)
            self.assertIn("\t%s: { code: " % reason, typescript)
        for topic in DOCUMENT["x-events"]["topics"]:
            self.assertIn('    topic: Literal["%s"]' % topic, python)

    def test_kotlin_has_every_method_and_what_may_be_left_out(self):
        kotlin = kotlin_client.write(read(self.grown()))
        self.assertEqual(kotlin.count("\tsuspend fun "), len(DOCUMENT["methods"]) + 1)
        self.assertIn("suspend fun forecast(\n\t\tfrom: String,\n\t\tbody: ByteBuffer,\n\t\tlimitMs: Long? = null,\n"
                      "\t\tplaces: List<Api.WeatherForecastPlaces>? = null,\n\t): WithBody<Api.WeatherForecastResult> =", kotlin)
        self.assertIn("if (limitMs != null) it.limitMs(limitMs)", kotlin)
        self.assertIn("class WeatherCalls internal constructor(private val java: Api.WeatherMethods) {", kotlin)

    def test_java_has_every_method_event_and_error_too(self):
        java = java_client.write(read(DOCUMENT))
        for method in DOCUMENT["methods"]:
            self.assertEqual(java.count('("%s", params(' % method["name"]), 1, method["name"])
        for name, of in ((reason, "errors") for reason in DOCUMENT["components"]["errors"]):
            self.assertIn('Map.entry("%s", %sException::new)' % (name, contract.camel(name)), java, of)
        for topic in DOCUMENT["x-events"]["topics"]:
            self.assertIn('Map.entry("%s", %sMessage.class)' % (topic, contract.camel(topic)), java)
        java = java_client.write(read(self.grown()))
        for text in ("public WithBody<WeatherForecastResult> forecast(String from, ByteBuffer body, WeatherForecastOptions options)",
                     "public CompletableFuture<WithBody<WeatherForecastResult>> forecastAsync(String from, ByteBuffer body)",
                     'public record WeatherForecastPlaces(@Key("class") String class_)', "Double powerWatts, WeatherForecastResultKind kind",
                     'WET("wet"),', "/** Milliseconds. How long. May be null. */", 'values.put("limit_ms", limitMs);'):
            self.assertTrue(text in java, text)
        for name in ("Client", "memory.Allocate"): # a type of the package; a name that another method has
            with self.assertRaisesRegex(contract.Unknown, "would be called|one constant"):
                document = self.grown(result={"name": "it", "schema": {"$ref": "#/components/schemas/Client"}}) if name == "Client" \
                    else self.grown(name=name)
                document["components"]["schemas"].setdefault("Client", {"type": "object", "properties": {"a": {"type": "string"}}})
                java_client.write(read(document))

    def test_a_method_that_is_added_is_in_all(self):
        python, typescript = python_client.write(read(self.grown())), typescript_client.write(read(self.grown()))
        compile(python, "api.py", "exec")
        for text in ("    async def forecast(\n        self,\n        from_: str,\n        body: Buffer,\n        *,\n"
                     "        limit_ms: int | None | Unset = UNSET,\n        places: Sequence[WeatherForecastPlaces] | None = None,\n"
                     "        into: Buffer | None = None,",
                     ") -> tuple[WeatherForecastResult, memoryview]:", '"from": from_, **given({"limit_ms": limit_ms}, UNSET)',
                     "limit_ms: Milliseconds. How long.", "places: At most 3 items.", "    power_watts: float | None",
                     'kind: Literal["wet", "dry"]', 'WeatherForecastPlaces = TypedDict("WeatherForecastPlaces", {\n    "class": "NotRequired[str]"',
                     "Scope: observe. Errors: not_found.", "self.weather = AsyncWeatherMethods(caller)"):
            self.assertIn(text, python)
        for text in ('"weather.forecast": {', "from: string;", "limit_ms?: number | null;", "power_watts: number | null;",
                     'kind: "wet" | "dry";', 'body: "required";', "answerBody: true;", "/** Milliseconds. How long */"):
            self.assertIn(text, typescript)

    def test_what_the_writers_do_not_know_ends_the_build(self):
        for schema in ({"oneOf": []}, {"$ref": "#/components/schemas/Nothing"}, {"$ref": "other.json"}, {"type": "string", "not": {}}):
            with self.subTest(schema), self.assertRaises(contract.Unknown):
                read(self.grown(result={"name": "it", "schema": schema}))
        with self.assertRaises(contract.Unknown):
            python_client.write(read(self.grown(result={"name": "it", "schema": {"description": "of no type"}})))
        twice = self.grown(name="memory.Allocate", result=next(
            each for each in DOCUMENT["methods"] if each["name"] == "memory.allocate")["result"])
        with self.assertRaisesRegex(contract.Unknown, "two things would be called"):
            python_client.write(read(twice))


if __name__ == "__main__":
    unittest.main()
