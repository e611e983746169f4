"""The Stop button of a cell that blocks the kernel, in a front end with a subshell for widgets, as JupyterLab is."""

from __future__ import annotations

import contextlib
import queue
import time

import pytest

from tests.helpers.front_end import FrontEnd
from tests.helpers.kernel import start_kernel
from tests.helpers.leftovers import assert_nothing_left
from tests.helpers.tokenizers import fake_model_that_speaks

pytestmark = [pytest.mark.notebook, pytest.mark.process]


class FrontEndWithSubshell(FrontEnd):
    """Sends what widgets send to a subshell of its own."""

    def open_subshell(self) -> None:
        client = self.kernel.client
        client.control_channel.send(client.session.msg("create_subshell_request", {}))
        reply = client.get_control_msg(timeout=10)
        self.subshell_id = reply["content"]["subshell_id"]

    def click(self, comm_id, content):
        session = self.kernel.client.session
        data = {"comm_id": comm_id, "data": {"method": "custom", "content": content}}
        message = session.msg("comm_msg", data)
        message["header"]["subshell_id"] = self.subshell_id
        self.kernel.client.shell_channel.send(message)

    def click_until(self, comm_id, content, heard) -> None:
        """Click again as static/stream.js does: at one moment in a hundred the main shell gets the message."""
        for _ in range(6):
            self.click(comm_id, content)
            with contextlib.suppress(queue.Empty):
                self.wait(lambda: any(heard in one for one in self.custom[comm_id]), timeout=0.5)
                return
        raise AssertionError(f"nobody heard {content}")


def test_c9_a_click_stops_a_cell_that_blocks(tmp_path, tmp_path_factory) -> None:
    runtime_folder = tmp_path_factory.mktemp("rt")
    model = fake_model_that_speaks(tmp_path / "tokenizer", step_seconds=0.02)
    with start_kernel(KERNELSERVE_RUNTIME_DIR=str(runtime_folder)) as kernel:
        front = FrontEndWithSubshell(kernel)
        front.ok("%load_ext kernelserve")
        front.ok(f"%serve {model} --fake-model")
        front.open_subshell()
        # Under another magic the cell cannot await: the main shell is busy until it ends.
        cell = front.submit("%%time\n%%generate --max-tokens 1000\nHello")
        front.wait(lambda: cell.widgets and len(front.custom[cell.widgets[0]]) > 2)
        [widget] = cell.widgets
        assert front.comms[widget]["state"]["hint"] != ""
        front.click_until(widget, {"kind": "sync"}, "full")
        assert not cell.done
        clicked = time.monotonic()
        front.click_until(widget, {"kind": "stop"}, "stopping")
        front.wait(lambda: cell.done)
        assert cell.done_at - clicked < 3  # of 20
        assert "[stopped after" in cell.text
    assert_nothing_left(runtime_folder, timeout=8)
