"""Conversations: `%%generate --chat` (user-needs B4)."""

from __future__ import annotations

import pytest

from kernelserve import EngineDeadError, InvalidRequestError, SamplingParams
from kernelserve_widgets.chat_book import Chat, ChatBook
from kernelserve_widgets.result import Result


def answer(text: str, *, error: Exception | None = None, finished: bool = True) -> Result:
    result = Result("r1", "", [1], SamplingParams(), "m")
    result.outputs[0].text = text
    if error is not None:
        result.fail(error)
    if finished:
        result.finish()
    return result


def ask(chat: Chat, user: str, cell: str | None, reply: str, number: int = 1) -> None:
    turn = chat.ask(user, cell, number)
    turn.result = answer(reply)


def test_b4_turns_are_carried_from_cell_to_cell() -> None:
    chat = Chat("c1", system="Be brief.")
    ask(chat, "one?", "a", "1")
    ask(chat, "two?", "b", "2")
    turn = chat.ask("three?", "c", 3)
    assert chat.messages(turn) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "three?"},
    ]


def test_b4_running_a_cell_again_replaces_its_turn_and_sees_only_what_came_before() -> None:
    chat = Chat("c1")
    ask(chat, "one?", "a", "1")
    ask(chat, "two?", "b", "2")
    ask(chat, "three?", "c", "3")
    turn = chat.ask("TWO?", "b", 7)
    assert [m["content"] for m in chat.messages(turn)] == ["one?", "1", "TWO?"]
    turn.result = answer("II")
    assert [m["content"] for m in chat.messages()] == ["one?", "1", "TWO?", "II", "three?", "3"]
    assert "[7] user: TWO?" in chat.describe()


def test_without_cell_ids_every_question_is_a_new_turn() -> None:
    chat = Chat("c1")
    ask(chat, "go on", None, "a")
    ask(chat, "go on", None, "b")
    assert len(chat.messages()) == 4


def test_an_answer_that_failed_is_not_part_of_the_conversation_but_a_stopped_one_is() -> None:
    chat = Chat("c1")
    chat.ask("one?", "a", 1).result = answer("half", error=EngineDeadError("gone"))
    stopped = chat.ask("two?", "b", 2)
    stopped.result = answer("as far as it")
    stopped.result.outputs[0].finish_reason = "abort"
    assert [m["content"] for m in chat.messages()] == ["two?", "as far as it"]
    assert "failed" in chat.describe()


def test_a_question_waits_for_the_answers_before_it() -> None:
    chat = Chat("c1")
    chat.ask("one?", "a", 1).result = answer("", finished=False)
    with pytest.raises(InvalidRequestError, match=r"still waits.*%abort r1"):
        chat.ask("two?", "b", 2)
    assert len(chat.turns) == 1


def test_the_book_names_what_it_has() -> None:
    book = ChatBook()
    book.get("c1")
    with pytest.raises(InvalidRequestError, match=r"no chat 'c2' \(known: c1\)"):
        book.find("c2")
    book.reset("c1")
    assert book.names == []
