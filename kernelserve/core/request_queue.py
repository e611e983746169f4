"""The waiting requests, in the order in which they are to be admitted.

Nothing here is linear in the number of waiting requests but iteration: adding, looking at the head
and taking a request out, from anywhere, is O(1) under `fcfs` and O(log n) under `priority`.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

from kernelserve.config import SchedulerPolicy
from kernelserve.core.request import Request
from kernelserve.errors import InvalidConfigError

__all__ = [
    "FCFSRequestQueue",
    "PriorityRequestQueue",
    "RequestQueue",
    "create_request_queue",
    "priority_key",
]

_Key = tuple[int, float, str]
_Entry = tuple[_Key, int, Request]


class RequestQueue(Protocol):
    """What the scheduler asks of a queue."""

    def add(self, request: Request) -> None:
        """Queue a new request."""

    def put_back(self, request: Request) -> None:
        """Queue a preempted request, as early as the policy allows."""

    def peek(self) -> Request | None:
        """Return the request whose turn it is, or None."""

    def remove(self, request: Request) -> None:
        """Take out a queued request."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]:
        """Iterate in the order of admission."""


def create_request_queue(policy: SchedulerPolicy) -> RequestQueue:
    """Return an empty queue for `policy`. Raises InvalidConfigError if there is no such policy."""
    queues: dict[str, Callable[[], RequestQueue]] = {
        "fcfs": FCFSRequestQueue,
        "priority": PriorityRequestQueue,
    }
    if policy not in queues:
        raise InvalidConfigError(f"policy={policy!r} is not one of {', '.join(queues)}")
    return queues[policy]()


def priority_key(request: Request) -> _Key:
    """Sort key of the `priority` policy; the least goes first, the greatest is preempted first."""
    return (request.priority, request.arrival_time, request.request_id)


class FCFSRequestQueue:
    """First come, first served; preempted requests go to the front."""

    def __init__(self) -> None:
        # A deque would need O(n) to abort one of 10,000 waiting requests.
        self._requests: OrderedDict[str, Request] = OrderedDict()

    def add(self, request: Request) -> None:
        """Queue at the end."""
        self._requests[request.request_id] = request

    def put_back(self, request: Request) -> None:
        """Queue at the front."""
        self._requests[request.request_id] = request
        self._requests.move_to_end(request.request_id, last=False)

    def peek(self) -> Request | None:
        """Return the first request, or None."""
        for request in self._requests.values():
            return request
        return None

    def remove(self, request: Request) -> None:
        """Take out a queued request."""
        del self._requests[request.request_id]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())


class PriorityRequestQueue:
    """A heap by (priority, arrival time, id). A preempted request keeps its place.

    Removed entries stay in the heap until they come up, or until they are the majority.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: dict[str, _Entry] = {}
        self._serial = count()

    def add(self, request: Request) -> None:
        """Queue by priority."""
        # The serial number keeps two entries of the same id (one removed) from comparing requests.
        entry = (priority_key(request), next(self._serial), request)
        self._entries[request.request_id] = entry
        heapq.heappush(self._heap, entry)

    def put_back(self, request: Request) -> None:
        """Queue by priority."""
        self.add(request)

    def peek(self) -> Request | None:
        """Return the most urgent request, or None."""
        heap = self._heap
        while heap and not self._is_live(heap[0]):
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def remove(self, request: Request) -> None:
        """Take out a queued request."""
        del self._entries[request.request_id]
        if len(self._heap) > 2 * len(self._entries) + 8:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def _is_live(self, entry: _Entry) -> bool:
        return self._entries.get(entry[2].request_id) is entry

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        return (entry[2] for entry in sorted(self._entries.values(), key=lambda entry: entry[:2]))
