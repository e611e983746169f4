"""What goes between a client and the process that runs the model's image processor."""

from __future__ import annotations

from typing import Any

import msgspec

from kernelserve.step_record import Positional
from kernelserve.wire import WireArray

__all__ = ["ImageTask", "ProcessedImage", "ProcessorReply", "ProcessorSpec"]


class ProcessorSpec(Positional):
    """The first message to the process: which processor to load. Answered by a reply with the placeholder."""

    processor_dir: str
    """Folder with the settings of the image processor."""
    tokenizer_dir: str
    """Folder with tokenizer.json, which may be another one."""


class ImageTask(Positional):
    """One image to process."""

    pixels: WireArray
    """uint8 [height, width, 3]"""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Keyword arguments of the processor."""
    has_company: bool = False
    """Whether the prompt has other images too: only for processors that then treat each of them differently."""


class ProcessedImage(Positional):
    """What the processor made of one image."""

    expansion: str
    """The text that takes the place of the placeholder in the prompt."""
    data: dict[str, WireArray]
    """The model's keyword arguments."""

    @property
    def num_bytes(self) -> int:
        """Size of all arrays."""
        return sum(array.data.nbytes for array in self.data.values())


class ProcessorReply(Positional):
    """The answer to each message; `failure` is one line that can be read alone."""

    image: ProcessedImage | None = None
    placeholder: str = ""
    """What stands for one image in a prompt, before it is expanded."""
    failure: str | None = None
