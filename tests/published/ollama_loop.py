"""Ollama's package for Python against a server: a chat whole and streamed, a tool, a form, models and embeddings.

usage: PYTHONPATH=FOLDER EXOGPU_TOKEN=TOKEN python3 ollama_loop.py URL

Prints one line of JSON: what was said, whole and streamed, what was answered in a form, and which models there are.
"""
import json
import os
import sys

from ollama import Client, ResponseError

SCHEMA = {"type": "object", "required": ["city", "unit"], "additionalProperties": False,
          "properties": {"city": {"type": "string", "maxLength": 20},
                         "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}}


def get_temperature(city: str) -> str:
    """The temperature in a city.

    Args:
        city: The name of the city.
    """
    return "21" if city else "0"


def main(url):
    client = Client(host=url, headers={"authorization": f"Bearer {os.environ['EXOGPU_TOKEN']}"}, timeout=120)
    options = {"temperature": 0, "num_predict": 60, "num_ctx": 2048}
    messages = [{"role": "user", "content": "What is the temperature in Paris, in celsius?"}]
    whole = client.chat(model="smollm2", messages=messages, options=options)
    streamed = list(client.chat(model="smollm2", messages=messages, options=options, stream=True))
    assert streamed[-1].done and not streamed[0].done
    form = client.chat(model="smollm2:latest", messages=messages, options=options, format=SCHEMA)
    offered = client.chat(model="smollm2", messages=messages, options=options, tools=[get_temperature])
    for call in offered.message.tool_calls or []:
        assert call.function.name == "get_temperature" and "city" in call.function.arguments, call
    told = client.chat(model="smollm2", options=options, messages=messages + [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_temperature",
                                                                         "arguments": {"city": "Paris"}}}]},
        {"role": "tool", "tool_name": "get_temperature", "content": "21"}])
    embeddings = client.embed(model="smollm2", input=["a cat", "a dog"]).embeddings
    try:
        client.chat(model="none", messages=messages)
        sys.exit("a model that is not there answered")
    except ResponseError as error:
        assert error.status_code == 404, error
    print(json.dumps({"whole": whole.message.content, "streamed": "".join(one.message.content for one in streamed),
                      "form": json.loads(form.message.content), "told": told.message.content,
                      "dimensions": [len(one) for one in embeddings], "read": whole.prompt_eval_count,
                      "models": [one.model for one in client.list().models], "running": [one.model for one in client.ps().models],
                      "capabilities": client.show("smollm2").capabilities}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
