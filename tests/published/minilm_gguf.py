"""Turn the published weights of all-MiniLM-L6-v2 into a GGUF file, in 32-bit floats, with the keys and the names of tensors
that llama.cpp's converter writes. Needs nothing but Python: the numbers are copied as they are.

usage: python3 tests/published/minilm_gguf.py FOLDER FILE.gguf

FOLDER has config.json, vocab.txt and model.safetensors.
"""
import json
import pathlib
import struct
import sys

U32, F32, BOOL, TEXT, LIST, I32 = 4, 6, 7, 8, 9, 5
ALIGNMENT = 32
OUTER = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
         "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm"}
INNER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
         "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}


def name_of(name):
    """None of a tensor that embeddings do not need: the pooler, and a list of positions."""
    stem, _, kind = name.rpartition(".")
    if stem in OUTER:
        return f"{OUTER[stem]}.{kind}"
    words = stem.split(".", 3)
    return f"blk.{words[2]}.{INNER[words[3]]}.{kind}" if words[:2] == ["encoder", "layer"] else None


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value_of(kind, value):
    if kind == TEXT:
        return text(value)
    if kind == LIST:
        of, items = value
        return struct.pack("<IQ", of, len(items)) + b"".join(value_of(of, item) for item in items)
    return struct.pack({U32: "<I", F32: "<f", BOOL: "<?", I32: "<i"}[kind], value)


def vocabulary(folder):
    """Tokens and types: what begins a word has U+2581 before it, what goes on has nothing."""
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    shown = [one if one in special else one[2:] if one.startswith("##") else "\u2581" + one for one in tokens]
    return tokens, shown, [3 if one in special else 1 for one in tokens]


def keys(folder):
    config = json.loads((folder / "config.json").read_text())
    tokens, shown, types = vocabulary(folder)
    return [
        ("general.architecture", TEXT, "bert"), ("general.name", TEXT, "all-MiniLM-L6-v2"), ("general.file_type", U32, 0),
        ("bert.block_count", U32, config["num_hidden_layers"]),
        ("bert.context_length", U32, config["max_position_embeddings"]),
        ("bert.embedding_length", U32, config["hidden_size"]),
        ("bert.feed_forward_length", U32, config["intermediate_size"]),
        ("bert.attention.head_count", U32, config["num_attention_heads"]),
        ("bert.attention.layer_norm_epsilon", F32, config["layer_norm_eps"]),
        ("bert.attention.causal", BOOL, False), ("bert.pooling_type", U32, 1),
        ("tokenizer.ggml.model", TEXT, "bert"), ("tokenizer.ggml.pre", TEXT, "default"),
        ("tokenizer.ggml.token_type_count", U32, config["type_vocab_size"]),
        ("tokenizer.ggml.tokens", LIST, (TEXT, shown)), ("tokenizer.ggml.token_type", LIST, (I32, types)),
        ("tokenizer.ggml.bos_token_id", U32, tokens.index("[CLS]")),
        ("tokenizer.ggml.eos_token_id", U32, tokens.index("[SEP]")),
        ("tokenizer.ggml.unknown_token_id", U32, tokens.index("[UNK]")),
        ("tokenizer.ggml.seperator_token_id", U32, tokens.index("[SEP]")),
        ("tokenizer.ggml.padding_token_id", U32, tokens.index("[PAD]")),
    ]


def main(folder, out):
    with open(folder / "model.safetensors", "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        weights = file.read()
    tensors, at, infos = [], 0, []
    for name, entry in sorted(header.items()):
        if name == "__metadata__" or not name_of(name):
            continue
        first, last = entry["data_offsets"]
        assert entry["dtype"] == "F32", name
        shape = list(reversed(entry["shape"]))
        infos.append(text(name_of(name)) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, at))
        tensors.append((first, last))
        at += (last - first + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    pairs = keys(folder)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs))
    head += b"".join(text(key) + struct.pack("<I", kind) + value_of(kind, value) for key, kind, value in pairs)
    head += b"".join(infos)
    with open(out, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for first, last in tensors:
            file.write(weights[first:last] + bytes(-(last - first) % ALIGNMENT))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
