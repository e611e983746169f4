"""The one refresh thread of a kernel."""

from __future__ import annotations

import logging
import threading

import pytest

from kernelserve_widgets.flusher import Flusher
from tests.helpers.leftovers import wait_until


class View:
    """Counts its flushes; wants no more after `limit` of them."""

    def __init__(self, *, interval: float = 0.001, limit: int = 10**9) -> None:
        self.min_interval_s = interval
        self.limit = limit
        self.threads: list[threading.Thread] = []

    def flush(self) -> bool:
        self.threads.append(threading.current_thread())
        return len(self.threads) < self.limit


class Broken(View):
    def flush(self) -> bool:
        super().flush()
        raise RuntimeError("no front end")


def flusher_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "kernelserve-flusher" and t.is_alive()]


def test_flushes_in_one_thread_until_the_view_wants_no_more() -> None:
    flusher = Flusher()
    views = [View(limit=3), View(limit=5)]
    for view in views:
        flusher.add(view)
    wait_until(lambda: flusher.num_views == 0, "views are left", 5)
    assert [len(view.threads) for view in views] == [3, 5]
    assert len({thread.name for view in views for thread in view.threads}) == 1
    wait_until(lambda: not flusher_threads(), "the thread lives without a view", 5)


def test_begins_again_after_it_had_ended() -> None:
    flusher = Flusher()
    for _ in range(3):
        view = View(limit=2)
        flusher.add(view)
        wait_until(lambda: flusher.num_views == 0, "it is not flushed", 5)
        assert len(view.threads) == 2
        wait_until(lambda: not flusher_threads(), "the thread lives without a view", 5)


def test_a_broken_view_is_dropped_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    flusher = Flusher()
    broken, sound = Broken(), View(limit=30)
    with caplog.at_level(logging.CRITICAL):
        flusher.add(broken)
        flusher.add(sound)
        wait_until(lambda: flusher.num_views == 0, "views are left", 5)
    assert len(broken.threads) == 3
    assert len(sound.threads) == 30


def test_many_views_share_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("kernelserve_widgets.flusher.time.monotonic", lambda: now[0])
    flusher = Flusher()
    views = [View() for _ in range(80)]
    flusher._thread = threading.current_thread()  # ours: no other begins
    for view in views:
        flusher.add(view)
    flushed = 0
    for _ in range(10_000):  # 10 s in steps of 1 ms
        now[0] += 0.001
        flushed += len(flusher._take_due(now[0]))
    assert flushed <= 32 * 10 + 80
    assert flushed >= 32 * 10 - 80


def test_a_removed_view_is_not_flushed_again() -> None:
    flusher = Flusher()
    view = View()
    flusher.add(view)
    wait_until(lambda: bool(view.threads), "it is not flushed", 5)
    flusher.remove(view)
    flusher.flush_now(View())  # waits for a flush that is under way
    count = len(view.threads)
    wait_until(lambda: not flusher_threads(), "the thread lives without a view", 5)
    assert len(view.threads) == count


def test_flush_now_runs_in_the_calling_thread_and_raises() -> None:
    flusher = Flusher()
    view = View()
    flusher.flush_now(view)
    assert view.threads == [threading.current_thread()]
    with pytest.raises(RuntimeError, match="no front end"):
        flusher.flush_now(Broken())


def test_close_ends_the_thread() -> None:
    flusher = Flusher()
    flusher.add(View(interval=60))
    flusher.close()
    assert not flusher_threads()


def test_a_view_that_is_added_while_it_says_that_it_wants_no_more_goes_on() -> None:
    flusher = Flusher()

    class Again(View):
        def flush(self) -> bool:
            if len(self.threads) == 0:
                flusher.add(self)  # what is new arrives just now
            return super().flush()

    view = Again(limit=1)
    flusher.add(view)
    wait_until(lambda: len(view.threads) == 2, "the update is lost", 5)
    wait_until(lambda: flusher.num_views == 0, "views are left", 5)
