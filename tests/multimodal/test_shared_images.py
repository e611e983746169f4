"""Arrays reach the engine through shared memory, whole or not at all, and no memory is left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelserve.errors import InvalidRequestError, ProtocolError
from kernelserve.multimodal.segment_reader import SegmentReader
from kernelserve.multimodal.shared_images import SharedImageReceiver, SharedImageSender
from kernelserve.protocol import EngineCoreRequest
from kernelserve.wire import WireArray
from tests.helpers.image_requests import cross, make_request, sent

SLOT = 128
"""Of a small image: its generation and its array, at multiples of 64."""


@contextmanager
def both_sides(num_images: int) -> Iterator[tuple[SharedImageSender, SharedImageReceiver]]:
    """Room for so many small images."""
    sender, receiver = SharedImageSender(num_images * SLOT), SharedImageReceiver(os.getpid())
    try:
        yield sender, receiver
    finally:
        sender.close()
        receiver.close()


def places(request: EngineCoreRequest) -> list[int]:
    return [feature.shared.generation for feature in request.mm_features if feature.shared]


def is_mapped() -> bool:
    return "memfd:kernelserve-images" in Path("/proc/self/maps").read_text()


@given(
    st.lists(st.tuples(st.text("abcde", max_size=4), st.booleans()), max_size=20), st.integers(1, 5)
)
def test_what_arrives_is_what_was_sent_however_late(prompts, num_images):
    """The engine may read a message long after the next ones were written."""
    with both_sides(num_images) as (sender, receiver):
        waiting: list[tuple[int, str, EngineCoreRequest]] = []

        def read_all() -> None:
            for i, names, arrived in waiting:
                if not receiver.unpack(arrived):
                    again = sender.recall(str(i))
                    assert again is not None
                    arrived = cross(again)
                    assert receiver.unpack(arrived)
                assert arrived == make_request(names, str(i))
            waiting.clear()

        for i, (names, is_read) in enumerate(prompts):
            waiting.append((i, names, cross(sender.pack(make_request(names, str(i))))))
            if is_read:
                read_all()
        read_all()


def test_no_array_crosses_the_socket_and_each_is_written_once():
    with both_sides(3) as (sender, receiver):
        first, second = sender.pack(make_request("ab")), sender.pack(make_request("ba"))
        assert sent(first) == sent(second) == ""
        assert places(first) == places(second)[::-1]
        arrived = cross(second)
        assert receiver.unpack(arrived)
        assert arrived == make_request("ba")


def test_the_answers_of_one_request_share_one_copy():
    with both_sides(3) as (sender, receiver):
        arrived = [cross(sender.pack(make_request("a", name))) for name in "pq"]
        assert all(map(receiver.unpack, arrived))
        first, second = (request.mm_features[0].data for request in arrived)
        assert first is second
        other = cross(sender.pack(make_request("b")))
        assert receiver.unpack(other)
        assert other == make_request("b")


def test_an_image_never_overwrites_one_of_its_own_request():
    with both_sides(2) as (sender, receiver):
        assert sent(sender.pack(make_request("abc"))) == "c"
        assert sent(sender.pack(make_request("cd"))) == ""
        late = sender.pack(make_request("c", "late"))
        sender.pack(make_request("ab"))
        assert not receiver.unpack(late)
        assert sender.recall("late") == make_request("c", "late")


def test_what_is_larger_than_the_segment_goes_over_the_socket():
    with both_sides(1) as (sender, receiver):
        request = make_request("a")
        request.mm_features[0].data = {"pixels": WireArray("uint8", (200,), bytes(200))}
        assert sent(sender.pack(request)) == "a"
        assert receiver.unpack(cross(request))


def test_what_is_overwritten_while_it_is_copied_is_sent_again(monkeypatch):
    with both_sides(2) as (sender, receiver):
        arrived = cross(sender.pack(make_request("a")))
        monkeypatch.setattr(SegmentReader, "_is_there", Mock(side_effect=[True, False]))
        assert not receiver.unpack(arrived)


def test_nobody_waits_for_what_was_answered_or_aborted():
    with both_sides(2) as (sender, _):
        sender.pack(make_request("a", "s"))
        sender.forget("s")
        assert sender.recall("s") is None


def test_the_memory_is_gone_when_both_sides_let_go():
    descriptors = set(Path("/proc/self/fd").iterdir())
    with both_sides(2) as (sender, receiver):
        assert not is_mapped()
        assert receiver.unpack(cross(sender.pack(make_request("a"))))
        assert is_mapped()
        sender.close()
        sender.close()
        assert is_mapped()
    assert not is_mapped()
    assert set(Path("/proc/self/fd").iterdir()) == descriptors


def test_a_text_needs_no_segment():
    with both_sides(2) as (sender, receiver):
        request = make_request("")
        assert sender.pack(request) is request
        assert receiver.unpack(request)
        assert not is_mapped()


@pytest.mark.parametrize("call", ["memfd_create", "posix_fallocate"])
def test_without_memory_to_share_images_go_over_the_socket(monkeypatch, caplog, call):
    monkeypatch.setattr(os, call, Mock(side_effect=OSError(28, "No space left on device")))
    with both_sides(2) as (sender, _):
        assert sent(sender.pack(make_request("ab"))) == "ab"
        assert sent(sender.pack(make_request("b"))) == "b"
    warned = [record.getMessage() for record in caplog.records]
    assert warned == (
        ["No 256 bytes can be shared with the engine: images go over its socket"]
        if call == "memfd_create"
        else []
    )


def test_what_cannot_be_read_is_named_with_the_remedy(tmp_path):
    with both_sides(2) as (sender, receiver), (tmp_path / "file").open("w+b") as file:
        file.write(bytes(4096))
        good = cross(sender.pack(make_request("a")))
        place = good.mm_features[0].shared
        assert place is not None
        for changes, words in (
            ({"fd": 9999}, "No such file"),
            ({"fd": file.fileno()}, "Invalid argument|not sealed"),
            ({"secret": bytes(16)}, "another one has its place"),
            ({"secret": b""}, "another one has its place"),
        ):
            wrong = cross(sender.pack(make_request("a")))
            wrong.mm_features[0].shared = msgspec.structs.replace(place, **changes)
            with pytest.raises(InvalidRequestError, match=rf"({words}).*'lru'"):
                receiver.unpack(wrong)
        assert receiver.unpack(good)


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": -8},
        {"offset": 10**9},
        {"arrays": {"pixels": ("uint8", [1], -1)}},
        {"arrays": {"pixels": ("uint8", [10**12], 0)}},
        {"arrays": {"pixels": ("uint8", [-1], 64)}},
        {"arrays": {"pixels": ("object", [1], 64)}},
    ],
)
def test_nothing_outside_of_the_segment_is_read(changes):
    with both_sides(2) as (sender, receiver):
        request = cross(sender.pack(make_request("a")))
        place = request.mm_features[0].shared
        assert place is not None
        request.mm_features[0].shared = msgspec.structs.replace(place, **changes)
        with pytest.raises(ProtocolError):
            receiver.unpack(request)
