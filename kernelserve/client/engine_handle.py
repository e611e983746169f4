"""A caller's claim on an engine: what LLM and AsyncLLM have in common."""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from concurrent.futures import Future

from kernelserve.client.chat_images import has_images, take_images
from kernelserve.client.chat_options import ChatMessage, ChatOptions
from kernelserve.client.chat_prompt import ChatPrompt
from kernelserve.client.engine_options import LaunchOptions
from kernelserve.client.engine_session import EngineSession
from kernelserve.client.engine_sessions import ENGINE_SESSIONS, StatusCallback
from kernelserve.client.processed_request import ProcessedRequest
from kernelserve.client.prompt import Prompt
from kernelserve.config import EngineConfig
from kernelserve.errors import (
    EngineDeadError,
    EngineRestartedError,
    EngineUnloadedError,
    InvalidRequestError,
)
from kernelserve.sampling_params import RequestOutputKind, SamplingParams

__all__ = ["EngineHandle"]

_COMES_BACK = (EngineUnloadedError, EngineRestartedError)


class EngineHandle:
    """Opens the engine on first use and lets go of it once. Thread-safe.

    An engine that unloaded itself because it was idle is started again by the next use, and one that somebody
    restarted is found again; one that died is not: what it held is lost, and the caller must hear of it.
    """

    def __init__(
        self,
        config: EngineConfig | None,
        launch: LaunchOptions,
        *,
        attach: bool = False,
        on_status: StatusCallback | None = None,
    ) -> None:
        self.config = config
        self.launch = launch
        self._attach = attach
        self._on_status = on_status
        self._lock = threading.Lock()
        self._session: EngineSession | None = None
        self._closed: str | None = None

    def bind_to(self, owner: object) -> None:
        """Let go of the engine when `owner` is garbage collected."""
        weakref.finalize(owner, self.release).atexit = False

    def open(self) -> EngineSession:
        """Return the session, which may still be starting. Raises EngineDeadError if it is closed or dead."""
        with self._lock:
            if self._closed is not None:
                raise EngineDeadError(self._closed)
            session = self._session
            if session is not None and isinstance(session.error, _COMES_BACK):
                ENGINE_SESSIONS.release(session)
                session = None
            if session is None:
                session = self._session = self._claim()
            elif session.error is not None:
                raise session.error
            return session

    @property
    def last_session(self) -> EngineSession:
        """The session that was opened last, also if it has ended since; opened if there was none."""
        return self._session or self.open()

    def restart(self) -> EngineSession:
        """End the engine if it still lives and start it again with the same settings."""
        with self._lock:
            old, self._session = self._session, None
            self._closed = None
        if old is not None:
            old.close_with(EngineRestartedError("the engine was restarted")).result()
            ENGINE_SESSIONS.release(old)
        return self.open()

    def release(self) -> Future[None] | None:
        """Give up the claim. If it was the last one the engine ends: the future tells when."""
        with self._lock:
            session, self._session = self._session, None
            self._closed = self._closed or "this object was closed: make a new one"
        if session is None or not ENGINE_SESSIONS.release(session):
            return None
        return session.ended

    def close(self) -> Future[None] | None:
        """End the engine's session for everybody in this process who uses it. The future tells when."""
        with self._lock:
            session = self._session
            self._closed = "this engine was closed: make a new one"
        if session is None:
            return None
        ended = session.close(self._closed)
        self.release()
        return ended

    def process(
        self,
        session: EngineSession,
        prompt: Prompt,
        params: SamplingParams | None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> ProcessedRequest:
        """Check and tokenize one prompt for a started session. Raises InvalidRequestError."""
        params = self.choose_params(session, params)
        return session.input_processor.process(
            prompt,
            params,
            request_id=request_id or uuid.uuid4().hex[:16],
            priority=priority,
            cache_salt=cache_salt,
            now=time.time(),
        )

    def choose_params(
        self,
        session: EngineSession,
        params: SamplingParams | None,
        output_kind: RequestOutputKind | None = None,
    ) -> SamplingParams:
        """Return `params` or the model's own, as a copy if another kind of output is wanted."""
        params = params or self.default_sampling_params(session)
        if not isinstance(params, SamplingParams):
            raise InvalidRequestError(f"sampling_params={params!r} must be SamplingParams")
        return params if output_kind is None else params.clone(output_kind=output_kind)

    def default_sampling_params(self, session: EngineSession) -> SamplingParams:
        """What the model's own generation config recommends."""
        known = {
            key: value
            for key, value in session.ready.generation_defaults.items()
            if key in SamplingParams.__struct_fields__
        }
        return SamplingParams(**known)

    def render_chat(
        self, session: EngineSession, messages: Sequence[ChatMessage], options: ChatOptions
    ) -> Prompt:
        """Apply the chat template of a started session. Raises InvalidRequestError.

        For a model that takes images, no text of the messages becomes a special token, whatever the options say.
        """
        tokenizer = session.tokenizer
        if tokenizer is None:
            raise InvalidRequestError("this engine runs without a tokenizer: send token ids")
        if session.ready.image_token_id is None:
            if has_images(messages):
                raise InvalidRequestError(
                    f"the chat has images, but the model {session.ready.config.model!r} takes none"
                )
            return tokenizer.apply_chat_template(messages, **options)
        chat, images = take_images(messages)
        plain = {key: value for key, value in options.items() if key != "split_special_tokens"}
        rewrite = tokenizer.mark_all_literal
        text = tokenizer.render_chat_template(chat, **plain, rewrite=rewrite)  # type: ignore[arg-type]
        return ChatPrompt(text, tuple(images))

    def _claim(self) -> EngineSession:
        if self._attach:
            return ENGINE_SESSIONS.claim_running(self.launch.name, self.launch)
        assert self.config is not None
        return ENGINE_SESSIONS.claim(self.config, self.launch, self._on_status)
