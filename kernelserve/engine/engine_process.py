"""Wires an engine core to its threads, sockets and signals, and loads the model."""

from __future__ import annotations

import gc
import logging
import shutil
import signal
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import zmq

from kernelserve.config import EngineConfig
from kernelserve.engine.busy_loop import BusyLoop
from kernelserve.engine.client_table import ClientTable
from kernelserve.engine.engine_core import EngineCore
from kernelserve.engine.input_thread import InputThread
from kernelserve.engine.lifeline import Lifeline
from kernelserve.engine.lifetime_policy import LifetimePolicy
from kernelserve.engine.output_thread import OutputThread
from kernelserve.engine.reception import Reception
from kernelserve.engine.shutdown_switch import ShutdownRequest, ShutdownSwitch
from kernelserve.engine.start_failure import describe_start_failure
from kernelserve.multimodal.mirrored_cache import ImageReceiver
from kernelserve.multimodal.shared_images import SharedImageReceiver
from kernelserve.protocol import EngineDead, LaunchSpec

__all__ = ["EngineProcess"]

_LOGGER = logging.getLogger(__name__)
_TICK_S = 0.5
_DRAIN_S = 2.0
_TELL_S = 1.5
"""How long an engine that could not start waits for the client that is to hear of it."""
_FLUSH_S = 0.05


class EngineProcess:
    """The engine of this process, from its LaunchSpec to its exit code.

        input thread   ROUTER -> items, eager_aborts   also: SIGTERM, liveness of clients, lifetime
        main thread    items -> EngineCore -> output   imports and loads, then the busy loop
        output thread  messages -> one PUSH a client
        lifeline       the owner is gone -> switch

    The sockets are up before anything heavy is imported, so that clients hear of the progress.
    """

    def __init__(self, spec: LaunchSpec) -> None:
        self._spec = spec
        self._run_dir = Path(spec.run_dir)
        self._socket_path = self._run_dir / "in.sock"
        self._clock = time.monotonic
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._clients = ClientTable()
        self._stuck_clients: deque[int] = deque()
        self._output = OutputThread(
            self._context, on_client_stuck=self._stuck_clients.append, on_failure=self._fail
        )
        self._reception = Reception(self._output, self._clock)
        self._input = InputThread(
            self._context,
            self._socket_path,
            token=spec.token,
            clients=self._clients,
            output=self._output,
            reception=self._reception,
            clock=self._clock,
            block_size=spec.config.block_size,
            make_image_receiver=_image_receivers(spec.config),
            on_shutdown=lambda pid: self._end(f"process {pid} asked for it"),
            on_failure=self._fail,
        )
        self._switch = ShutdownSwitch(
            wake=lambda: self._input.items.put(None),
            last_words=self._say_last_words,
            clean_up=self._remove_run_dir,
        )
        self._policy = LifetimePolicy(
            spec.lifetime,
            linger_s=spec.linger_s,
            idle_unload_s=spec.idle_unload_s,
            now=self._clock(),
        )
        self._loop: BusyLoop | None = None

    def run(self, lifeline_fd: int) -> int:
        """Serve until the end; return the exit code. The run directory is gone then."""
        try:
            self._install_signal_handlers()
            if self._spec.lifetime == "kernel":
                Lifeline(lifeline_fd, on_lost=self._end).start()
            self._output.start()
            self._input.start(tick=self._tick, tick_s=_TICK_S)
            return self._load_and_serve()
        finally:
            self._output.stop(timeout=1.0)
            self._context.term()
            self._remove_run_dir()

    def _load_and_serve(self) -> int:
        core = self._load()
        if core is None:
            return 1
        try:
            loop = self._loop = BusyLoop(
                core, self._input.items, self._output, self._clients, lambda: self._switch.request
            )
            request = loop.run()
        except Exception as error:
            _LOGGER.exception("The engine failed")
            reason = f"the engine failed: {type(error).__name__}: {error}"
            self._output.broadcast(EngineDead(reason, traceback.format_exc()))
            return 1
        self._output.broadcast(EngineDead(request.reason, code=request.code))
        core.executor.shutdown()
        return request.exit_code

    def _load(self) -> EngineCore | None:
        began = self._clock()
        # Loading makes a million lasting objects, which collections in between would go through again and again.
        gc.disable()
        try:
            # Pulls in the executor: everything before this line must be light.
            from kernelserve.engine.engine_loader import describe_engine, load_engine

            core = load_engine(
                self._spec.config,
                fake_model=self._spec.fake_model,
                progress=self._reception.report_progress,
                clock=self._clock,
                eager_aborts=self._input.eager_aborts,
            )
            ready = describe_engine(self._spec, core, log_path=self._spec.log_path)
        except Exception as error:
            _LOGGER.exception("The engine could not start")
            self._reception.conclude(describe_start_failure(error, self._reception.phase))
            self._reception.wait_until_told(_TELL_S)
            return None
        gc.freeze()
        gc.enable()
        self._reception.conclude(ready)
        _LOGGER.info("Ready after %.2f s", self._clock() - began)
        return core

    def _install_signal_handlers(self) -> None:
        """Ignore the notebook's Stop. SIGTERM only writes a byte to a socket of the input thread."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _do_nothing)
        self._signals = (reader, writer)
        self._input.watch(reader.fileno(), self._take_signals)

    def _take_signals(self) -> None:
        if signal.SIGTERM in self._signals[0].recv(64):
            self._end("the engine was ended by SIGTERM", drain_s=_DRAIN_S)

    def _tick(self) -> None:
        """Twice a second in the input thread."""
        self._reception.repeat_status()
        while self._stuck_clients:
            self._input.drop_client(self._stuck_clients.popleft())
        for client in self._clients.find_gone():
            _LOGGER.info("Client %d is gone without a word: pid %d", client.index, client.pid)
            self._input.drop_client(client.index)
        end = self._policy.reason_to_end(
            self._clock(),
            num_clients=len(self._clients.indices),
            idle_since=self._loop.idle_since if self._loop else None,
        )
        if end is not None:
            self._end(end[1], code=end[0])
        elif not self._clients.indices and not self._socket_path.exists():
            self._end("its run directory was removed: nobody can reach the engine any more")

    def _end(self, reason: str, *, drain_s: float = 0.0, code: str = "") -> None:
        if self._reception.is_loading:
            drain_s = 0.0
        self._switch.throw(ShutdownRequest(reason, drain_s, code=code))

    def _fail(self, error: BaseException) -> None:
        """A thread has failed."""
        _LOGGER.error("A thread of the engine failed", exc_info=error)
        self._switch.throw(ShutdownRequest(f"the engine failed: {error!r}", exit_code=1))

    def _say_last_words(self, request: ShutdownRequest) -> None:
        self._output.broadcast(EngineDead(request.reason, code=request.code))
        self._output.stop(timeout=0.5)
        time.sleep(_FLUSH_S)

    def _remove_run_dir(self) -> None:
        shutil.rmtree(self._run_dir, ignore_errors=True)


def _image_receivers(
    config: EngineConfig,
) -> Callable[[int], ImageReceiver | SharedImageReceiver] | None:
    """What makes the engine's side of the cache of processed images, for a client with this pid."""
    if config.mm_processor_cache_type == "shm":
        return SharedImageReceiver
    size = config.mirrored_image_bytes
    return (lambda _pid: ImageReceiver(size)) if size else None


def _do_nothing(_signum: int, _frame: FrameType | None) -> None:
    """Stand in for the default action, so that the wakeup fd is written."""
