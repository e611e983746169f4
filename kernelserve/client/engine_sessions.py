"""Which engines this process uses: one session for each slot name, shared by everybody who asks for the same."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from kernelserve.client.client_thread import ClientThread
from kernelserve.client.core_client import CoreClient
from kernelserve.client.engine_options import LaunchOptions
from kernelserve.client.engine_session import EngineSession
from kernelserve.client.wakeup import wait_for_future
from kernelserve.config import EngineConfig
from kernelserve.protocol import EngineStatus

__all__ = ["ENGINE_SESSIONS", "EngineSessions", "StatusCallback"]

StatusCallback = Callable[[EngineStatus], None]


class _Slot:
    """A session with what it was asked to be and how many claims there are on it."""

    def __init__(
        self, session: EngineSession, config: EngineConfig | None, launch: LaunchOptions
    ) -> None:
        self.session = session
        self.config = config
        self.launch = launch
        self.num_claims = 0


class EngineSessions:
    """Slot name -> session, and the client thread that they live in.

    Asking a slot for what it already runs gives the running session; asking for something else ends that one first
    and starts the new one when its memory is free again. A session ends with its last claim. All methods may be
    called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._thread: ClientThread | None = None
        self._slots: dict[str, _Slot] = {}
        os.register_at_fork(after_in_child=self._forget)

    def claim(
        self, config: EngineConfig, launch: LaunchOptions, on_status: StatusCallback | None = None
    ) -> EngineSession:
        """Return the session of the slot, started if need be. Each call must be answered by one `release`."""
        with self._lock:
            slot = self._slots.get(launch.name)
            alive = slot is not None and slot.session.error is None
            if slot is None or not alive or (slot.config, slot.launch) != (config, launch):
                reason = f"this engine was replaced by {config.model!r} in the slot {launch.name!r}"
                slot = self._start(
                    lambda: CoreClient.launch(config, launch, on_status=on_status),
                    config, launch, replaced=slot, reason=reason,
                )  # fmt: skip
            slot.num_claims += 1
            return slot.session

    def claim_running(self, name: str, launch: LaunchOptions) -> EngineSession:
        """Attach to the engine that any process of this user runs under `name`."""
        with self._lock:
            slot = self._slots.get(name)
            if slot is None or slot.session.error is not None:
                slot = self._start(
                    lambda: CoreClient.attach(name, heartbeat_timeout=launch.heartbeat_timeout),
                    None, launch, replaced=None, reason="",
                )  # fmt: skip
            slot.num_claims += 1
            return slot.session

    def settings_of(
        self, name: str, *, started: bool = False
    ) -> tuple[EngineConfig | None, LaunchOptions] | None:
        """Return what the living session of a slot was asked to be; None if there is none, or none that has started."""
        with self._lock:
            slot = self._slots.get(name)
            if slot is None or slot.num_claims == 0 or slot.session.error is not None:
                return None
            if started and not slot.session.started.done():
                return None
            return slot.config, slot.launch

    def release(self, session: EngineSession) -> bool:
        """Give one claim back. The last one ends the session; True if this was it."""
        with self._lock:
            for slot in self._slots.values():
                if slot.session is session:
                    slot.num_claims -= 1
                    if slot.num_claims == 0:
                        session.close("this engine was closed: nothing in this process uses it")
                        return True
        return False

    def close_all(self) -> None:
        """End every session, wait for them, and end the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
            sessions = [slot.session for slot in self._slots.values()]
            self._slots.clear()
        if thread is None:
            return
        for ended in [s.close("Python is shutting down") for s in sessions if not s.ended.done()]:
            ended.result()
        thread.stop()

    def _start(
        self,
        open_core: Callable[[], CoreClient],
        config: EngineConfig | None,
        launch: LaunchOptions,
        *,
        replaced: _Slot | None,
        reason: str,
    ) -> _Slot:
        if self._thread is None:
            self._thread = ClientThread()
            atexit.register(self.close_all)
        num_step_records = (config or EngineConfig()).num_step_records
        session = EngineSession(self._thread, open_core, num_step_records=num_step_records)
        self._thread.start(_run_after, replaced.session if replaced else None, reason, session)
        slot = self._slots[launch.name] = _Slot(session, config, launch)
        return slot

    def _forget(self) -> None:
        """In a forked child: the thread and the sockets are the parent's."""
        self._lock = threading.RLock()
        self._thread = None
        self._slots = {}
        atexit.unregister(self.close_all)


async def _run_after(previous: EngineSession | None, reason: str, session: EngineSession) -> None:
    """Run `session` once `previous` has ended and its memory is free."""
    if previous is not None:
        await wait_for_future(previous.close(reason))
    await session.run()


ENGINE_SESSIONS = EngineSessions()
"""The engines of this process: what makes re-running a cell find the engine that the cell started before."""
