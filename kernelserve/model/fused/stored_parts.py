"""Matrices that are packed as one, as a file holds them."""

from __future__ import annotations

from collections.abc import Callable

from kernelserve.kernels import StoredMatrix
from kernelserve.model.fused.shapes import Shapes

__all__ = ["UnexpectedWeightError", "check_shape", "join_stored"]


class UnexpectedWeightError(Exception):
    """Which weight is not in the files, or not of the shape that it should have."""


def join_stored(find: Callable[[str], StoredMatrix | None], shapes: Shapes) -> StoredMatrix | None:
    """Return the matrices that `find` has for these paths below each other.

    None if it has not all of them, or if they are of several kinds. Raises UnexpectedWeightError.
    """
    parts: list[StoredMatrix] = []
    for path, shape in shapes.items():
        part = find(path)
        if part is None or (parts and part.source != parts[0].source):
            return None
        check_shape(path, (part.n, part.k), shape)
        parts.append(part)
    return StoredMatrix.joined(parts) if len(parts) > 1 else parts[0]


def check_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Raise UnexpectedWeightError if they differ: the kernels go by the shapes that they are told."""
    if shape != wanted:
        raise UnexpectedWeightError(f"{name} is {list(shape)} in place of {list(wanted)}")
