"""Write minilm.json: embeddings of all-MiniLM-L6-v2 by transformers, from the same published weights in 32-bit floats.

usage: python3 tests/published/make_minilm.py FOLDER > tests/published/minilm.json

FOLDER is the package's model folder (config.json, tokenizer.json, model.safetensors). Needs torch and transformers; made
with those versions that the result names.
"""
import hashlib
import json
import pathlib
import sys

import torch
import transformers

TEXTS = [
    "How do I reset my password?",
    "Steps to recover access when you forgot your login.",
    "The Eiffel Tower is in Paris.",
    "Où est la tour Eiffel ? À Paris, bien sûr.",
    "东京 is the capital of Japan; 日本の首都。",
    "def add(a, b):\n    return a + b  # sum of two numbers",
    "👍 naïve café — 10,000 µs…",
    "The quick brown fox jumps over the lazy dog. " * 40,
]


def main(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    made = []
    for one in TEXTS:
        encoded = tokenizer(one, return_tensors="pt")
        with torch.inference_mode():
            mean = model(**encoded).last_hidden_state[0].mean(0)
        made.append({"text": one, "tokens": len(encoded["input_ids"][0]),
                     "embedding": [round(float(value), 6) for value in mean / mean.norm()]})
    weights = pathlib.Path(folder, "model.safetensors").read_bytes()
    json.dump({"sha256": hashlib.sha256(weights).hexdigest(),
               "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
               "embeddings": made}, sys.stdout)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
