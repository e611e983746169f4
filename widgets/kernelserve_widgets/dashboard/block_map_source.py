"""Asks the engine for the map of its KV cache, seldom and without waiting."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

import kernelserve as ks
from kernelserve.protocol import KVCacheMap

__all__ = ["BlockMapSource"]

_LOGGER = logging.getLogger(__name__)
_MIN_INTERVAL_S = 0.5
_COST_FACTOR = 50.0
"""The map may take a fiftieth of the engine's time."""
_NUM_COSTS = 10


class BlockMapSource:
    """One question at a time, each in a thread of its own: the engine answers between two steps, which may be long.

    The cost of a map is taken to be the shortest of the last round trips; the longer ones waited for a step to end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking = False
        self._wanted = True
        self._next_ask = 0.0
        self._costs: deque[float] = deque(maxlen=_NUM_COSTS)
        self._answer: KVCacheMap | None = None

    @property
    def min_interval_s(self) -> float:
        """Least time between two questions."""
        return max(_MIN_INTERVAL_S, _COST_FACTOR * min(self._costs, default=0.0))

    @property
    def is_settled(self) -> bool:
        """Whether no map is wanted or under way."""
        with self._lock:
            return not self._wanted and not self._asking and self._answer is None

    def want(self) -> None:
        """Note that the last map is out of date."""
        self._wanted = True

    def take(self) -> KVCacheMap | None:
        """Return a map that has come since the last call."""
        with self._lock:
            answer, self._answer = self._answer, None
            return answer

    def ask_if_due(self, llm: ks.LLM) -> None:
        """Ask if a map is wanted, the last question is answered and was not just now."""
        now = time.monotonic()
        with self._lock:
            if not self._wanted or self._asking or now < self._next_ask:
                return
            self._asking, self._wanted = True, False
            self._next_ask = now + self.min_interval_s
        threading.Thread(
            target=self._ask, args=(llm,), name="kernelserve-block-map", daemon=True
        ).start()

    def _ask(self, llm: ks.LLM) -> None:
        answer = None
        began = time.monotonic()
        try:
            answer = llm.kv_cache_map()
            self._costs.append(time.monotonic() - began)
        except ks.KernelserveError as error:
            _LOGGER.debug("no map of the KV cache: %s", error)
        finally:
            with self._lock:
                self._asking = False
                self._answer = answer or self._answer
