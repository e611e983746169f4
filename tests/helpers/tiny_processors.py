"""Writes the tokenizer and the image processor's settings of tiny vision-language models, as Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.helpers.tiny_models import TINY_MAX_MODEL_LEN
from tests.helpers.tiny_vision_models import SEGFORMER_IMAGE_SIZE

__all__ = ["PROCESSORS", "TINY_IMAGE_SIZE", "make_tiny_processor", "special_tokens"]

TINY_IMAGE_SIZE = 16
"""Side of a picture, or of one tile of it, as the models of `tiny_vision_models.py` take it."""
_PATCH_SIZE = 4
_VOCAB_SIZE = 288
_IMAGE, _START, _END, _VIDEO = 280, 281, 282, 283

_BASE = ["<pad>", "<s>", "<|im_end|>", "<|endoftext|>", "<|im_start|>"]
_MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("Ċ", "Ċ"), ("ĊĊ", "Ċ"), ("Ġ", "a")]
_TAGS = [f"<row_{i + 1}_col_{j + 1}>" for i in range(2) for j in range(2)]
_HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_IDEFICS = {
    "special": {
        "<image>": _IMAGE,
        "<fake_token_around_image>": _START,
        "<end_of_utterance>": _END,
        "<global-img>": _VIDEO,
    }
    | {tag: 268 + i for i, tag in enumerate(_TAGS)},
    "placeholder": "<image>",
    "image": _HALF
    | {
        "size": {"longest_edge": 2 * TINY_IMAGE_SIZE},
        "max_image_size": {"longest_edge": TINY_IMAGE_SIZE},
        "do_image_splitting": True,
        "do_pad": True,
    },
    "processor": {"image_seq_len": 4},
}
_QWEN = {
    "special": {
        "<|image_pad|>": _IMAGE,
        "<|vision_start|>": _START,
        "<|vision_end|>": _END,
        "<|video_pad|>": _VIDEO,
    },
    "placeholder": "<|vision_start|><|image_pad|><|vision_end|>",
    "image": _HALF
    | {
        "size": {"shortest_edge": 16 * 16, "longest_edge": 32 * 32},
        "patch_size": _PATCH_SIZE,
        "temporal_patch_size": 2,
        "merge_size": 2,
    },
    "image_type": "Qwen2VLImageProcessor",
    "processor": {},
}

PROCESSORS: dict[str, dict[str, Any]] = {
    "llava": {
        "class": "LlavaProcessor",
        "image_type": "CLIPImageProcessor",
        "special": {"<image>": _IMAGE},
        "placeholder": "<image>",
        "image": {
            "size": {"shortest_edge": TINY_IMAGE_SIZE},
            "crop_size": {"height": TINY_IMAGE_SIZE, "width": TINY_IMAGE_SIZE},
        },
        "processor": {
            "patch_size": _PATCH_SIZE,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
            "image_token": "<image>",
        },
    },
    "llava-segformer": {
        "class": "LlavaProcessor",
        "image_type": "CLIPImageProcessor",
        "special": {"<image>": _IMAGE},
        "placeholder": "<image>",
        "image": {
            "size": {"shortest_edge": SEGFORMER_IMAGE_SIZE},
            "crop_size": {"height": SEGFORMER_IMAGE_SIZE, "width": SEGFORMER_IMAGE_SIZE},
        },
        "processor": {
            "patch_size": 32,
            "vision_feature_select_strategy": "full",
            "image_token": "<image>",
        },
    },
    "llava_onevision": {
        "class": "LlavaOnevisionProcessor",
        "image_type": "LlavaOnevisionImageProcessor",
        "special": {"<image>": _IMAGE, "<video>": _VIDEO},
        "placeholder": "<image>",
        "image": _HALF
        | {
            "size": {"height": TINY_IMAGE_SIZE, "width": TINY_IMAGE_SIZE},
            "image_grid_pinpoints": [[16, 32], [32, 16], [32, 32]],
        },
        "processor": {
            "num_image_tokens": 16,
            "vision_feature_select_strategy": "full",
            "vision_aspect_ratio": "anyres_max_9",
        },
    },
    "idefics3": _IDEFICS | {"class": "Idefics3Processor", "image_type": "Idefics3ImageProcessor"},
    "smolvlm": _IDEFICS | {"class": "SmolVLMProcessor", "image_type": "SmolVLMImageProcessor"},
    "qwen2_vl": _QWEN | {"class": "Qwen2VLProcessor"},
    "qwen2_5_vl": _QWEN | {"class": "Qwen2_5_VLProcessor"},
    "gemma3": {
        "class": "Gemma3Processor",
        "image_type": "Gemma3ImageProcessor",
        "special": {
            "<image_soft_token>": _IMAGE,
            "<start_of_image>": _START,
            "<end_of_image>": _END,
        },
        "placeholder": "<start_of_image>",
        "image": _HALF | {"size": {"height": TINY_IMAGE_SIZE, "width": TINY_IMAGE_SIZE}},
        "processor": {"image_seq_length": 4},
        "tokenizer": {
            "boi_token": "<start_of_image>",
            "image_token": "<image_soft_token>",
            "eoi_token": "<end_of_image>",
            "extra_special_tokens": {
                "boi_token": "<start_of_image>",
                "image_token": "<image_soft_token>",
                "eoi_token": "<end_of_image>",
            },
        },
    },
}
"""Model type -> classes, special tokens and settings. The sizes are those of the tiny models."""


def special_tokens(arch: str) -> dict[str, int]:
    """Return the ids of all special tokens."""
    return {token: 256 + i for i, token in enumerate(_BASE)} | dict(PROCESSORS[arch]["special"])


def make_tiny_processor(arch: str, folder: Path, *, max_length: int = TINY_MAX_MODEL_LEN) -> Path:
    """Write tokenizer and processor files of `arch` into a model folder, without weights or config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    what = PROCESSORS[arch]
    _make_tokenizer(arch).save(str(folder / "tokenizer.json"))
    _write(folder / "tokenizer_config.json", _tokenizer_config(what, max_length))
    _write(
        folder / "preprocessor_config.json",
        {"image_processor_type": what["image_type"], "processor_class": what["class"]}
        | what["image"],
    )
    _write(folder / "processor_config.json", {"processor_class": what["class"]} | what["processor"])
    (folder / "chat_template.jinja").write_text(_chat_template(what["placeholder"]))
    return folder


def _chat_template(placeholder: str) -> str:
    return (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{% if m['content'] is string %}{{ m['content'] }}{% else %}"
        "{% for part in m['content'] %}{% if part['type'] == 'image' %}"
        + placeholder
        + "{% else %}"
        "{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


def _make_tokenizer(arch: str) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = special_tokens(arch)
    vocab = {symbol: i for i, symbol in enumerate(alphabet)} | specials
    vocab |= {"".join(pair): 261 + i for i, pair in enumerate(_MERGES)}
    free = sorted(set(range(_VOCAB_SIZE)) - set(vocab.values()))
    vocab |= {f"<unused{i}>": i for i in free}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=_MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in specials])
    return tokenizer


def _tokenizer_config(what: dict[str, Any], max_length: int) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "<|im_end|>",
        "pad_token": "<pad>",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }
    return config | dict(what.get("tokenizer", {}))


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2))
