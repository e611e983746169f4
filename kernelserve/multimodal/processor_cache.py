"""Keeps what the processor made of the last images, so that the same picture is processed once."""

from __future__ import annotations

import threading
from collections import OrderedDict

from kernelserve.multimodal.processor_messages import ProcessedImage

__all__ = ["ProcessorCache"]


class ProcessorCache:
    """Forgets what was used longest ago when it holds more than `max_bytes`; 0 keeps nothing. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._images: OrderedDict[str, ProcessedImage] = OrderedDict()
        self.num_bytes = 0

    def get(self, mm_hash: str) -> ProcessedImage | None:
        """Return what is kept under this hash; it counts as used."""
        with self._lock:
            image = self._images.get(mm_hash)
            if image is not None:
                self._images.move_to_end(mm_hash)
            return image

    def put(self, mm_hash: str, image: ProcessedImage) -> None:
        """Keep an image, unless it alone is over the limit."""
        if image.num_bytes > self._max_bytes:
            return
        with self._lock:
            old = self._images.pop(mm_hash, None)
            self.num_bytes += image.num_bytes - (old.num_bytes if old else 0)
            self._images[mm_hash] = image
            while self.num_bytes > self._max_bytes:
                _, dropped = self._images.popitem(last=False)
                self.num_bytes -= dropped.num_bytes

    def __len__(self) -> int:
        return len(self._images)
