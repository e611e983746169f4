"""The dashboard in a real kernel, seen by a front end."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from PIL import Image

from tests.helpers.front_end import CellOutputs, FrontEnd

pytestmark = [pytest.mark.notebook, pytest.mark.process]

WIDGET = "application/vnd.jupyter.widget-view+json"
START = """
from kernelserve_widgets.notebook_session import NotebookSession
from kernelserve_widgets.dashboard.dashboard import Dashboard
import threading
llm = ks.LLM("fake:step_seconds=0.01", fake_model=True, show_progress=False, num_gpu_blocks=257)
def run(streams, max_tokens):
    params = ks.SamplingParams(max_tokens=max_tokens, detokenize=False)
    return llm.generate([[i + 1] * 40 for i in range(streams)], params, use_tqdm=False)
"""
SHOW = "dash = Dashboard(NotebookSession.current()); dash.show()"


@pytest.fixture
def front(shared_kernel) -> FrontEnd:
    return begin(FrontEnd(shared_kernel))


@pytest.fixture
def new_front(new_kernel) -> FrontEnd:
    """In a kernel of its own, for tests that take packages out of it."""
    return begin(FrontEnd(new_kernel()))


def begin(front: FrontEnd) -> FrontEnd:
    front.ok(f"import kernelserve as ks, time\n{START}")
    return front


def outputs(cell: CellOutputs) -> list[dict[str, Any]]:
    return [output["data"] for output in cell.outputs if "data" in output]


def picture(cell: CellOutputs) -> dict[str, Any]:
    """The output below the controls."""
    return outputs(cell)[1]


def show(front: FrontEnd) -> CellOutputs:
    cell = front.run(SHOW)
    assert cell.error is None, cell.traceback
    front.listen(1)  # the first map of the cache may come a little later
    return cell


def images(front: FrontEnd) -> list[dict[str, Any]]:
    return [state for state in front.comms.values() if state.get("_model_name") == "ImageModel"]


def test_it_is_live_while_something_runs_and_a_picture_before_and_after(front):
    cell = show(front)
    assert WIDGET in outputs(cell)[0]  # the controls
    assert picture(cell).keys() == {"image/png", "text/plain"}
    assert not images(front)
    work = front.submit("_ = run(6, 250)")
    front.wait(lambda: images(front))
    front.wait(lambda: WIDGET in picture(cell))
    assert picture(cell)[WIDGET]["model_id"] in front.comms
    front.wait(lambda: work.done)
    assert work.error is None, work.traceback
    front.wait(lambda: WIDGET not in picture(cell), timeout=15)
    front.listen(0.5)
    assert not images(front)
    text = picture(cell)["text/plain"]
    assert "0 tok/s" in text
    assert text.count("250 tokens") == 6
    still = Image.open(io.BytesIO(base64.b64decode(picture(cell)["image/png"])))
    assert still.size == (900, 704)


def test_nothing_is_sent_at_rest(front):
    cell = show(front)
    before = front.num_messages
    front.listen(3)
    assert front.num_messages == before
    work = front.submit("_ = run(2, 250)")
    front.wait(lambda: WIDGET in picture(cell))
    front.wait(lambda: work.done and WIDGET not in picture(cell))
    front.listen(1)
    before = front.num_messages
    front.listen(3)
    assert front.num_messages == before


def test_it_sends_less_than_five_frames_a_second(front):
    show(front)
    front.ok("before = dash.num_frames")
    messages, size = front.num_messages, front.num_bytes
    front.ok("t = time.monotonic(); _ = run(16, 300); t = time.monotonic() - t")
    frames, seconds = eval(front.ok("print((dash.num_frames - before, t))"))
    assert 2 <= frames <= 1 + 4 * seconds + 2
    assert (
        front.num_messages - messages <= 2 * frames + 40
    )  # the start of the view opens some comms
    assert (front.num_bytes - size) / seconds < 150_000


def test_close_leaves_the_last_picture_and_no_widget(front):
    cell = show(front)
    front.ok("_ = run(3, 40)")
    front.ok("dash.close()")
    front.listen(0.5)
    assert outputs(cell)[0].keys() == {"text/plain"}
    assert "max_num_seqs=128" in outputs(cell)[0]["text/plain"]
    assert picture(cell).keys() == {"image/png", "text/plain"}
    assert picture(cell)["text/plain"].count("40 tokens") == 3
    assert front.comms == {}
    assert front.ok("print(NotebookSession.current().flusher.num_views)") == "0"
    front.ok("dash.close()")  # again: nothing
    front.ok("_ = run(1, 5)")
    front.listen(1)
    assert front.comms == {}


def test_c4_showing_it_again_and_again_keeps_one(front):
    cells = [show(front)]
    for _ in range(5):
        cells.append(front.run(SHOW))
        assert cells[-1].error is None, cells[-1].traceback
    front.listen(1)
    live = [WIDGET in outputs(cell)[0] for cell in cells]
    assert live == [False] * 5 + [True]
    count = len(front.comms)
    for _ in range(5):
        front.run(SHOW)
    front.listen(1)
    assert len(front.comms) == count < 25
    assert front.ok("print(NotebookSession.current().flusher.num_views)") == "1"


def test_the_end_of_the_engine_leaves_a_picture_and_a_new_engine_goes_on(front):
    cell = show(front)
    front.ok("_ = run(2, 30)")
    front.ok("llm.close()")
    front.wait(lambda: "this engine has ended" in picture(cell)["text/plain"], timeout=15)
    front.wait(lambda: WIDGET not in picture(cell), timeout=15)
    front.ok(
        'llm = ks.LLM("fake:step_seconds=0.01", fake_model=True, show_progress=False); _ = run(2, 150)'
    )
    front.wait(lambda: WIDGET not in picture(cell), timeout=15)
    front.wait(lambda: picture(cell)["text/plain"].count("150 tokens") == 2, timeout=15)
    assert "ended" not in picture(cell)["text/plain"]


def test_a_change_of_a_field_reaches_the_engine(front):
    cell = show(front)
    models = {
        state["description"]: comm_id
        for comm_id, state in front.comms.items()
        if state.get("description")
    }
    assert models.keys() == {"Token budget", "Seats", "Prompt chunk", "Policy"}
    data = {"method": "update", "state": {"value": 130}, "buffer_paths": []}
    content = {"comm_id": models["Token budget"], "data": data}
    client = front.kernel.client
    client.shell_channel.send(client.session.msg("comm_msg", content))
    front.wait(
        lambda: any("130 from the next step" in str(s.get("value")) for s in front.comms.values())
    )
    front.ok("_ = run(1, 2)")
    assert front.ok("print(llm.step_records()[-1].token_budget)") == "130"
    assert cell.error is None


def test_without_ipywidgets_the_picture_itself_is_replaced(new_front):
    front = new_front
    front.ok("import sys; sys.modules['ipywidgets'] = None; sys.modules['anywidget'] = None")
    cell = front.run('dash = Dashboard(NotebookSession.current(), ui="display"); dash.show()')
    assert cell.error is None, cell.traceback
    front.listen(1)
    [data] = outputs(cell)
    first = data["image/png"]
    work = front.submit("_ = run(4, 250)")
    front.wait(lambda: outputs(cell)[0]["image/png"] != first)
    assert "4" in outputs(cell)[0]["text/plain"]
    front.wait(lambda: work.done)
    front.wait(lambda: outputs(cell)[0]["text/plain"].count("250 tokens") == 4, timeout=15)
    assert front.comms == {}


def test_without_matplotlib_it_is_text(new_front):
    front = new_front
    front.ok("import sys; sys.modules['matplotlib'] = None")
    cell = show(front)
    assert [data.keys() for data in outputs(cell)[1:]] == [{"text/plain"}]
    front.ok("_ = run(2, 30)")
    front.wait(lambda: picture(cell)["text/plain"].count("30 tokens") == 2, timeout=15)
    front.ok("dash.close()")
    front.listen(0.5)
    assert front.comms == {}


def test_a_snapshot_is_a_picture_of_everything(front):
    front.ok("_ = run(2, 5); dash = Dashboard(NotebookSession.current())")
    data = front.ok("import base64; print(base64.b64encode(dash.snapshot()).decode())")
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (1800, 1408)
    assert "5 tokens" in front.ok("print(dash.text())")


def test_c15_no_pyplot_figure_and_no_import_of_pyplot(front):
    show(front)
    front.ok("_ = run(2, 30)")
    assert front.ok("print('matplotlib.pyplot' in __import__('sys').modules)") == "False"


def test_the_end_of_the_session_leaves_the_picture(front):
    """`%unload_ext` and the end of the kernel both do this."""
    cell = show(front)
    work = front.submit("threading.Thread(target=run, args=(2, 800), daemon=True).start()")
    front.wait(lambda: WIDGET in picture(cell))
    front.wait(lambda: work.done)
    front.ok("NotebookSession.current().close()")
    front.listen(0.5)
    assert [data.keys() for data in outputs(cell)] == [{"text/plain"}, {"image/png", "text/plain"}]
    assert "2" in picture(cell)["text/plain"]
    assert front.comms == {}
    front.ok("llm.abort([]); llm.close()")
