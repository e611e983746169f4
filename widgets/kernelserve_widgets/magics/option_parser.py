"""argparse for the line of a magic: errors are exceptions with a hint, and options can be completed."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from typing import Any, NoReturn

from kernelserve.errors import InvalidRequestError

__all__ = ["OptionParser"]

_UNKNOWN = re.compile(r"unrecognized arguments: (\S+)")
_BAD_CHOICE = re.compile(r"argument (\S+): invalid choice: '?([^' ]*)'?")


class OptionParser(argparse.ArgumentParser):
    """Parses what stands behind the name of a magic. Raises InvalidRequestError with one readable line."""

    def __init__(self, magic: str, description: str) -> None:
        super().__init__(
            prog=magic, description=description, add_help=False, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip

    @property
    def options(self) -> list[str]:
        """All long and short options, for completion."""
        return sorted(self._option_string_actions, key=lambda option: (option.lstrip("-"), option))

    def parse_line(self, line: str) -> argparse.Namespace:
        """Parse the text behind the magic; quotes work as in a shell."""
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise InvalidRequestError(f"{self.prog}: {error} in {line!r}") from None
        return self.parse_args(words)

    def choices_of(self, option: str) -> list[str]:
        """The values that an option takes, empty if they are not a fixed set."""
        action = self._option_string_actions.get(option)
        return [str(choice) for choice in (action.choices or ())] if action is not None else []

    def takes_value(self, option: str) -> bool:
        """Whether the next word belongs to the option."""
        action = self._option_string_actions.get(option)
        return action is not None and action.nargs != 0

    def error(self, message: str) -> NoReturn:
        """Called by argparse."""
        if (unknown := _UNKNOWN.match(message)) and unknown[1].startswith("-"):
            message = f"there is no option {unknown[1]}{self._nearest(unknown[1], self.options)}"
        elif bad := _BAD_CHOICE.match(message):
            choices = self.choices_of(bad[1].split("/")[-1])
            if choices:
                message = f"{bad[1]} {bad[2]!r} is not one of {', '.join(choices)}{self._nearest(bad[2], choices)}"
        raise InvalidRequestError(f"{self.prog}: {message} ({self.prog}? shows all options)")

    @staticmethod
    def _nearest(word: str, known: list[str]) -> str:
        near: list[Any] = difflib.get_close_matches(word, known, n=1)
        return f"; did you mean {near[0]}?" if near else ""
