"""What one %%generate does: from its line and body to a running request with a view."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from functools import partial
from typing import Any

import kernelserve as ks
from kernelserve.errors import InvalidRequestError
from kernelserve_widgets.chat_book import Chat, ChatTurn, user_message
from kernelserve_widgets.generation_run import GenerationRun
from kernelserve_widgets.magics.continuation import continuation_cell
from kernelserve_widgets.magics.generate_options import generate_parser, sampling_params
from kernelserve_widgets.magics.image_names import ImageNames
from kernelserve_widgets.notebook_session import NotebookSession
from kernelserve_widgets.prompt_template import render_prompt
from kernelserve_widgets.result import Result
from kernelserve_widgets.shell import cell_id, choose_ui
from kernelserve_widgets.views.choose_view import choose_view
from kernelserve_widgets.views.shown_images import NamedImage, show_images

__all__ = ["GenerateCommand"]


class GenerateCommand:
    """One execution of a %%generate cell.

    The constructor reads the line and raises InvalidRequestError before anything is sent; `receive_images` waits until
    they are all there; `begin` sends the request and shows its view; then either the cell waits for `run`, or it is
    left to the background.
    """

    def __init__(
        self, session: NotebookSession, shell: Any, defaults: dict[str, Any], line: str, cell: str
    ) -> None:
        self._session = session
        self._shell = shell
        self._defaults = defaults
        line = line.strip()
        self.is_quiet = line.endswith(";")
        """Whether the line ends with a semicolon: no Out[n]."""
        self.line = line.rstrip("; ")
        self.options = generate_parser().parse_line(self.line)
        self._check_options()
        # IPython ends every cell with a line break, whether the user typed one or not.
        self._body = cell.removesuffix("\n")
        self._names = ImageNames(self.options.image, shell, session.zones, ui=defaults["ui"])
        self._images: list[NamedImage] = []
        self._pending: ks.PendingRequest | None = None
        self._run: GenerationRun | None = None

    @property
    def returns_errors(self) -> bool:
        """Whether a request that fails gives a Result instead of an exception."""
        return bool((self.options.on_error or self._defaults["on_error"]) == "return")

    def receive_images(self) -> None:
        """Find the images; block until one is dropped if the line asks for that. Raises as `ImageNames.receive`."""
        self._images = self._names.receive()

    async def receive_images_async(self) -> None:
        """The same in an awaiting cell."""
        self._images = await self._names.receive_async()

    def begin(self, *, stop_hint: str) -> Result:
        """Send the request and show it. `stop_hint` says what to press if the button cannot work here."""
        llm = self._session.llm()
        body = (
            render_prompt(self._body, self._shell.user_ns) if self.options.template else self._body
        )
        params = sampling_params(
            self.options, llm.get_default_sampling_params(), self._defaults["sampling"]
        )
        submit = partial(self._submit, llm, params)
        if self.options.chat is not None:
            pending, turn = self._submit_turn(llm, body, submit)
        else:
            pending, turn = submit(self._single_prompt(llm, body)), None
        result = self._make_result(llm, pending)
        if turn is not None:
            turn.result = result
        self._show(pending, result, stop_hint)
        return result

    @property
    def run(self) -> GenerationRun:
        """What `begin` has begun."""
        assert self._run is not None, "begin comes first"
        return self._run

    @property
    def has_begun(self) -> bool:
        """Whether the request was sent and shown."""
        return self._run is not None

    def abandon(self) -> None:
        """End what was begun, if it has not ended: an exception or an interrupt came in between."""
        if self._pending is not None:
            self._pending.abort()
        if self._run is not None:
            self._run.end()

    @property
    def _sources(self) -> list[Any]:
        return [image.source for image in self._images]

    def _check_options(self) -> None:
        options = self.options
        name = options.output
        if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
            raise InvalidRequestError(f"-o {name!r} is not the name of a variable")
        if options.raw and (options.system or options.chat):
            raise InvalidRequestError(
                "--raw sends the body alone: leave out --system and --chat, or --raw"
            )
        if options.image and (options.raw or options.continue_from):
            raise InvalidRequestError(
                "--image puts a picture into the message of a user: leave out --raw and --continue-from"
            )
        if options.continue_from and (options.chat or options.system):
            raise InvalidRequestError(
                "--continue-from goes on with an earlier prompt: leave out --chat and --system"
            )

    def _submit(self, llm: ks.LLM, params: ks.SamplingParams, prompt: Any) -> ks.PendingRequest:
        self._pending = llm.submit(
            prompt, params,
            request_id=self._session.new_request_id(),
            priority=self.options.priority,
            cache_salt=self.options.cache_salt,
        )  # fmt: skip
        return self._pending

    def _submit_turn(
        self, llm: ks.LLM, body: str, submit: Callable[[Any], ks.PendingRequest]
    ) -> tuple[ks.PendingRequest, ChatTurn]:
        """Send the conversation up to this question. What cannot be sent leaves the conversation as it was."""
        chat: Chat = self._session.chats.get(self.options.chat)
        before = (chat.system, chat.turns.copy())
        chat.system = self.options.system or chat.system
        try:
            turn = chat.ask(body, cell_id(self._shell), self._shell.execution_count, self._sources)
            prompt = llm.render_chat(chat.messages(turn), split_special_tokens=True)
            return submit(prompt), turn
        except BaseException:
            chat.system, chat.turns = before
            raise

    def _single_prompt(self, llm: ks.LLM, body: str) -> Any:
        options = self.options
        if options.continue_from:
            return self._continued_prompt(llm, body)
        tokenizer = llm.get_tokenizer()
        needs_chat = bool(options.system or self._images)
        raw = self._defaults["raw"] if options.raw is None and not needs_chat else options.raw
        if raw or tokenizer is None or (not tokenizer.chat_templates and not needs_chat):
            return body
        messages = [user_message(body, self._sources)]
        if options.system:
            messages.insert(0, {"role": "system", "content": options.system})
        return llm.render_chat(messages, split_special_tokens=True)

    def _continued_prompt(self, llm: ks.LLM, body: str) -> Any:
        """The earlier prompt and the beginning of an answer: its own tokens, or the body if that was changed."""
        earlier, num_tokens, token_id = self._read_continuation()
        tokenizer = llm.get_tokenizer()
        if tokenizer is None:
            raise InvalidRequestError("--continue-from: this engine runs without a tokenizer")
        beginning = [*earlier.token_ids[:num_tokens], token_id]
        if tokenizer.decode(beginning) != body:
            beginning = tokenizer.encode(body, add_special_tokens=False)
        ids = [*earlier.prompt_token_ids, *beginning]
        return {"prompt_token_ids": ids, "multi_modal_data": {"image": list(earlier.images)}}

    def _read_continuation(self) -> tuple[Result, int, int]:
        text = self.options.continue_from
        request_id, *numbers = text.split(":")
        if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
            raise InvalidRequestError(
                f"--continue-from {text!r} must be REQUEST:TOKENS:ID, such as r7:12:345"
            )
        num_tokens, token_id = map(int, numbers)
        run = self._session.runs.get(request_id)
        if run is None:
            raise InvalidRequestError(
                f"--continue-from: this kernel has no answer {request_id!r}: run its cell again"
            )
        if num_tokens > len(run.result.token_ids):
            raise InvalidRequestError(
                f"--continue-from: {request_id} has {len(run.result.token_ids)} tokens, not {num_tokens}"
            )
        return run.result, num_tokens, token_id

    def _make_result(self, llm: ks.LLM, pending: ks.PendingRequest) -> Result:
        prompt = pending.prompt
        if prompt is None and (tokenizer := llm.get_tokenizer()) is not None:
            prompt = tokenizer.decode(pending.prompt_token_ids, skip_special_tokens=False)
        result = Result(
            request_id=pending.request_id,
            prompt=prompt,
            prompt_token_ids=pending.prompt_token_ids,
            images=pending.images,
            params=pending.params,
            model=llm.engine.config.model,
            format=self.options.format,
            show_tokens=self.options.tokens,
            chat=self.options.chat,
            line=self.line,
            body=self._body,
            execution_count=self._shell.execution_count,
            stop=pending.abort,
        )
        tokenizer = llm.get_tokenizer()
        if tokenizer is not None:
            result.continuation = partial(continuation_cell, result, tokenizer.decode)
        if self.options.output is not None:
            self._shell.user_ns[self.options.output] = result
        return result

    def _show(self, pending: ks.PendingRequest, result: Result, stop_hint: str) -> None:
        if choose_ui(self._shell, self._defaults["ui"]) != "plain":
            show_images(self._images)
        view = choose_view(
            self._shell, self._defaults["ui"],
            num_answers=pending.params.n,
            stop=pending.abort,
            stop_hint="" if self.options.background else stop_hint,
            show_tokens=self.options.tokens,
            snapshot=result.snapshot,
        )  # fmt: skip
        self._run = GenerationRun(pending, result, view, self._session.flusher)
        self._session.remember(self._run)
        self._run.start()
