"""What a worker tells the layers above about the model it has loaded. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["ModelInfo", "Progress"]


class Progress(Protocol):
    """Hears how far a start is."""

    def __call__(self, phase: str, done: float | None, tokenizer_dir: str = "", /) -> None:
        """`done` is a share, None if unknown; `tokenizer_dir` is told once it is known."""


"""Called with the phase and the share of it that is done, if known.

Phases: `import`, `load weights`, `allocate KV cache`, `warm up`.
"""


@dataclass(slots=True)
class ModelInfo:
    """A loaded model and its KV cache: what a scheduler and a client need to know."""

    model_type: str
    dtype: str
    device: str
    max_model_len: int
    """Of the model, shortened to what fits the KV cache."""
    vocab_size: int
    """Rows of the output head."""
    block_size: int
    num_gpu_blocks: int
    """Blocks of the KV cache, the null block included."""
    kv_cache_bytes: int
    weight_bytes: int
    tokenizer_dir: str
    """Empty: no tokenizer, only token ids can be used."""
    eos_token_ids: list[int] = field(default_factory=list)
    generation_defaults: dict[str, Any] = field(default_factory=dict)
    load_seconds: dict[str, float] = field(default_factory=dict)
    """Phase -> seconds."""
    processor_dir: str = ""
    """Folder with the settings of the image processor; empty: the model takes no images."""
    image_token_id: int | None = None
    whole_images: bool = False
    """Each image must be computed in one step."""
    image_side: int = 0
    """See `EngineReady`."""
    torch_reason: str = ""
    """See `EngineReady`."""

    @property
    def takes_images(self) -> bool:
        """Whether the model can see."""
        return self.image_token_id is not None
