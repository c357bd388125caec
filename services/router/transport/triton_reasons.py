"""Why an answer ended, in the model's own words. Pure; imported by the Triton transport.

NVIDIA's ensemble and BLS models say nothing of it; the LLM-API model has `finish_reason` and `stop_reason`. A word that means
that the model gave up is handed on as `answer.py` knows it, so that the answer does not count.
"""

from typing import Any

from services.router.transport.triton_model import TensorPlan
from services.router.transport.triton_tensors import Outputs

STOP = "stop"
LENGTH = "length"
# As models of one kind or another say it -> as OpenAI's API, or answer.py, does. A word that is not here says nothing, and the
# counts decide; so do the stock model's own words for nothing: None, N/A, not_finished.
_WORDS = {
    **dict.fromkeys(("stop", "stop_words", "stop_word", "end_id", "eos", "eos_token"), STOP),
    **dict.fromkeys(("length", "max_tokens", "max_length"), LENGTH),
    **dict.fromkeys(("abort", "aborted"), "abort"),
    **dict.fromkeys(("cancelled", "canceled"), "cancelled"),
    **dict.fromkeys(("timeout", "timed_out"), "timeout"),
    **dict.fromkeys(("error", "failed"), "error"),
}


class ReasonReader:
    """The reasons in one answer; the last that was given counts."""

    def __init__(self, plan: TensorPlan, stops: tuple[str, ...]) -> None:
        self._plan, self._stops = plan, stops
        # A word of OpenAI's or one that answer.py takes for a failure; empty: the model did not say.
        self.finish = ""
        self._stop = ""

    @property
    def failed(self) -> bool:
        """The model gave up."""
        return self.finish not in ("", STOP, LENGTH)

    @property
    def at_stop(self) -> bool:
        """The model ended at one of the client's own stop sequences: the beginning of one at the end is no text."""
        return self._stop in self._stops and self.finish in ("", STOP)

    def read(self, outputs: Outputs) -> None:
        """Take in what one response says."""
        self.finish = _WORDS.get(_text(outputs, self._plan.finish_reason_output).strip().casefold(), self.finish)
        self._stop = _text(outputs, self._plan.stop_reason_output) or self._stop


def _text(outputs: Outputs, name: str) -> str:
    values: list[Any] = outputs.get(name, [])
    value = values[0] if values else b""
    # The ids of stop tokens, which HTTP may give as numbers, name no text of the client's.
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
