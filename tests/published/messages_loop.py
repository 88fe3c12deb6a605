"""A tool loop by the anthropic package for Python: a call is demanded, made here, and its result is told to the model.

usage: PYTHONPATH=FOLDER python3 messages_loop.py BASE_URL (the token in ANTHROPIC_API_KEY)

Prints one line of JSON: what was called, whole and streamed, what was said at the end, and the tokens of the first prompt,
as they were counted and as they were read.
"""
import json
import sys

from anthropic import Anthropic

TOOLS = [{"name": "get_temperature", "description": "The temperature in a city.", "strict": True,
          "input_schema": {"type": "object", "required": ["city", "unit"], "additionalProperties": False,
                           "properties": {"city": {"type": "string", "maxLength": 20},
                                          "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}}}]
GREEDY = {"temperature": 0}  # which this package has no parameter for


def main(base_url):
    client = Anthropic(base_url=base_url, max_retries=0, timeout=120)
    messages = [{"role": "user", "content": "What is the temperature in Paris, in celsius?"}]
    prompt = {"model": "smollm2", "messages": messages, "tools": TOOLS}
    demanded = {**prompt, "max_tokens": 200, "extra_body": GREEDY,
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    counted = client.messages.count_tokens(**prompt).input_tokens
    first = client.messages.create(**demanded)
    assert first.stop_reason == "tool_use" and [block.type for block in first.content] == ["tool_use"], first
    with client.messages.stream(**demanded) as stream:
        streamed = stream.get_final_message()
    messages.append({"role": "assistant", "content": first.content})
    messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "21"}
                                                 for block in first.content]})
    last = client.messages.create(**prompt, max_tokens=200, extra_body=GREEDY, tool_choice={"type": "none"})
    print(json.dumps({"called": [[block.name, block.input] for block in first.content],
                      "streamed": [[block.name, block.input] for block in streamed.content],
                      "said": "".join(block.text for block in last.content if block.type == "text"),
                      "counted": counted, "read": first.usage.input_tokens + first.usage.cache_read_input_tokens}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
