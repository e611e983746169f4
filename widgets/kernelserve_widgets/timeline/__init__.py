"""What the last steps did: a picture, a slider over the steps, tables and traces."""

from kernelserve_widgets.timeline.timeline import Timeline

__all__ = ["Timeline"]
