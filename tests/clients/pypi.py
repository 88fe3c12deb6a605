"""The clients of PyPI for tests/clients/tasks.json, as npm.mjs has those of npm. Reads a line of JSON for each task, {api, task, url, token, tools,
results}, and answers with what became of it: {rounds}, {vectors}, {answer}, {got, error} where it is given up, or {status}.
"""
import asyncio
import json
import sys

import anthropic
import ollama
import openai


class Given(Exception):
    """The task has the client stop here."""


def functions(task, tools):
    return [{"type": "function", "function": {"name": name, **tools[name]}} for name in task.get("tools", [])]


def present(**words):
    return {name: value for name, value in words.items() if value not in (None, [], {})}


def choice(task, required, named):
    wanted = task.get("choice")
    return named(wanted["name"]) if isinstance(wanted, dict) else required if wanted else None


def effort(task):
    return task["think"] if isinstance(task.get("think"), str) else None


class Chat:
    def __init__(self, url, token, timeout):
        self.client = openai.AsyncOpenAI(base_url=url + "/v1", api_key=token, max_retries=0, timeout=timeout)

    async def ask(self, task, conversation, tools, heard):
        messages = []
        for one in conversation:
            if one["role"] == "tool":
                messages.append({"role": "tool", "tool_call_id": one["id"], "content": "Error: " + one["error"] if "error" in one else one["text"]})
                continue
            messages.append({"role": one["role"], "content": one["text"] or None, **present(tool_calls=[
                {"type": "function", "id": call["id"], "function": {"name": call["name"], "arguments": json.dumps(call["args"])}} for call in one.get("calls", [])])})
        form = task.get("form")
        asked = present(
            model=task.get("model", "words"), messages=messages, tools=functions(task, tools), max_tokens=task.get("most"), temperature=task.get("temperature"),
            tool_choice=choice(task, "required", lambda name: {"type": "function", "function": {"name": name}}), reasoning_effort=effort(task),
            response_format={"type": "json_object"} if form == "json" else form and {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": form}})
        if "parallel" in task:
            asked["parallel_tool_calls"] = task["parallel"]
        if not task.get("stream"):
            given = (await self.client.chat.completions.create(**asked)).choices[0]
            message = given.message
            return {"text": message.content or "", "thoughts": getattr(message, "reasoning_content", None) or "", "finish": given.finish_reason.replace("tool_calls", "tools"),
                    "calls": [{"id": one.id, "name": one.function.name, "args": json.loads(one.function.arguments)} for one in message.tool_calls or []]}
        whole, calls = {"text": "", "thoughts": "", "finish": ""}, []
        async with await self.client.chat.completions.create(**asked, stream=True) as stream:
            async for chunk in stream:
                if not chunk.choices:
                    continue
                delta = chunk.choices[0].delta
                whole["text"] += delta.content or ""
                whole["thoughts"] += getattr(delta, "reasoning_content", None) or ""
                whole["finish"] = (chunk.choices[0].finish_reason or whole["finish"]).replace("tool_calls", "tools")
                for piece in delta.tool_calls or []:
                    if piece.id:
                        calls.append({"id": piece.id, "name": piece.function.name, "args": ""})
                    calls[piece.index]["args"] += piece.function.arguments or ""
                if delta.content:
                    heard(delta.content)
        return {**whole, "calls": [{**one, "args": json.loads(one["args"])} for one in calls]}

    async def embed(self, task):
        answer = await self.client.embeddings.create(**present(model="words", input=task["embed"], dimensions=task.get("dimensions")))
        return [len(one.embedding) for one in answer.data]

    async def rerank(self, task):
        return await self.client.post("/rerank", cast_to=object, body={"model": "words", "query": "q", "documents": task["rerank"]})


class Responses:
    def __init__(self, url, token, timeout):
        self.client = openai.AsyncOpenAI(base_url=url + "/v1", api_key=token, max_retries=0, timeout=timeout)

    async def ask(self, task, conversation, tools, heard):
        items = []
        for one in conversation:
            if one["role"] == "tool":
                items.append({"type": "function_call_output", "call_id": one["id"], "output": "Error: " + one["error"] if "error" in one else one["text"]})
            else:
                items += one.get("items") or [{"role": one["role"], "content": one["text"]}]
        form = task.get("form")
        asked = present(
            model=task.get("model", "words"), input=items, tools=[{"type": "function", "name": name, "strict": False, **tools[name]} for name in task.get("tools", [])],
            max_output_tokens=task.get("most"), temperature=task.get("temperature"), reasoning=present(effort=effort(task)),
            tool_choice=choice(task, "required", lambda name: {"type": "function", "name": name}),
            text=form and {"format": {"type": "json_object"} if form == "json" else {"type": "json_schema", "name": "answer", "strict": True, "schema": form}})
        asked["store"] = False
        if "parallel" in task:
            asked["parallel_tool_calls"] = task["parallel"]
        if task.get("stream"):
            response = None
            async with await self.client.responses.create(**asked, stream=True) as stream:
                async for event in stream:
                    if event.type == "response.output_text.delta":
                        heard(event.delta)
                    response = getattr(event, "response", response)
        else:
            response = await self.client.responses.create(**asked)
        calls = [{"id": one.call_id, "name": one.name, "args": json.loads(one.arguments)} for one in response.output if one.type == "function_call"]
        return {"text": response.output_text, "calls": calls, "finish": "tools" if calls else "length" if response.status == "incomplete" else "stop",
                "items": [one.model_dump(exclude_none=True) for one in response.output],
                "thoughts": "".join(part.text for one in response.output if one.type == "reasoning" for part in one.content or [])}


class Messages:
    def __init__(self, url, token, timeout):
        self.client = anthropic.AsyncAnthropic(base_url=url, api_key=token, max_retries=0, timeout=timeout)

    async def ask(self, task, conversation, tools, heard):
        messages, system = [], None
        for one in conversation:
            if one["role"] == "system":
                system = one["text"]
            elif one["role"] == "tool":
                block = {"type": "tool_result", "tool_use_id": one["id"], "content": one.get("error", one.get("text")), "is_error": "error" in one}
                if messages[-1]["role"] == "user":
                    messages[-1]["content"].append(block)
                else:
                    messages.append({"role": "user", "content": [block]})
            else:
                messages.append({"role": one["role"], "content": one.get("blocks") or one["text"]})
        form, wanted = task.get("form"), choice(task, {"type": "any"}, lambda name: {"type": "tool", "name": name})
        if wanted and task.get("parallel") is False:
            wanted["disable_parallel_tool_use"] = True
        asked = present(
            model=task.get("model", "words"), max_tokens=task.get("most", 2000), system=system, messages=messages, temperature=task.get("temperature"), tool_choice=wanted,
            tools=[{"name": name, "description": tools[name]["description"], "input_schema": tools[name]["parameters"]} for name in task.get("tools", [])],
            thinking=task.get("think") and {"type": "enabled", "budget_tokens": 1024},
            output_config={"effort": effort(task)} if effort(task) else form and {"format": {"type": "json_schema", "schema": form}})
        if task.get("stream"):
            async with self.client.messages.stream(**asked) as stream:
                async for text in stream.text_stream:
                    heard(text)
                message = await stream.get_final_message()
        else:
            message = await self.client.messages.create(**asked)
        blocks = [one.model_dump(exclude_none=True, exclude={"parsed_output"}) for one in message.content]
        return {"text": "".join(one.get("text", "") for one in blocks), "thoughts": "".join(one.get("thinking", "") for one in blocks), "blocks": blocks,
                "finish": {"end_turn": "stop", "max_tokens": "length", "tool_use": "tools"}[message.stop_reason],
                "calls": [{"id": one["id"], "name": one["name"], "args": one["input"]} for one in blocks if one["type"] == "tool_use"]}


class Ollama:
    def __init__(self, url, token, timeout):
        self.client = ollama.AsyncClient(host=url, headers={"authorization": "Bearer " + token}, timeout=timeout)

    async def ask(self, task, conversation, tools, heard):
        messages = []
        for one in conversation:
            messages.append({"role": one["role"], "content": "Error: " + one["error"] if "error" in one else one["text"], **present(
                thinking=one.get("thoughts"), tool_name=one.get("name"),
                tool_calls=[{"function": {"name": call["name"], "arguments": call["args"]}} for call in one.get("calls", [])])})
        asked = present(model=task.get("model", "words"), messages=messages, tools=functions(task, tools), format=task.get("form"), think=task.get("think"),
                        options=present(num_predict=task.get("most"), temperature=task.get("temperature")))
        whole = {"text": "", "thoughts": "", "calls": [], "finish": ""}

        def take(part):
            whole["text"] += part.message.content or ""
            whole["thoughts"] += part.message.thinking or ""
            whole["calls"] += [{"name": one.function.name, "args": dict(one.function.arguments)} for one in part.message.tool_calls or []]
            whole["finish"] = part.done_reason or whole["finish"]
            if part.message.content:
                heard(part.message.content)

        if task.get("stream"):
            async for part in await self.client.chat(**asked, stream=True):
                take(part)
        else:
            take(await self.client.chat(**asked))
        return {**whole, "finish": "tools" if whole["calls"] else whole["finish"]}

    async def embed(self, task):
        answer = await self.client.embed(**present(model="words", input=task["embed"], dimensions=task.get("dimensions")))
        return [len(one) for one in answer.embeddings]


CLIENTS = {"chat": Chat, "responses": Responses, "messages": Messages, "ollama": Ollama}


async def perform(api, task, url, token, tools, results):
    client = CLIENTS[api](url, token, 0.5 if task.get("cancel") == "timeout" else 60)
    if "embed" in task:
        return {"vectors": await client.embed(task)}
    if "rerank" in task:
        return {"answer": await client.rerank(task)}
    conversation = [{"role": "system", "text": task["system"]}] if "system" in task else []
    conversation += task.get("messages") or [{"role": "user", "text": "?"}]
    rounds, got = [], []

    def heard(text):
        got.append(text)
        if task.get("cancel") == "middle":
            raise Given

    try:
        for _ in range(5):
            answer = await asyncio.wait_for(client.ask(task, conversation, tools, heard), 0.5 if task.get("cancel") == "before" else 60)
            rounds.append({**{name: answer[name] for name in ("text", "thoughts", "finish")}, "calls": [[one["name"], one["args"]] for one in answer["calls"]]})
            conversation.append({"role": "assistant", **answer})
            if not answer["calls"] or "choice" in task:
                break
            for one in answer["calls"]:
                result = results[one["args"]["city"]]
                conversation.append({"role": "tool", "id": one.get("id"), "name": one["name"], **({"text": result} if isinstance(result, str) else result)})
    except Exception as error:  # pylint: disable=broad-exception-caught
        if "cancel" not in task:
            raise
        return {"got": "".join(got), "error": type(error).__name__}
    return {"rounds": rounds}


async def main():
    while line := await asyncio.to_thread(sys.stdin.readline):  # what is given up ends meanwhile
        asked = json.loads(line)
        try:
            said = await perform(**asked)
        except Exception as error:  # pylint: disable=broad-exception-caught
            said = {"status": getattr(error, "status_code", None) or "broken", "said": "%s: %s" % (type(error).__name__, error)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
