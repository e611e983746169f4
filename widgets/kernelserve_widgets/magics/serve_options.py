"""The options of %serve: a model, and every option of ks.LLM."""

from __future__ import annotations

import argparse
import types
import typing
from typing import Any, Literal

import kernelserve as ks
from kernelserve_widgets.magics.option_parser import OptionParser

__all__ = ["engine_options", "serve_parser"]

_DESCRIPTION = """\
Start the engine of this notebook, or find it running already. Without a model: the one that runs, or the embedded
SmolLM2-135M-Instruct. A model is a hub id, a folder, or a .gguf file. Another model replaces the one that runs.

    %serve
    %serve Qwen/Qwen3-0.6B --device cuda --lifetime linger --max-model-len 8192
"""


def serve_parser() -> OptionParser:
    """Return the parser of the line of %serve; its options are those of `kernelserve.EngineOptions`."""
    parser = OptionParser("%serve", _DESCRIPTION)
    parser.add_argument("model", nargs="?", help="hub id, folder or .gguf file")
    for name, annotation in typing.get_type_hints(ks.EngineOptions).items():
        option = f"--{name.replace('_', '-')}"
        kind, choices = _value_type(annotation)
        if kind is bool:
            parser.add_argument(
                option, dest=name, default=None, action=argparse.BooleanOptionalAction
            )
        else:
            parser.add_argument(
                option, dest=name, type=kind, choices=choices, default=None,
                metavar=None if choices else kind.__name__.upper(),
            )  # fmt: skip
    return parser


def engine_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given, as keywords of ks.LLM."""
    return {
        name: value
        for name, value in vars(options).items()
        if name != "model" and value is not None
    }


def _value_type(annotation: Any) -> tuple[Any, list[str] | None]:
    """Return the type of one value, and the values that there are if they are few."""
    if isinstance(annotation, types.UnionType):
        [annotation] = [part for part in typing.get_args(annotation) if part is not type(None)]
    if typing.get_origin(annotation) is Literal:
        return str, list(typing.get_args(annotation))
    return annotation, None
