"""The embedded model in the forms that peers read."""

from __future__ import annotations

import shutil
from pathlib import Path

from kernelserve.model.embedded import embedded_gguf

__all__ = ["make_models"]

_HF_FOLDER = "smollm2-135m"


def make_models(models: Path) -> None:
    """Put the .gguf file into the folder, and a bfloat16 Hugging Face folder for those that do not read GGUF."""
    models.mkdir(parents=True, exist_ok=True)
    gguf = models / embedded_gguf().name
    if not gguf.exists():
        shutil.copy2(embedded_gguf(), gguf)
    target = models / _HF_FOLDER
    if not target.exists():
        partial = models / f".{_HF_FOLDER}.partial"
        _write_hf_folder(gguf, partial)
        partial.rename(target)


def _write_hf_folder(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
