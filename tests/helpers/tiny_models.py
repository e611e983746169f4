"""Makes tiny random models of many architectures, with a tokenizer, as Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = [
    "ARCHITECTURES",
    "FUSED",
    "TINY_MAX_MODEL_LEN",
    "TINY_SIZE",
    "VOCAB_SIZE",
    "make_tiny_config",
    "make_tiny_model",
]

VOCAB_SIZE = 288
TINY_MAX_MODEL_LEN = 256
SLIDING_WINDOW = 8

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TINY_SIZE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": TINY_MAX_MODEL_LEN,
    "bos_token_id": 257,
    "eos_token_id": 258,
    "pad_token_id": 256,
    "tie_word_embeddings": False,
}
_MOE: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}

# Architecture -> what differs from the sizes above. Names are transformers' model types.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {"head_dim": 16},
    "qwen2": {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True},
    "qwen3": {"head_dim": 16},
    "mistral": {"head_dim": 16, "sliding_window": SLIDING_WINDOW},
    "gemma2": {
        "head_dim": 16,
        "num_hidden_layers": 4,
        "sliding_window": SLIDING_WINDOW,
        "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3_text": {
        "head_dim": 16,
        "num_hidden_layers": 4,
        "sliding_window": SLIDING_WINDOW,
        "query_pre_attn_scalar": 24,
        "sliding_window_pattern": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "phi3": {},
    "olmo2": {},
    "granite": {
        "attention_multiplier": 0.3,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
        "logits_scaling": 4.0,
    },
    "smollm3": {"num_hidden_layers": 4, "no_rope_layer_interval": 2, "no_rope_layers": None},
    "gpt_neox": {},
    "mixtral": _MOE | {"sliding_window": None},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [1],
        "norm_topk_prob": True,
    },
    "starcoder2": {"sliding_window": SLIDING_WINDOW},
    "cohere": {"logit_scale": 0.25, "use_qk_norm": True},
    "cohere2": {"num_hidden_layers": 4, "sliding_window": SLIDING_WINDOW, "logit_scale": 0.25},
    "gpt2": {"n_positions": TINY_MAX_MODEL_LEN},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "gpt_oss": _MOE | {"head_dim": 16, "num_hidden_layers": 2, "sliding_window": SLIDING_WINDOW},
}


FUSED = ("llama", "mistral", "qwen2", "qwen3")
"""Architectures whose layers run in our own kernels."""


def make_tiny_config(arch: str, **changes: Any) -> Any:
    """Return the transformers config of the tiny model of `arch`."""
    from transformers import AutoConfig

    values = TINY_SIZE | ARCHITECTURES[arch] | changes
    if arch == "smollm3" and values["no_rope_layers"] is None:
        del values["no_rope_layers"]
    return AutoConfig.for_model(arch, **values)


def make_tiny_model(arch: str, folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write a seeded random float32 model of `arch` with a byte-level tokenizer into `folder`.

    Weights are large enough that attention is far from uniform and that greedy answers vary.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = make_tiny_config(arch, **changes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for name, parameter in sorted(model.named_parameters()):
                spread = 0.3 if parameter.dim() > 1 else 0.1
                is_scale = "norm" in name and name.endswith("weight")
                center = 1.0 if is_scale and not arch.startswith("gemma") else 0.0
                parameter.copy_(center + spread * torch.randn(parameter.shape))
    model.generation_config.eos_token_id = [258, 259]
    model.save_pretrained(folder)
    make_tiny_tokenizer(folder)
    return folder


def make_tiny_tokenizer(folder: Path) -> None:
    """Write a byte-level BPE tokenizer: 256 bytes, 5 special tokens, 7 merges, a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: i for i, symbol in enumerate(alphabet)}
    specials = ["<pad>", "<s>", "<|im_end|>", "<|endoftext|>", "<|im_start|>"]
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("o", "n"), ("e", "r"), ("Ġ", "a")]
    first_merge = len(alphabet) + len(specials)
    for i, pair in enumerate(merges):
        vocab["".join(pair)] = first_merge + i
    for i, special in enumerate(specials):
        vocab[special] = len(alphabet) + i
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(special, special=True) for special in specials])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "<|im_end|>",
        "pad_token": "<pad>",
        "model_max_length": TINY_MAX_MODEL_LEN,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
