"""A tool loop by the openai package for Python over /v1/responses: a call is demanded, made here, and its result is told to
the model.

usage: PYTHONPATH=FOLDER python3 responses_loop.py BASE_URL (the token in OPENAI_API_KEY)

Prints one line of JSON: what was called, whole and streamed, and what was said at the end.
"""
import json
import sys

from openai import OpenAI

TOOLS = [{"type": "function", "name": "get_temperature", "description": "The temperature in a city.", "strict": True,
          "parameters": {"type": "object", "required": ["city", "unit"], "additionalProperties": False,
                         "properties": {"city": {"type": "string", "maxLength": 20},
                                        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}}}]


def calls_of(response):
    assert response.status == "completed" and {item.type for item in response.output} == {"function_call"}, response
    return [[item.name, json.loads(item.arguments)] for item in response.output]


def main(base_url):
    client = OpenAI(base_url=base_url, max_retries=0, timeout=120)
    conversation = [{"role": "user", "content": "What is the temperature in Paris, in celsius?"}]
    request = {"model": "smollm2", "tools": TOOLS, "temperature": 0, "max_output_tokens": 200,
               "parallel_tool_calls": False, "store": False}
    first = client.responses.create(**request, input=conversation, tool_choice="required")
    with client.responses.stream(**request, input=conversation, tool_choice="required") as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_response()
    conversation += [item.model_dump(exclude_none=True) for item in first.output]
    conversation += [{"type": "function_call_output", "call_id": item.call_id, "output": "21"} for item in first.output]
    last = client.responses.create(**request, input=conversation, tool_choice="none")
    print(json.dumps({"called": calls_of(first), "streamed": calls_of(streamed), "said": last.output_text}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
