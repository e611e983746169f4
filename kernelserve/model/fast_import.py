"""Imports transformers."""

from __future__ import annotations


def import_transformers() -> None:
    import transformers.modeling_utils  # noqa: F401
