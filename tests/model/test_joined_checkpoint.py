"""The embedded model that sees is a folder of eyes, joined with the embedded text model at load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from kernelserve.config import VISION_MODEL, EngineConfig
from kernelserve.errors import ModelFilesError
from kernelserve.model.joined_checkpoint import VISION_WEIGHTS, text_model_of
from kernelserve.model.loader import load_model
from kernelserve.model.model_source import locate_model

torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(locate_model(VISION_MODEL), tmp_path / "eyes"))


def load(folder: Path):
    return load_model(
        EngineConfig(model=str(folder), dtype="float32", device="cpu"), lambda *_: None
    )


def test_a_folder_of_eyes_is_joined_with_its_text_model(folder) -> None:
    assert text_model_of(folder) == "smollm2-135m-instruct"
    loaded = load(folder)
    eyes = load_file(folder / VISION_WEIGHTS)
    state = loaded.module.state_dict()
    assert all(torch.equal(state[name], value.float()) for name, value in eyes.items())
    assert loaded.vision is not None
    assert loaded.vocab_size == 49152
    assert loaded.max_model_len == 8192
    assert loaded.fused is not None


def test_the_package_holds_the_eyes_in_less_than_25_mb() -> None:
    files = [path for path in locate_model(VISION_MODEL).iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 25_000_000
    eyes = load_file(locate_model(VISION_MODEL) / VISION_WEIGHTS)
    assert {value.dtype for value in eyes.values()} == {torch.float16}


def test_eyes_without_weights_are_refused_by_name(folder) -> None:
    (folder / VISION_WEIGHTS).unlink()
    with pytest.raises(ModelFilesError, match=VISION_WEIGHTS):
        load(folder)


def test_eyes_that_do_not_fit_their_config_are_refused_by_name(folder) -> None:
    eyes = load_file(folder / VISION_WEIGHTS)
    eyes["model.vision_tower.third_eye"] = eyes.pop("model.multi_modal_projector.linear_1.bias")
    save_file(eyes, folder / VISION_WEIGHTS)
    with pytest.raises(ModelFilesError, match=r"lacks 1 weights, such as .*linear_1\.bias"):
        load(folder)


def test_a_config_that_transformers_does_not_take_is_refused(folder) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["hidden_sizes"] = "many"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFilesError, match=r"config\.json is not usable"):
        load(folder)
