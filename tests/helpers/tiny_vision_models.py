"""Makes tiny random vision-language models, and random images as their processors would give them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelserve.protocol import MultiModalFeatureSpec, PlaceholderRange
from kernelserve.wire import WireArray
from tests.helpers.tiny_models import TINY_SIZE, make_tiny_tokenizer

__all__ = [
    "SEGFORMER_IMAGE_SIZE",
    "VISION_ARCHITECTURES",
    "TinyImage",
    "VisionPrompt",
    "make_tiny_vision_config",
    "make_tiny_vision_model",
    "random_image",
]

IMAGE_TOKEN = 280
SEGFORMER_IMAGE_SIZE = 64
"""Its stem and its one step between stages leave 2 x 2 embeddings."""
_START, _END = 281, 282

_TEXT = TINY_SIZE
_VISION: dict[str, Any] = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_channels": 3,
    "image_size": 16,
    "patch_size": 4,
}
_QWEN_TEXT = _TEXT | {
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
}
_QWEN: dict[str, Any] = {
    "image_token_id": IMAGE_TOKEN,
    "video_token_id": 283,
    "vision_start_token_id": _START,
    "vision_end_token_id": _END,
    "text_config": _QWEN_TEXT,
}

VISION_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llava": {
        "image_token_id": IMAGE_TOKEN,
        "image_seq_length": 16,
        "vision_config": _VISION | {"model_type": "clip_vision_model", "projection_dim": 24},
        "text_config": _TEXT | {"model_type": "llama"},
    },
    "llava-segformer": {
        "image_token_id": IMAGE_TOKEN,
        "image_seq_length": 4,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "vision_config": {
            "model_type": "segformer",
            "image_size": SEGFORMER_IMAGE_SIZE,
            "hidden_sizes": [8, 8, 16, 24],
            "hidden_size": 24,
            "num_attention_heads": [1, 1, 2, 3],
            "depths": [1, 1, 1, 2],
            "mlp_ratios": [2, 2, 2, 2],
            "drop_path_rate": 0.0,
            "reshape_last_stage": False,
        },
        "text_config": _TEXT | {"model_type": "llama"},
    },
    "gemma3": {
        "image_token_id": IMAGE_TOKEN,
        "boi_token_id": _START,
        "eoi_token_id": _END,
        "mm_tokens_per_image": 4,
        "vision_config": _VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        "text_config": _TEXT
        | {
            "model_type": "gemma3_text",
            "head_dim": 16,
            "num_hidden_layers": 4,
            "sliding_window": 3,
            "query_pre_attn_scalar": 24,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    },
    "llava_onevision": {
        "image_token_id": IMAGE_TOKEN,
        "video_token_id": 283,
        "image_grid_pinpoints": [[16, 32], [32, 16], [32, 32]],
        "vision_aspect_ratio": "anyres_max_9",
        "vision_feature_select_strategy": "full",
        "vision_config": _VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        "text_config": _TEXT | {"model_type": "qwen2"},
    },
    "idefics3": {
        "image_token_id": IMAGE_TOKEN,
        "scale_factor": 2,
        "vision_config": _VISION | {"model_type": "idefics3_vision"},
        "text_config": _TEXT | {"model_type": "llama"},
    },
    "smolvlm": {
        "image_token_id": IMAGE_TOKEN,
        "scale_factor": 2,
        "vision_config": _VISION | {"model_type": "smolvlm_vision"},
        "text_config": _TEXT | {"model_type": "llama"},
    },
    "qwen2_vl": _QWEN
    | {
        "vision_config": {
            "depth": 2,
            "embed_dim": 24,
            "hidden_size": 32,
            "num_heads": 2,
            "mlp_ratio": 2,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    },
    "qwen2_5_vl": _QWEN
    | {
        "vision_config": {
            "depth": 2,
            "hidden_size": 24,
            "out_hidden_size": 32,
            "intermediate_size": 32,
            "num_heads": 2,
            "patch_size": 4,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        },
    },
}
"""Name -> config. The name is the model type; behind a dash stands which vision tower, if not the usual one."""
_ONEVISION_SIZES = [(16, 32, 3, 52), (30, 12, 3, 56), (32, 32, 5, 88), (16, 32, 1, 17)]
"""Height, width, patches, embeddings; the last is a picture that was not cut into tiles."""


@dataclass
class TinyImage:
    """The arguments of the encoder for one image, and how many embeddings come out."""

    arrays: dict[str, np.ndarray[Any, Any]]
    num_embeds: int

    @property
    def mm_hash(self) -> str:
        digest = hashlib.sha256()
        for name, array in sorted(self.arrays.items()):
            digest.update(repr((name, array.dtype.str, array.shape)).encode() + array.tobytes())
        return digest.hexdigest()

    def feature(self, offset: int, is_embed: bytes | None = None) -> MultiModalFeatureSpec:
        """The image at a place of a prompt."""
        length = self.num_embeds if is_embed is None else len(is_embed)
        data = {
            name: WireArray(array.dtype.name, array.shape, array.tobytes())
            for name, array in self.arrays.items()
        }
        position = PlaceholderRange(offset, length, is_embed)
        return MultiModalFeatureSpec("image", self.mm_hash, position, data)


@dataclass
class VisionPrompt:
    """Token ids with the places of images among them."""

    token_ids: list[int]
    images: list[TinyImage]
    features: list[MultiModalFeatureSpec]

    @classmethod
    def build(cls, *parts: list[int] | TinyImage, masked: bool = False) -> VisionPrompt:
        """Join texts and images. `masked`: the range of an image also covers the tokens around it."""
        token_ids: list[int] = []
        images: list[TinyImage] = []
        features: list[MultiModalFeatureSpec] = []
        for part in parts:
            if not isinstance(part, TinyImage):
                token_ids += part
                continue
            marks = bytes([0, *[1] * part.num_embeds, 0])
            offset = len(token_ids) + (0 if masked else 1)
            features.append(part.feature(offset, marks if masked else None))
            images.append(part)
            token_ids += [_START, *[IMAGE_TOKEN] * part.num_embeds, _END]
        return cls(token_ids, images, features)


def random_image(arch: str, seed: int, size: int = 0) -> TinyImage:
    """Return a random image; `size` chooses among the shapes that the architecture can take."""
    rng = np.random.default_rng([seed, size])

    def pixels(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape, dtype=np.float32)

    if arch == "llava":
        return TinyImage({"pixel_values": pixels(1, 3, 16, 16)}, 16)
    if arch == "llava-segformer":
        return TinyImage(
            {"pixel_values": pixels(1, 3, SEGFORMER_IMAGE_SIZE, SEGFORMER_IMAGE_SIZE)}, 4
        )
    if arch == "gemma3":
        crops = 1 + size % 2
        return TinyImage({"pixel_values": pixels(crops, 3, 16, 16)}, 4 * crops)
    if arch == "llava_onevision":
        height, width, patches, num_embeds = _ONEVISION_SIZES[size % 4]
        arrays = {
            "pixel_values": pixels(1, patches, 3, 16, 16),
            "image_sizes": np.array([[height, width]], np.int64),
        }
        return TinyImage(arrays, num_embeds)
    if arch in ("idefics3", "smolvlm"):
        tiles = 1 + size % 3
        arrays = {
            "pixel_values": pixels(1, tiles, 3, 16, 16),
            "pixel_attention_mask": np.ones((1, tiles, 16, 16), np.int64),
        }
        return TinyImage(arrays, 4 * tiles)
    rows, columns = [(4, 4), (4, 6), (8, 4)][size % 3]
    arrays = {
        "pixel_values": pixels(rows * columns, 3 * 2 * 4 * 4),
        "image_grid_thw": np.array([[1, rows, columns]], np.int64),
    }
    return TinyImage(arrays, rows * columns // 4)


def make_tiny_vision_config(arch: str, **changes: Any) -> Any:
    """Return the transformers config of `arch`."""
    from transformers import AutoConfig

    settings = VISION_ARCHITECTURES[arch] | changes
    return AutoConfig.for_model(arch.partition("-")[0], **settings)


def make_tiny_vision_model(arch: str, folder: Path, *, seed: int = 0, **changes: Any) -> Path:
    """Write a seeded random float32 model of `arch` with a byte-level tokenizer into `folder`."""
    import torch
    from transformers import AutoModelForImageTextToText

    config = make_tiny_vision_config(arch, **changes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for name, parameter in sorted(model.named_parameters()):
                spread = 0.3 if parameter.dim() > 1 else 0.1
                is_scale = "norm" in name and name.endswith("weight")
                center = float(is_scale and not (arch == "gemma3" and "vision" not in name))
                parameter.copy_(center + spread * torch.randn(parameter.shape))
    model.generation_config.eos_token_id = [258, 259]
    model.save_pretrained(folder)
    make_tiny_tokenizer(folder)
    return folder
