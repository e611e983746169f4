"""AsyncLLM: streams from the engine under asyncio or trio."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Unpack

import anyio
import msgspec

from kernelserve.client.chat_images import chat_chars
from kernelserve.client.chat_options import ChatMessage, ChatOptions
from kernelserve.client.engine_handle import EngineHandle
from kernelserve.client.engine_options import EngineOptions, LaunchOptions, parse_engine_options
from kernelserve.client.engine_session import EngineSession
from kernelserve.client.engine_sessions import StatusCallback
from kernelserve.client.mailbox import Mailbox
from kernelserve.client.output_stream import OutputStream
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.client.prompt import Prompt, prompt_chars
from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.client.wakeup import wait_for_future
from kernelserve.config import DEFAULT_MODEL, SchedulerPolicy
from kernelserve.errors import EngineDeadError
from kernelserve.protocol import EngineReady, KVCacheMap, SchedulerStats, StepRecord
from kernelserve.sampling_params import RequestOutputKind, SamplingParams

__all__ = ["AsyncLLM"]


class AsyncLLM:
    """An engine to stream from. Nothing is started before it is first used, and no event loop is needed to make one.

    The work happens in the client thread, so one AsyncLLM may be used from several event loops and cells at once.
    Leaving `async with` lets go of the engine; it ends when nobody else in this process uses it.
    Raises InvalidConfigError for bad options; the first use raises an EngineStartError if the engine does not start.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        on_status: StatusCallback | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        config, launch = parse_engine_options(model, options)
        self._handle = EngineHandle(config, launch, on_status=on_status)
        self._handle.bind_to(self)

    @classmethod
    def attach(cls, name: str, *, heartbeat_timeout: float = 30.0) -> AsyncLLM:
        """Use the engine that another process runs under `name`: see `list_engines`."""
        self = cls.__new__(cls)
        launch = LaunchOptions(name=name, heartbeat_timeout=heartbeat_timeout)
        self._handle = EngineHandle(None, launch, attach=True)
        self._handle.bind_to(self)
        return self

    async def start(self) -> EngineReady:
        """Start the engine if it is not running. Returns what it says of itself."""
        return (await self._session()).ready

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> OutputStream:
        """Stream the answer to one prompt: text, token ids, or a dict with `prompt_token_ids`.

        The first step of the iteration raises InvalidRequestError if the request cannot be served.
        """
        details = {"request_id": request_id, "priority": priority, "cache_salt": cache_salt}
        handle = self._handle

        def prepare(session: EngineSession) -> tuple[ProcessedRequest, Mailbox]:
            return _prepare(handle, session, prompt, sampling_params, details)

        return OutputStream(self, handle.open, prepare, prompt_chars=prompt_chars(prompt))

    def chat(
        self,
        messages: Sequence[ChatMessage],
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        **template_options: Unpack[ChatOptions],
    ) -> OutputStream:
        """Stream the answer to a conversation. `template_options` go to the chat template."""
        details = {"request_id": request_id, "priority": priority, "cache_salt": cache_salt}
        handle = self._handle

        def prepare(session: EngineSession) -> tuple[ProcessedRequest, Mailbox]:
            prompt = handle.render_chat(session, messages, template_options)
            return _prepare(handle, session, prompt, sampling_params, details)

        chars = chat_chars(messages)
        return OutputStream(self, handle.open, prepare, prompt_chars=chars)

    def abort(self, request_id: str | Sequence[str]) -> Posted:
        """End requests by id; their streams give a last output with the reason `abort`. May be awaited."""
        ids = [request_id] if isinstance(request_id, str) else list(request_id)
        self._handle.open().abort(ids)
        return Posted()

    async def stats(self) -> SchedulerStats:
        """Ask the engine for its gauges and counters, through its busy loop."""
        return msgspec.convert(await self._call("stats"), SchedulerStats)

    async def step_records(self, since_step: int = 0) -> list[StepRecord]:
        """What the scheduler decided in each of the last steps, oldest first."""
        return msgspec.convert(await self._call("step_records", since_step), list[StepRecord])

    async def kv_cache_map(self) -> KVCacheMap:
        """Ask the engine who holds which block of its KV cache, through its busy loop."""
        return msgspec.convert(await self._call("kv_cache_map"), KVCacheMap)

    async def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget all cached prefixes. False if requests hold blocks; with `reset_running_requests` they recompute."""
        return bool(await self._call("reset_prefix_cache", reset_running_requests))

    async def reset_encoder_cache(self) -> bool:
        """Forget the encoded images that no request needs, and free their memory. False if some are needed."""
        return bool(await self._call("reset_encoder_cache"))

    async def configure(
        self,
        *,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        long_prefill_token_threshold: int | None = None,
        policy: SchedulerPolicy | None = None,
    ) -> None:
        """Change limits of the scheduler while it runs; None keeps one. Raises EngineRequestError for a bad value."""
        limits = {
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "long_prefill_token_threshold": long_prefill_token_threshold,
            "policy": policy,
        }
        await self._call("configure", limits)

    async def check_health(self) -> None:
        """Return after a round trip through the engine's busy loop. Raises EngineDeadError if there is none."""
        await self._call("ping")

    async def get_tokenizer(self) -> ClientTokenizer | None:
        """Return the tokenizer, None for an engine that runs without one."""
        return (await self._session()).tokenizer

    async def restart(self) -> EngineReady:
        """End the engine, if it still lives, and start it again with the same settings."""
        session = self._handle.restart()
        await wait_for_future(session.when_started())
        return session.ready

    async def aclose(self) -> None:
        """Close for everybody in this process. Requests that still run are failed.

        An engine of lifetime `kernel` ends; one that lingers or is detached goes on.
        """
        if (ended := self._handle.close()) is not None:
            with anyio.CancelScope(shield=True):
                await wait_for_future(ended)

    async def stop(self) -> None:
        """End the engine itself, for every process that uses it, whatever its lifetime."""
        with contextlib.suppress(EngineDeadError):  # it may be gone before its answer is here
            await self._call("shutdown")
        await self.aclose()

    async def __aenter__(self) -> AsyncLLM:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if (ended := self._handle.release()) is not None:
            with anyio.CancelScope(shield=True):
                await wait_for_future(ended)

    async def _session(self) -> EngineSession:
        session = self._handle.open()
        await wait_for_future(session.when_started())
        return session

    async def _call(self, method: str, *args: Any) -> Any:
        session = await self._session()
        return await wait_for_future(session.call(method, *args))


class Posted:
    """The answer of a call that only posts: `await` it or leave it."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


def _prepare(
    handle: EngineHandle,
    session: EngineSession,
    prompt: Prompt,
    params: SamplingParams | None,
    details: dict[str, Any],
) -> tuple[ProcessedRequest, Mailbox]:
    processed = handle.process(session, prompt, params, **details)
    is_delta = processed.params.output_kind is RequestOutputKind.DELTA
    return processed, Mailbox(delta=is_delta, bells=session.bells)
