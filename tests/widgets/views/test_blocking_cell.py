"""The Stop button of a cell that blocks the kernel, in a front end with a subshell for widgets, as JupyterLab is."""

from __future__ import annotations

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
        front.click(widget, {"kind": "sync"})
        front.wait(lambda: any("full" in message for message in front.custom[widget]), timeout=5)
        assert not cell.done
        clicked = time.monotonic()
        front.click(widget, {"kind": "stop"})
        front.wait(lambda: cell.done, timeout=15)
        assert cell.done_at - clicked < 1
        assert "[stopped after" in cell.text
    assert_nothing_left(runtime_folder, timeout=8)
