"""Loads the tokenizer of an engine while the engine is still loading its model."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from kernelserve.client.tokenizer import ClientTokenizer

__all__ = ["EarlyTokenizer"]


class EarlyTokenizer:
    """Begins when the folder is first known; whoever needs the tokenizer then waits for it. For one thread."""

    def __init__(self) -> None:
        self._folder = ""
        self._loading: Future[ClientTokenizer] = Future()

    def begin(self, folder: str) -> None:
        """Load in the background, if nothing is being loaded yet."""
        if not self._folder:
            self._folder = folder
            pool = ThreadPoolExecutor(1, "kernelserve-tokenizer")
            self._loading = pool.submit(ClientTokenizer, folder)
            pool.shutdown(wait=False)

    def get(self, folder: str) -> ClientTokenizer:
        """Return the tokenizer of a folder. Raises ModelFilesError."""
        return self._loading.result() if folder == self._folder else ClientTokenizer(folder)
