"""Short labels that stay, and colours in turn."""

from __future__ import annotations

from kernelserve_widgets.history import RequestNames


def test_a_short_id_is_its_own_label() -> None:
    names = RequestNames()
    assert names.label("r7-0123abcd") == "r7"
    assert names.label("my-request-a-0123abcd") == "my-request-a"
    assert names.label("plain") == "plain"


def test_long_ids_are_numbered_by_first_appearance() -> None:
    names = RequestNames()
    first, second = "a" * 16 + "-0123abcd", "b" * 13 + "-0123abcd"
    assert [names.label(first), names.label(second), names.label(first)] == ["q1", "q2", "q1"]


def test_answers_of_one_request_share_its_name() -> None:
    names = RequestNames()
    assert names.label("1_r7-0123abcd") == "r7.1"
    assert names.label("0_r7-0123abcd") == "r7.0"
    long = "c" * 32
    assert names.label(f"0_{long}-0123abcd") == "q1.0"
    assert names.label(f"1_{long}-0123abcd") == "q1.1"


def test_an_id_that_is_used_again_gets_another_label() -> None:
    names = RequestNames()
    assert names.label("r7-0123abcd") == "r7"
    assert names.label("r7-99999999") == "r7#2"
    assert names.label("0_r7-aaaaaaaa") == "r7#3.0"
    assert names.label("r7-0123abcd") == "r7"


def test_a_caller_may_use_the_names_that_are_given_to_others() -> None:
    names = RequestNames()
    assert names.label("x" * 20 + "-0123abcd") == "q1"
    assert names.label("q1-0123abcd") == "q1#2"


def test_what_cannot_be_shown_is_numbered() -> None:
    names = RequestNames()
    assert names.label("a\nb-0123abcd") == "q1"
    assert names.label("  -0123abcd") == "q2"


def test_twelve_colours_in_turn() -> None:
    names = RequestNames()
    colours = [names.colour(f"r{i}-0123abcd") for i in range(13)]
    assert len(set(colours[:12])) == 12
    assert colours[12] == colours[0]
    assert names.colour("r3-0123abcd") == colours[3]
    assert all(0 <= value <= 255 for colour in colours for value in colour)


def test_old_names_are_forgotten_at_last() -> None:
    names = RequestNames()
    labels = {names.label(f"{'x' * 20}{i}-0123abcd") for i in range(20_000)}
    assert len(labels) == 20_000
    assert names.label(f"{'x' * 20}19999-0123abcd") == "q20000"
    assert names.label(f"{'x' * 20}0-0123abcd") == "q20001"
