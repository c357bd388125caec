"""Triton's response sender of one request: responses in order, then exactly one FINAL, whatever happens in between.

Sending and asking about a cancel wait for Triton's own process, so they are called in threads. A response that comes after
the FINAL (its thread was late when the request was cancelled) is left out. Imported by model.py.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import triton_python_backend_utils as pb_utils


class ResponseChannel:
    def __init__(self, sender: Any) -> None:
        self._sender = sender
        self._lock = Lock()
        self._ended = False

    def send(self, tensors: list[Any]) -> None:
        with self._lock:
            if not self._ended:
                self._sender.send(pb_utils.InferenceResponse(tensors))

    def end(self, failure: Any = None) -> None:
        """`failure`: a TritonError, sent as a response of its own before the empty FINAL."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            try:
                if failure is not None:
                    self._sender.send(pb_utils.InferenceResponse(output_tensors=[], error=failure))
            finally:
                self._sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def cancelled(self) -> bool:
        with self._lock:
            return self._ended or bool(self._sender.is_cancelled())
