"""The contract of whatever weights come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from kernelserve.kernels import StoredMatrix

__all__ = ["Checkpoint"]


class Checkpoint(Protocol):
    """A model on disk. Methods raise ModelFilesError naming the file that is missing or damaged."""

    @property
    def stored_dtype(self) -> torch.dtype | None:
        """What the weights are best kept in; None: the config says it."""
        ...

    def read_config(self) -> Any:
        """Return the transformers config. Raises UnsupportedModelError if none knows the model."""
        ...

    def weight_bytes(self, bytes_per_element: int) -> int:
        """Return what the weights will take in memory, from the headers of the files alone."""
        ...

    def prefetch(self, dtype: torch.dtype) -> None:
        """Begin to read the weights in the background, where that saves time; `load` waits for them."""
        ...

    def load(self, model_class: Any, config: Any, *, dtype: torch.dtype, device: Any) -> Any:
        """Return the model with its weights; its attention goes to `ATTENTION_NAME`."""
        ...

    def fingerprint(self) -> str:
        """Return what is the same for all models that are built alike, whatever their weights."""
        ...

    def leave_matrices(self) -> bool:
        """Let `load` return a model without the matrices that `stored_matrix` gives. False: they must all be loaded.

        Comes before `prefetch`.
        """
        ...

    def stored_matrix(self, path: str, /) -> StoredMatrix | None:
        """Return the weight of the linear module or embedding at `path` in blocks of few bits, as the file holds it.

        None: there is none, or it is only to be had by `weight`.
        """
        ...

    def weight(self, name: str, /) -> torch.Tensor | None:
        """Return the parameter that transformers calls `name`, in a float dtype and without rounding.

        None: no file has it under this name; perhaps transformers knows another one.
        """
        ...

    def tokenizer_dir(self) -> str:
        """Return a folder with tokenizer.json, made once in the cache if need be; empty: none."""
        ...

    def processor_dir(self) -> str:
        """Return the folder with the settings of the image processor; empty: the model takes no images."""
        ...

    def eos_token_ids(self, of_config: Sequence[int], tokenizer_dir: str) -> list[int]:
        """Return all tokens that end an answer, with those that the config names; the first is the primary one."""
        ...

    def generation_defaults(self) -> dict[str, Any]:
        """Return the sampling options that the model recommends."""
        ...
