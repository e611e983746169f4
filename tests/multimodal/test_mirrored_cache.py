"""The client and the engine forget the same images; what is lost all the same is sent again."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kernelserve.multimodal.mirrored_cache import ImageReceiver, ImageSender
from tests.helpers.image_requests import cross, make_request, sent

requests = st.lists(st.text("abcde", max_size=4), max_size=30)


@given(requests, st.integers(0, 20))
def test_both_sides_agree_whatever_is_sent(prompts, limit):
    sender, receiver = ImageSender(limit), ImageReceiver(limit)
    for i, names in enumerate(prompts):
        request = make_request(names, str(i))
        arrived = cross(sender.pack(request))
        assert receiver.unpack(arrived)
        assert arrived == request == make_request(names, str(i))


@given(requests, st.sets(st.integers(0, 29)), st.integers(1, 20))
def test_lost_messages_cost_a_second_sending_and_nothing_else(prompts, lost, limit):
    sender, receiver = ImageSender(limit), ImageReceiver(limit)
    for i, names in enumerate(prompts):
        request = make_request(names, str(i))
        arrived = cross(sender.pack(request))
        if i in lost:
            continue
        if not receiver.unpack(arrived):
            again = sender.recall(str(i))
            assert again is not None
            arrived = cross(again)
            assert receiver.unpack(arrived)
        assert arrived == request


def test_an_image_crosses_once():
    sender = ImageSender(100)
    assert sent(sender.pack(make_request("ab"))) == "ab"
    assert sent(sender.pack(make_request("abc"))) == "c"
    assert sent(sender.pack(make_request("cc"))) == ""
    assert sent(ImageSender(100).pack(make_request("aa"))) == "a"
    assert sent(ImageSender(0).pack(make_request("aa"))) == "aa"


def test_the_images_of_a_request_are_forgotten_last():
    sender = ImageSender(8)
    sender.pack(make_request("abc"))
    # Room for d must come from b and c, which this request does not need.
    assert sent(sender.pack(make_request("da"))) == "d"
    assert sent(sender.pack(make_request("a"))) == ""


def test_nobody_waits_for_what_was_answered_or_aborted():
    sender = ImageSender(100)
    sender.pack(make_request("a"))
    sender.pack(make_request("a", "s"))
    sender.forget("s")
    assert sender.recall("s") is None
    assert sender.recall("unknown") is None


def test_the_callers_request_is_not_changed():
    sender = ImageSender(100)
    sender.pack(make_request("a"))
    request = make_request("a", "s")
    copy = msgspec.structs.replace(request)
    sender.pack(request)
    assert request == copy
    assert sender.recall("s") is request
