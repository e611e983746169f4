"""How large a picture a model makes use of, by settings as models on the hub have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelserve.model import loader
from kernelserve.multimodal.useful_side import useful_image_side

_QWEN = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2}
SETTINGS = {
    "LLaVA 1.5: shorter side, then a crop": (
        {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
        672,
    ),
    "Gemma 3: squeezed into a square": ({"size": {"height": 896, "width": 896}}, 1792),
    "Gemma 3 that looks at crops, too": (
        {"size": {"height": 896, "width": 896}, "do_pan_and_scan": True},
        0,
    ),
    "SmolVLM: tiles of the longer side": (
        {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}},
        2048,
    ),
    "LLaVA-OneVision: tiles that fit": (
        {
            "size": {"height": 384, "width": 384},
            "image_grid_pinpoints": [[384, 768], [1152, 384], [768, 768]],
        },
        1152,
    ),
    "Qwen2-VL: so many pixels": (_QWEN | {"min_pixels": 3136, "max_pixels": 1003520}, 1416),
    "Qwen2-VL, newer: pixels under the names of edges": (
        _QWEN | {"size": {"shortest_edge": 3136, "longest_edge": 1003520}},
        1416,
    ),
    "one number": ({"size": 224}, 448),
    "pictures as they are": ({"size": {"shortest_edge": 224}, "do_resize": False}, 0),
    "no size": ({"image_mean": [0.5]}, 0),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_side_of_a_picture_that_is_of_use(name, tmp_path) -> None:
    settings, side = SETTINGS[name]
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    assert useful_image_side(str(tmp_path)) == side


def test_new_folders_have_the_settings_among_those_of_the_processor(tmp_path) -> None:
    settings = {"image_processor": {"size": {"longest_edge": 1024}}, "processor_class": "X"}
    (tmp_path / "processor_config.json").write_text(json.dumps(settings))
    assert useful_image_side(str(tmp_path)) == 1024
    assert useful_image_side(str(tmp_path / "nothing")) == useful_image_side("") == 0


def test_the_embedded_model_sees_squares_of_160_pixels() -> None:
    folder = Path(loader.__file__).parent / "smollm2_vision"
    assert useful_image_side(str(folder)) == 320


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[1]",
        '{"size": "large"}',
        '{"size": {"height": null}}',
        '{"image_grid_pinpoints": [384, "x"]}',
        '{"image_processor": "SomeProcessor"}',
        '{"max_pixels": -1, "size": {"longest_edge": -5}}',
    ],
)
def test_damaged_settings_do_not_keep_an_engine_from_starting(tmp_path, content) -> None:
    for name in ("preprocessor_config.json", "processor_config.json"):
        (tmp_path / name).write_text(content)
    assert useful_image_side(str(tmp_path)) == 0
