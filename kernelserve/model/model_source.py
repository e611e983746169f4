"""Turns the name of a model into a local folder: embedded default, folder, .gguf file, or hub id."""

from __future__ import annotations

import os
from pathlib import Path

from kernelserve.config import DEFAULT_MODEL, VISION_MODEL
from kernelserve.errors import ModelNotFoundError

__all__ = ["locate_model"]

_SMALL_FILES = ["*.json", "*.jinja", "*.model", "*.txt"]


def locate_model(model: str, revision: str | None = None) -> Path:
    """Return the folder or .gguf file of `model`, fetched if it is a hub id.

    Raises ModelNotFoundError if there is nothing under this name.
    """
    if model == DEFAULT_MODEL:
        from kernelserve.model.embedded import embedded_gguf

        return embedded_gguf()
    if model == VISION_MODEL:
        return Path(__file__).with_name("smollm2_vision")
    path = Path(model).expanduser()
    if path.exists():
        if path.is_file() and path.suffix.lower() != ".gguf":
            raise ModelNotFoundError(
                f"{path} is a file but not a .gguf: give the folder of the model"
            )
        return path.resolve()
    if path.suffix.lower() == ".gguf" or path.is_absolute() or model.startswith((".", "~")):
        raise ModelNotFoundError(f"there is no {path}")
    return _fetch(model, revision)


def _fetch(repo_id: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    def download(patterns: list[str]) -> Path:
        return Path(
            snapshot_download(
                repo_id, revision=revision, allow_patterns=patterns, ignore_patterns=["*/*"]
            )
        )

    try:
        folder = download([*_SMALL_FILES, "*.safetensors"])
        if not any(folder.glob("*.safetensors")):
            folder = download([*_SMALL_FILES, "*.bin"])
    except GatedRepoError as error:
        raise ModelNotFoundError(
            f"{repo_id} is gated: accept its terms and log in with `hf auth login`"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelNotFoundError(f"{repo_id} has no revision {revision!r}") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFoundError(
            f"there is no model {repo_id!r}: neither a folder or .gguf file here nor a public "
            "Hugging Face id"
        ) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
        cause = "HF_HUB_OFFLINE is set" if offline else "the hub cannot be reached"
        raise ModelNotFoundError(
            f"{repo_id!r} is no folder or .gguf file here, not in the local Hugging Face cache, "
            f"and {cause}; the embedded models are {DEFAULT_MODEL} and {VISION_MODEL}"
        ) from error
    return folder
