"""Write smollm2.json: what SmolLM2 135M Instruct says by transformers, which reads the same file in 32-bit floats.

usage: python3 tests/published/make_smollm2.py FILE.gguf > tests/published/smollm2.json

FILE.gguf is what fetch.py leaves in build/published. Needs torch, transformers and gguf; made with those versions that
the result names. Texts have no digits: transformers' reading of a GGUF file loses the rule that splits them.
"""
import hashlib
import json
import os
import sys

import torch
import transformers

STEPS = 24
CONVERSATIONS = [
    [{"role": "user", "content": "Why is the sky blue?"}],
    [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "The capital of France is Paris."},
        {"role": "user", "content": "And of Italy?"},
    ],
    [{"role": "user", "content": "Write a function in Python that returns the larger of two numbers."}],
]


def answer(model, tokenizer, messages):
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    tokens, said = list(prompt), []
    with torch.no_grad():
        for _ in range(STEPS):
            logits = model(torch.tensor([tokens])).logits[0, -1].double()
            best = torch.log_softmax(logits, 0).topk(2)
            token = int(best.indices[0])
            if token == tokenizer.eos_token_id:
                break
            said.append({
                "text": tokenizer.decode([token]),
                "logprob": round(float(best.values[0]), 5),
                "next": round(float(best.values[1]), 5),  # of the second likeliest: how far from a tie this is
            })
            tokens.append(token)
    return {"messages": messages, "prompt_tokens": len(prompt), "tokens": said}


def main(path):
    folder, name = os.path.split(os.path.abspath(path))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    result = {
        "sha256": digest,
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "conversations": [answer(model, tokenizer, messages) for messages in CONVERSATIONS],
    }
    json.dump(result, sys.stdout, indent="\t")
    print()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
