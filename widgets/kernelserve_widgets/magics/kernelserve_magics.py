"""The magics of kernelserve: thin, each one calls what does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from traitlets import Bool, Dict, Enum, Float, Int, Unicode

import kernelserve as ks
from kernelserve.errors import InvalidRequestError
from kernelserve_widgets.generation_run import GenerationRun
from kernelserve_widgets.magics.engine_command import EngineCommand
from kernelserve_widgets.magics.error_display import brief_errors, briefly
from kernelserve_widgets.magics.generate_command import GenerateCommand
from kernelserve_widgets.magics.generate_options import generate_parser
from kernelserve_widgets.magics.option_parser import OptionParser
from kernelserve_widgets.magics.request_table import describe_requests
from kernelserve_widgets.magics.serve_command import ServeCommand
from kernelserve_widgets.magics.serve_options import serve_parser
from kernelserve_widgets.notebook_session import NotebookSession
from kernelserve_widgets.result import Result
from kernelserve_widgets.shell import buttons_work_while_awaiting
from kernelserve_widgets.views.answer_view import AnswerView
from kernelserve_widgets.views.choose_view import choose_view

__all__ = ["KernelServeMagics"]

_F = TypeVar("_F", bound=Callable[..., Any])
_USE_INTERRUPT = "to stop, interrupt the kernel (■)"
_SAMPLING_DEFAULTS = ("max_tokens", "temperature", "top_p", "top_k", "seed")


def _documented(parser: Callable[[], OptionParser]) -> Callable[[_F], _F]:
    """Let `%magic?` show the options."""

    def document(function: _F) -> _F:
        function.__doc__ = parser().format_help()
        return function

    return document


@magics_class
class KernelServeMagics(Magics):
    """Generate text, watch the engine, stop it. `%config KernelServeMagics` shows and sets the defaults."""

    model = Unicode(ks.EngineConfig().model, help="what %serve and a first %%generate load").tag(
        config=True
    )
    engine_options = Dict(
        help="keyword options of ks.LLM for %serve, such as {'max_model_len': 2048}"
    ).tag(config=True)
    max_tokens = Int(
        256, allow_none=True, help="most tokens of an answer; None: as many as fit"
    ).tag(config=True)
    temperature = Float(None, allow_none=True, help="None: what the model recommends").tag(
        config=True
    )
    top_p = Float(None, allow_none=True, help="None: what the model recommends").tag(config=True)
    top_k = Int(None, allow_none=True, help="None: what the model recommends").tag(config=True)
    seed = Int(None, allow_none=True, help="None: a new answer each time").tag(config=True)
    raw = Bool(False, help="send the body without a chat template, as --raw does").tag(config=True)
    on_error = Enum(("raise", "return"), "raise", help="as --on-error").tag(config=True)
    ui = Enum(
        ("auto", "widget", "display", "plain"), "auto",
        help="how answers stream: a widget, a display that is replaced, or plain prints",
    ).tag(config=True)  # fmt: skip

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._session = NotebookSession.of(shell)
        self._session.start_engine = lambda: self._serve("")

    @no_var_expand
    @line_magic
    @_documented(serve_parser)
    @briefly
    def serve(self, line: str) -> None:
        self._serve(line)

    @no_var_expand
    @cell_magic
    @_documented(generate_parser)
    @briefly
    def generate(self, line: str, cell: str) -> Result | None:
        command = self._command(line, cell)
        try:
            command.receive_images()
            result = command.begin(stop_hint=_USE_INTERRUPT)
            if command.options.background:
                command.run.finish_in_background()
            else:
                command.run.complete()
        except BaseException as error:
            result = self._fail(command, error)
        return None if command.is_quiet else result

    async def generate_async(self, line: str, cell: str) -> Result | None:
        """What a top-level %%generate becomes: see AsyncCells."""
        with brief_errors():
            command = self._command(line, cell)
            hint = "" if buttons_work_while_awaiting() else _USE_INTERRUPT
            try:
                await command.receive_images_async()
                result = command.begin(stop_hint=hint)
                if command.options.background:
                    command.run.finish_in_background()
                else:
                    await command.run.complete_async()
            except BaseException as error:
                result = self._fail(command, error)
            return None if command.is_quiet else result

    @line_magic
    @briefly
    def requests(self, line: str) -> None:
        """List the requests of this notebook: those that run, and the last ones that ended."""
        self._expect_nothing("%requests", line)
        print(describe_requests(self._session))

    @line_magic
    @briefly
    def abort(self, line: str) -> None:
        """End requests by id, `%abort r3 r4`, or all of this notebook, `%abort all`. Their text so far is kept."""
        running = {name: run for name, run in self._session.runs.items() if not run.result.finished}
        wanted = line.split()
        names = (
            list(running)
            if wanted == ["all"]
            else [w if w.startswith("r") else f"r{w}" for w in wanted]
        )
        unknown = [name for name in names if name not in self._session.runs]
        if unknown or not wanted:
            known = ", ".join(running) or "none"
            what = f"there is no request {unknown[0]!r}" if unknown else "say which request, or all"
            raise InvalidRequestError(f"%abort: {what} (running: {known})")
        for name in names:
            self._session.runs[name].stop()

    @line_magic
    @briefly
    def last(self, line: str) -> None:
        """Show the last answer again, or the one that is named: `%last r3`. One that runs streams on here."""
        name = line.strip() or next(reversed(self._session.runs), None)
        if name is None or name not in self._session.runs:
            known = ", ".join(self._session.runs) or "none"
            raise InvalidRequestError(
                f"%last: there is no answer {name or 'yet'!r} (known: {known})"
            )
        self._session.runs[name].show_again(self._new_view(self._session.runs[name]))

    @no_var_expand
    @line_magic
    @briefly
    def engine(self, line: str) -> None:
        """Look after the engine.

        %engine [status]       what runs, where, how much it does, and where `%%generate` looks for an engine
        %engine logs [LINES]   the end of its log
        %engine restart        end it and start it again with the same settings
        %engine stop           end it and free its memory
        %engine list           the engines of this user on this machine
        %engine attach NAME    use one that another notebook started
        """
        EngineCommand(self._session).run(line)

    @no_var_expand
    @line_magic
    @briefly
    def chat(self, line: str) -> None:
        """Look after the conversations of `%%generate --chat NAME`.

        %chat list             their names
        %chat show NAME        exactly the messages that are sent
        %chat reset NAME       forget one
        """
        action, _, name = line.strip().partition(" ")
        chats = self._session.chats
        if action in ("", "list"):
            print(
                "\n".join(f"{n}: {len(chats.find(n).turns)} turns" for n in chats.names)
                or "no chats"
            )
        elif action == "show" and name:
            print(chats.find(name.strip()).describe())
        elif action == "reset" and name:
            chats.reset(name.strip())
        else:
            raise InvalidRequestError(
                f"%chat {line!r}: use %chat list, %chat show NAME or %chat reset NAME"
            )

    @line_magic
    @briefly
    def dashboard(self, line: str) -> None:
        """Show, while cells run, the KV cache, the token budget of each step, the queue, latencies and memory.

        %dashboard             show it here; it stays live while you run other cells
        %dashboard dark        the same on a dark ground
        %dashboard close       leave its last picture
        """
        from kernelserve_widgets.dashboard.dashboard import Dashboard

        action = line.strip() or "light"
        if action not in ("light", "dark", "close"):
            raise InvalidRequestError(
                f"%dashboard {action!r}: use %dashboard, %dashboard dark or %dashboard close"
            )
        if action == "close":
            Dashboard.close_current(self._session)
        else:
            self._session.llm()
            Dashboard(self._session, theme=action).show()

    @line_magic
    @briefly
    def timeline(self, line: str) -> None:
        """Draw what each request did when, and scrub through the steps: who got which tokens, who waited, and why."""
        from kernelserve_widgets.timeline.timeline import Timeline

        self._expect_nothing("%timeline", line)
        Timeline.of(self._session.known_llm()).show()

    def _serve(self, line: str) -> ks.LLM:
        defaults = {"model": self.model, **self.engine_options}
        return ServeCommand(self._session, self.shell, defaults, line).run()

    def _command(self, line: str, cell: str) -> GenerateCommand:
        defaults = {
            "sampling": {name: getattr(self, name) for name in _SAMPLING_DEFAULTS},
            "raw": self.raw,
            "on_error": self.on_error,
            "ui": self.ui,
        }
        return GenerateCommand(self._session, self.shell, defaults, line, cell)

    def _new_view(self, run: GenerationRun) -> AnswerView:
        return choose_view(
            self.shell,
            self.ui,
            num_answers=len(run.result.outputs),
            stop=run.stop,
            stop_hint="",
            show_tokens=run.result.show_tokens,
            snapshot=run.result.snapshot,
        )

    @staticmethod
    def _fail(command: GenerateCommand, error: BaseException) -> Result:
        """Leave nothing live. Raises the error, or returns the result that holds it if that is wanted."""
        command.abandon()
        if isinstance(error, ks.KernelserveError) and command.returns_errors and command.has_begun:
            return command.run.result
        raise error

    @staticmethod
    def _expect_nothing(magic: str, line: str) -> None:
        if line.strip():
            raise InvalidRequestError(f"{magic} takes no arguments, not {line.strip()!r}")
