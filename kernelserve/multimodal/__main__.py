"""`python -m kernelserve.multimodal`: runs the image processor of one model until its standard input closes."""

from __future__ import annotations

import os
import sys

from kernelserve.multimodal.frame_pipe import FramePipe
from kernelserve.multimodal.processor_messages import ImageTask, ProcessorReply, ProcessorSpec
from kernelserve.transformers_import import remember_model_index

_IDLE_S = 600.0
"""A process that nobody has used for so long gives its memory back. The next image starts another one."""


def main() -> None:
    """Answer each message with one reply. What is printed goes to standard error."""
    replies = os.dup(1)
    os.dup2(2, 1)
    # transformers would import torch, which is 5 s and 250 MB, for processors that do not use it.
    sys.modules["torch"] = sys.modules["torchvision"] = None  # type: ignore[assignment]
    remember_model_index()
    spec = FramePipe(0, replies, ProcessorSpec).receive()
    pipe = FramePipe(0, replies, ImageTask)
    try:
        from kernelserve.multimodal.hf_processor import HFProcessor

        processor = HFProcessor(spec)
    except Exception as error:
        pipe.send(ProcessorReply(failure=_describe(error)))
        return
    pipe.send(ProcessorReply(placeholder=processor.placeholder))
    while True:
        try:
            task = pipe.receive(_IDLE_S)
        except (EOFError, TimeoutError):
            return
        try:
            reply = ProcessorReply(processor.process(task))
        except Exception as error:
            reply = ProcessorReply(failure=_describe(error))
        pipe.send(reply)


def _describe(error: Exception) -> str:
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {first_line}"


if __name__ == "__main__":
    main()
