"""Write harness/questions.json: how likely SmolLM2 135M Instruct has each answer, and what it says itself, by transformers, which reads
the same file in 32-bit floats.

usage: python3 tests/clients/harness/make.py FILE.gguf TOKENIZER > tests/clients/harness/questions.json

TOKENIZER is what tokenizer.py writes. Needs torch, transformers and gguf; made with those versions that the result names.
"""
import hashlib
import json
import os
import sys

import torch
import transformers

NEW_TOKENS = 12
QUESTIONS = [
    ("What colour is the sky on a clear day?", ["blue", "green", "made of old bread"], 0),
    ("Which animal barks?", ["a cat", "a dog", "a goldfish"], 1),
    ("What is the capital of France?", ["Berlin", "London", "Paris", "Madrid"], 2),
    ("How many legs does a spider have in 2024?", ["8", "3", "1,250"], 0),
    ("What do bees make?", ["honey", "steel"], 0),
    ("Wie heißt die Hauptstadt von Österreich?", ["Wien", "Köln"], 0),
]


def log_probabilities(model, tokens):
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([tokens])).logits[0].double(), 1)


def likelihood(model, tokenizer, context, continuation):
    """As the harness cuts: the tokens of the whole text after as many as the context has."""
    before = len(tokenizer.encode(context))
    whole = tokenizer.encode(context + continuation)
    rows = log_probabilities(model, whole)
    each = [float(rows[at - 1][whole[at]]) for at in range(before, len(whole))]
    greedy = all(int(rows[at - 1].argmax()) == whole[at] for at in range(before, len(whole)))
    return {"logprob": round(sum(each), 4), "tokens": len(each), "greedy": greedy}


def continued(model, tokenizer, context):
    tokens, said, least = tokenizer.encode(context), [], 99.0
    while len(said) < NEW_TOKENS and "\n" not in tokenizer.decode(said):
        best = log_probabilities(model, tokens + said)[-1].topk(2)
        least = min(least, float(best.values[0] - best.values[1]))
        said.append(int(best.indices[0]))
        if said[-1] == tokenizer.eos_token_id:
            said.pop()
            break
    return tokenizer.decode(said).split("\n")[0], round(least, 3)


def main(file, folder):
    with open(file, "rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").hexdigest()
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.dirname(file), gguf_file=os.path.basename(file), dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    questions = []
    for question, choices, answer in QUESTIONS:
        context = f"Question: {question}\nAnswer:"
        said, margin = continued(model, tokenizer, context)
        questions.append({"question": question, "choices": choices, "answer": answer, "said": said, "margin": margin,
                          "likelihoods": [likelihood(model, tokenizer, context, " " + choice) for choice in choices]})
    json.dump({"sha256": digest, "made_with": {"torch": torch.__version__, "transformers": transformers.__version__}, "questions": questions},
              sys.stdout, indent="\t", ensure_ascii=False)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
