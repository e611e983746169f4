"""Keeps a still form of ipywidgets in a notebook that is saved while they are shown."""

from __future__ import annotations

from typing import Any

from kernelserve_widgets.views.quiet_widget import QuietWidget

__all__ = ["Keeper"]


class Keeper(QuietWidget):
    """Has no view; its script, static/keeper.js, acts when JupyterLab saves. Discard it with the widgets."""

    def __init__(self, tree: Any) -> None:
        """Keep `tree`, an ipywidget that is shown: boxes of HTML, pictures, fields and buttons."""
        super().__init__("keeper", css="", view_id=tree.model_id)
