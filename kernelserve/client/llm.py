"""LLM: the synchronous face of the engine, for cells and scripts."""

from __future__ import annotations

import contextlib
import queue
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Unpack

import msgspec

from kernelserve.client.batch_inputs import split_conversations, split_prompts, spread
from kernelserve.client.batch_run import BatchRun
from kernelserve.client.chat_options import ChatMessage, ChatOptions
from kernelserve.client.engine_handle import EngineHandle
from kernelserve.client.engine_options import EngineOptions, LaunchOptions, parse_engine_options
from kernelserve.client.engine_session import EngineSession
from kernelserve.client.engine_sessions import ENGINE_SESSIONS, StatusCallback
from kernelserve.client.mailbox import Mailbox
from kernelserve.client.pending_request import PendingRequest
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.client.prompt import Prompt
from kernelserve.client.status_line import StatusLine
from kernelserve.client.tokenizer import ClientTokenizer
from kernelserve.config import DEFAULT_MODEL, SchedulerPolicy
from kernelserve.errors import (
    EngineDeadError,
    EngineRequestError,
    InvalidRequestError,
    KernelserveError,
)
from kernelserve.outputs import RequestOutput
from kernelserve.protocol import EngineReady, EngineStatus, KVCacheMap, SchedulerStats, StepRecord
from kernelserve.sampling_params import RequestOutputKind, SamplingParams

__all__ = ["LLM"]


class LLM:
    """An engine that answers when called. Works in a cell, a script and a thread, with or without a running event loop.

    The constructor starts the engine process, or returns at once when the same one already runs in this slot (the
    cell was run again); another model replaces the one in the slot after its memory is free. Raises
    InvalidConfigError for bad options and an EngineStartError if the engine does not start.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        show_progress: bool = True,
        on_status: StatusCallback | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        config, launch = parse_engine_options(model, options)
        statuses: queue.SimpleQueue[EngineStatus | None] = queue.SimpleQueue()
        self._hold(EngineHandle(config, launch, on_status=statuses.put))
        self._wait_for_start(statuses, StatusLine(sys.stdout, enabled=show_progress), on_status)

    @classmethod
    def attach(cls, name: str, *, heartbeat_timeout: float = 30.0) -> LLM:
        """Use the engine that another process runs under `name`: see `list_engines`."""
        self = cls.__new__(cls)
        launch = LaunchOptions(name=name, heartbeat_timeout=heartbeat_timeout)
        self._hold(EngineHandle(None, launch, attach=True))
        self._session()
        return self

    @classmethod
    def running(cls, name: str = "default", *, wait: bool = True) -> LLM | None:
        """Return an LLM for the engine that this process already uses in a slot; None if it uses none.

        One that is still starting is waited for, or, without `wait`, does not count.
        """
        settings = ENGINE_SESSIONS.settings_of(name, started=not wait)
        if settings is None:
            return None
        self = cls.__new__(cls)
        config, launch = settings
        self._hold(EngineHandle(config, launch, attach=config is None))
        self._session()
        return self

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: int | Sequence[int] = 0,
        cache_salt: str | None = None,
    ) -> list[RequestOutput]:
        """Answer one prompt or many, together; the outputs are in the order of the prompts.

        A prompt with images is `{"prompt": text, "multi_modal_data": {"image": image or images}}`, where the text has
        the model's placeholder where each image belongs; `chat` puts it there itself.

        Of a list, what cannot be served concerns nobody else: the others are answered, then a BatchError is raised,
        which has their outputs and the errors. One prompt alone raises its own InvalidRequestError or
        EngineRequestError. A KeyboardInterrupt aborts all. Whatever is raised, `partial_outputs` has what there is.
        """
        batch, is_list = split_prompts(prompts)
        session = self._session()
        run = BatchRun(session, use_tqdm=use_tqdm, is_list=is_list)
        ready_made = [partial(_same, prompt) for prompt in batch]
        return self._answer(session, run, ready_made, sampling_params, priority, cache_salt)

    def chat(
        self,
        messages: Sequence[ChatMessage] | Sequence[Sequence[ChatMessage]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        cache_salt: str | None = None,
        **template_options: Unpack[ChatOptions],
    ) -> list[RequestOutput]:
        """Answer one conversation or a list of them. `template_options` go to the chat template.

        The content of a message may be a list of parts: `{"type": "text", "text": ...}`, `{"type": "image", "image":
        ...}` with anything that shows a picture, `{"type": "image_url", "image_url": {"url": ...}}`. Raises what
        `generate` does.
        """
        conversations, is_list = split_conversations(messages)
        session = self._session()
        run = BatchRun(session, use_tqdm=use_tqdm, is_list=is_list)
        render = self._handle.render_chat
        prompts = [partial(render, session, one, template_options) for one in conversations]
        return self._answer(session, run, prompts, sampling_params, 0, cache_salt)

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Iterator[str]:
        """Yield the text of one answer piece by piece. Leaving the loop aborts the request."""
        session = self._session()
        params = self._handle.choose_params(session, sampling_params, RequestOutputKind.DELTA)
        if params.n > 1:
            raise InvalidRequestError(f"n={params.n}: stream() gives one answer, use generate()")
        processed = self._handle.process(session, prompt, params)
        return _stream_text(session, processed)

    def submit(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> PendingRequest:
        """Send one prompt and return at once; what comes can be taken from the PendingRequest."""
        session = self._session()
        params = self._handle.choose_params(session, sampling_params, RequestOutputKind.DELTA)
        processed = self._handle.process(
            session,
            prompt,
            params,
            request_id=request_id,
            priority=priority,
            cache_salt=cache_salt,
        )
        pending = PendingRequest(session, processed)
        pending.start()
        return pending

    def render_chat(
        self, messages: Sequence[ChatMessage], **template_options: Unpack[ChatOptions]
    ) -> Prompt:
        """Return the prompt that `chat` sends for a conversation."""
        return self._handle.render_chat(self._session(), messages, template_options)

    def abort(self, request_id: str | Sequence[str]) -> None:
        """End requests by id, from another thread."""
        ids = [request_id] if isinstance(request_id, str) else list(request_id)
        self._handle.open().abort(ids)

    def stats(self) -> SchedulerStats:
        """Ask the engine for its gauges and counters, through its busy loop."""
        return msgspec.convert(self._call("stats"), SchedulerStats)

    def step_records(self, since_step: int = 0) -> list[StepRecord]:
        """What the scheduler decided in each of the last steps, oldest first."""
        return msgspec.convert(self._call("step_records", since_step), list[StepRecord])

    @property
    def latest_stats(self) -> SchedulerStats:
        """The stats that came with the last outputs, without asking. All zero once the engine has died."""
        return self._handle.last_session.latest_stats

    def recent_step_records(self, since_step: int = 0) -> list[StepRecord]:
        """The step records that have come since this process uses the engine, without asking; oldest first.

        They are there also after the engine has died.
        """
        return self._handle.last_session.recent_step_records(since_step)

    def kv_cache_map(self) -> KVCacheMap:
        """Ask the engine who holds which block of its KV cache, through its busy loop."""
        return msgspec.convert(self._call("kv_cache_map"), KVCacheMap)

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget all cached prefixes. False if requests hold blocks; with `reset_running_requests` they recompute."""
        return bool(self._call("reset_prefix_cache", reset_running_requests))

    def reset_encoder_cache(self) -> bool:
        """Forget the encoded images that no request needs, and free their memory. False if some are needed."""
        return bool(self._call("reset_encoder_cache"))

    def configure(
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
        self._call("configure", limits)

    def check_health(self) -> None:
        """Return after a round trip through the engine's busy loop. Raises EngineDeadError if there is none."""
        self._call("ping")

    def get_tokenizer(self) -> ClientTokenizer | None:
        """Return the tokenizer, None for an engine that runs without one."""
        return self._session().tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """Return what the model's own generation config recommends."""
        return self._handle.default_sampling_params(self._session())

    @property
    def engine(self) -> EngineReady:
        """What the engine says of itself: model, limits, memory, where its log is."""
        return self._session().ready

    def restart(self) -> None:
        """End the engine, if it still lives, and start it again with the same settings."""
        self._handle.restart().started.result()

    def close(self) -> None:
        """Close for everybody in this process, and wait until it is done.

        An engine of lifetime `kernel` ends and its memory is free; one that lingers or is detached goes on.
        """
        if (ended := self._handle.close()) is not None:
            ended.result()

    def stop(self) -> None:
        """End the engine itself, for every process that uses it, whatever its lifetime."""
        with contextlib.suppress(EngineDeadError):  # it may be gone before its answer is here
            self._call("shutdown")
        self.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if (ended := self._handle.release()) is not None:
            ended.result()

    def __repr__(self) -> str:
        config = self._handle.config
        return f"LLM({config.model!r})" if config else f"LLM.attach({self._handle.launch.name!r})"

    def _hold(self, handle: EngineHandle) -> None:
        self._handle = handle
        handle.bind_to(self)
        self.partial_outputs: list[RequestOutput] = []
        """What the last `generate` or `chat` had produced if it raised; what was interrupted has the reason `abort`."""

    def _session(self) -> EngineSession:
        session = self._handle.open()
        session.started.result()
        return session

    def _call(self, method: str, *args: Any) -> Any:
        return self._session().call(method, *args).result()

    def _wait_for_start(
        self,
        statuses: queue.SimpleQueue[EngineStatus | None],
        line: StatusLine,
        on_status: StatusCallback | None,
    ) -> None:
        """Show the phases of the start in the cell that asked for it; an interrupt ends the start."""
        session = self._handle.open()
        session.started.add_done_callback(lambda _: statuses.put(None))
        show = on_status or line.show
        try:
            while (status := statuses.get()) is not None:
                show(status)
            ready = session.started.result()
        except BaseException:
            line.clear()
            self.close()
            raise
        line.finish(ready)

    def _answer(
        self,
        session: EngineSession,
        run: BatchRun,
        prompts: Sequence[Callable[[], Prompt]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: int | Sequence[int],
        cache_salt: str | None,
    ) -> list[RequestOutput]:
        """Make the prompts one by one, send those that can be sent, and wait for their answers."""
        self.partial_outputs = []
        params = [
            self._handle.choose_params(session, one, RequestOutputKind.FINAL_ONLY)
            for one in spread(sampling_params, len(prompts), "sampling_params")
        ]
        ranks = spread(priority, len(prompts), "priority")
        for make_prompt, one, rank in zip(prompts, params, ranks, strict=True):
            try:
                run.add(
                    self._handle.process(
                        session, make_prompt(), one, priority=rank, cache_salt=cache_salt
                    )
                )
            except (InvalidRequestError, EngineRequestError) as error:
                run.refuse(error)
        try:
            return run.complete()
        except KeyboardInterrupt:
            self.partial_outputs = run.abort()
            raise
        except KernelserveError:
            self.partial_outputs = run.outputs
            raise


def _same(prompt: Prompt) -> Prompt:
    return prompt


def _stream_text(session: EngineSession, processed: ProcessedRequest) -> Iterator[str]:
    mailbox = Mailbox(delta=True)
    session.submit([(processed, mailbox)])
    finished = False
    try:
        while not finished:
            output = mailbox.get_blocking()
            finished = output.finished
            if output.text:
                yield output.text
    finally:
        if not finished:
            session.abort([processed.internal_id])
