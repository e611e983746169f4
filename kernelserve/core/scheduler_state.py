"""Which request is where, and what the runner has yet to hear about it."""

from __future__ import annotations

from collections.abc import Iterable

from kernelserve.config import SchedulerPolicy
from kernelserve.core.encoder_cache_manager import EncoderCacheManager
from kernelserve.core.kv_cache_manager import KVCacheManager
from kernelserve.core.request import Request, RequestStatus
from kernelserve.core.request_queue import create_request_queue, priority_key
from kernelserve.errors import InvalidRequestError
from kernelserve.protocol import EngineCoreEventType

__all__ = ["SchedulerState"]


class SchedulerState:
    """The tables of the scheduler, and the moves between them.

        add -> waiting -> running -> finished (in no table)
                  ^          |
                  `- preempt-'

    Invariants: a request of `requests` is in exactly one of waiting and running; exactly the
    running ones have blocks; only running ones refer to encoded images.
    """

    def __init__(
        self,
        kv_cache_manager: KVCacheManager,
        policy: SchedulerPolicy,
        encoder_cache: EncoderCacheManager,
    ) -> None:
        self.kv_cache_manager = kv_cache_manager
        self.encoder_cache = encoder_cache
        self.policy = policy
        self.requests: dict[str, Request] = {}
        self.waiting = create_request_queue(policy)
        self.running: list[Request] = []
        self.finished_req_ids: set[str] = set()
        """Ended since the last plan."""
        self.preempted_req_ids: set[str] = set()
        """Preempted since the last plan."""
        self.num_preemptions = 0
        self.now = 0.0
        """Time of the last step, for what happens between steps."""

    def add(self, request: Request) -> None:
        """Queue a new request. Raises InvalidRequestError if its id is alive."""
        if request.request_id in self.requests:
            raise InvalidRequestError(f"request id {request.request_id!r} is in use already")
        self.requests[request.request_id] = request
        self.waiting.add(request)

    def admit(self, request: Request, num_cached_tokens: int) -> None:
        """Move a waiting request, whose blocks are allocated, to the running ones."""
        self.waiting.remove(request)
        self.running.append(request)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_cached_tokens
        request.record_event(EngineCoreEventType.SCHEDULED, self.now)

    def preempt(self, request: Request) -> None:
        """Take the blocks of a running request and queue it again, to be computed from its start.

        Its output tokens stay: they are computed again like the prompt, and never emitted twice.
        """
        self.kv_cache_manager.free(request)
        self.encoder_cache.release_all(request.request_id)
        self.running.remove(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = RequestStatus.PREEMPTED
        request.record_event(EngineCoreEventType.PREEMPTED, self.now)
        self.waiting.put_back(request)
        self.preempted_req_ids.add(request.request_id)
        self.num_preemptions += 1

    def finish(self, requests: Iterable[Request]) -> None:
        """Forget live requests, whose status says how they finished."""
        any_running = False
        for request in requests:
            assert request.is_finished
            req_id = request.request_id
            if req_id in self.kv_cache_manager.tables:
                any_running = True
                failed = request.status is RequestStatus.FINISHED_ERROR
                self.kv_cache_manager.free(request, forget=failed)
                self.encoder_cache.release_all(req_id)
            else:
                self.waiting.remove(request)
            del self.requests[req_id]
            self.finished_req_ids.add(req_id)
        if any_running:
            self.running = [r for r in self.running if r.status is RequestStatus.RUNNING]

    def choose_victim(self) -> Request:
        """Return the running request that is to be preempted first."""
        if self.policy == "priority":
            return max(self.running, key=priority_key)
        return self.running[-1]

    def set_policy(self, policy: SchedulerPolicy) -> None:
        """Sort the waiting requests anew for another policy: `fcfs` serves them by arrival."""
        queue = create_request_queue(policy)
        for request in sorted(self.waiting, key=lambda request: request.arrival_time):
            queue.add(request)
        self.policy = policy
        self.waiting = queue

    def take_changes(self) -> tuple[set[str], set[str]]:
        """Return the ids finished and those preempted since the last plan, and forget them."""
        changes = (self.finished_req_ids, self.preempted_req_ids)
        self.finished_req_ids, self.preempted_req_ids = set(), set()
        return changes
