"""What the step records tell: lives of requests, their names, and a step in words."""

from kernelserve_widgets.history.image_use import ImageUse
from kernelserve_widgets.history.request_life import RequestLife, RequestState, Span, SpanKind
from kernelserve_widgets.history.request_names import RequestNames
from kernelserve_widgets.history.step_history import StepHistory, step_end
from kernelserve_widgets.history.step_words import count_of, describe_step, reason_in_words

__all__ = [
    "ImageUse",
    "RequestLife",
    "RequestNames",
    "RequestState",
    "Span",
    "SpanKind",
    "StepHistory",
    "count_of",
    "describe_step",
    "reason_in_words",
    "step_end",
]
