"""The transformers config and weight names of GGUF files of the Llama family."""

from __future__ import annotations

from typing import Any

from kernelserve.model.gguf_file import GgufFile

__all__ = ["hf_weight_name", "is_llama_family", "llama_family_config"]

_FAMILY = {"llama", "qwen2", "qwen3"}
_FIELDS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
}
_OUTER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def is_llama_family(file: GgufFile) -> bool:
    """Whether all that is special about the file is known here; others go through transformers."""
    return (
        file.architecture in _FAMILY
        and not file.hyperparameter("expert_count")
        and file.hyperparameter("rope.scaling.type", "none") == "none"
        and all(
            tensor.name == "rope_freqs.weight" or hf_weight_name(tensor.name)
            for tensor in file.tensors
        )
        and all(tensor.name != "rope_freqs.weight" for tensor in file.tensors)
    )


def llama_family_config(file: GgufFile) -> dict[str, Any]:
    """Return the fields of the config of a file for which `is_llama_family` holds."""
    shapes = {tensor.name: tensor.shape for tensor in file.tensors}
    values: dict[str, Any] = {
        name: file.hyperparameter(field)
        for field, name in _FIELDS.items()
        if file.hyperparameter(field) is not None
    }
    values.setdefault("num_key_value_heads", values["num_attention_heads"])
    values.setdefault("head_dim", shapes["blk.0.attn_q.weight"][0] // values["num_attention_heads"])
    for field in ("bos", "eos", "padding"):
        token = file.metadata.get(f"tokenizer.ggml.{field}_token_id")
        values["pad_token_id" if field == "padding" else f"{field}_token_id"] = token
    if file.architecture != "qwen2":
        values["attention_bias"] = "blk.0.attn_q.bias" in shapes
    theta = file.hyperparameter("rope.freq_base", 10000.0)
    return values | {
        "vocab_size": shapes["token_embd.weight"][0],
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "tie_word_embeddings": "output.weight" not in shapes,
    }


def hf_weight_name(name: str) -> str:
    """Return transformers' name of a tensor, as in blk.3.attn_q.weight; empty if unknown."""
    stem, _, kind = name.rpartition(".")
    if stem in _OUTER_NAMES:
        return f"{_OUTER_NAMES[stem]}.{kind}"
    parts = stem.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[2] in _LAYER_NAMES:
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{kind}"
    return ""
