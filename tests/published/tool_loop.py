"""A tool loop by the openai package for Python: a call is demanded, made here, and its result is told to the model.

usage: PYTHONPATH=FOLDER python3 tool_loop.py BASE_URL (the token in OPENAI_API_KEY)

Prints one line of JSON: what was called, whole and streamed, and what was said at the end.
"""
import json
import sys

from openai import OpenAI

TOOLS = [{"type": "function", "function": {
    "name": "get_temperature", "description": "The temperature in a city.", "strict": True,
    "parameters": {"type": "object", "required": ["city", "unit"], "additionalProperties": False,
                   "properties": {"city": {"type": "string", "maxLength": 20},
                                  "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}}}}]


def get_temperature(city, unit):
    assert isinstance(city, str) and unit in ("celsius", "fahrenheit"), (city, unit)
    return "21" if unit == "celsius" else "70"


def main(base_url):
    client = OpenAI(base_url=base_url, max_retries=0, timeout=120)
    messages = [{"role": "user", "content": "What is the temperature in Paris, in celsius?"}]
    request = {"model": "smollm2", "messages": messages, "tools": TOOLS, "temperature": 0, "max_tokens": 200,
               "parallel_tool_calls": False}
    first = client.chat.completions.create(**request, tool_choice="required")
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None, choice
    called = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]

    streamed = []
    for chunk in client.chat.completions.create(**request, tool_choice="required", stream=True):
        for piece in chunk.choices[0].delta.tool_calls or []:
            if piece.id:
                streamed.append([piece.function.name, ""])
            streamed[piece.index][1] += piece.function.arguments or ""
    messages.append(choice.message.model_dump(exclude_none=True))
    for call in choice.message.tool_calls:
        result = {"get_temperature": get_temperature}[call.function.name](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    last = client.chat.completions.create(**request, tool_choice="none")
    print(json.dumps({"called": called, "streamed": [[name, json.loads(text)] for name, text in streamed],
                      "said": last.choices[0].message.content}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
