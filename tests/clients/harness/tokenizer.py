"""Write the tokenizer of SmolLM2, as a GGUF file has it, in the form that transformers reads without a hub.

usage: python3 tests/clients/harness/tokenizer.py FILE.gguf FOLDER

Needs the packages gguf and tokenizers. Digits stand alone, as SmolLM2's own tokenizer has it: the file says no more of that than its
name for the rule (smollm).
"""
import json
import pathlib
import sys

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL = 3


def main(file, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(file)
    read = lambda name: reader.fields["tokenizer.ggml." + name].contents()
    assert (read("model"), read("pre")) == ("gpt2", "smollm"), "another tokenizer's rules"
    tokens = read("tokens")
    made = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, [tuple(one.split(" ", 1)) for one in read("merges")]))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token, kind in zip(tokens, read("token_type")) if kind == CONTROL])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "model_max_length": 8192,
        "bos_token": tokens[read("bos_token_id")], "eos_token": tokens[read("eos_token_id")]}), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
