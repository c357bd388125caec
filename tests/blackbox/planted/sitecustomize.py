"""Bugs, one in each service, for tests/blackbox/test_canaries.py: Python imports this by its name, wherever it is on the path.

Most raise an exception whose text is what was being worked on, as careless code does.
"""

import sys
from typing import Any

QUARANTINED = 12_345

if "services.cli.main" in sys.orig_argv:
    if "edge" in sys.orig_argv:
        from services.edge.body_reader import BodyReader

        _read = BodyReader._read

        def _read_badly(self: BodyReader, body: bytes, check: Any) -> Any:
            if b"crash-the-edge" in body:
                raise ValueError(body.decode())
            return _read(self, body, check)

        BodyReader._read = _read_badly  # type: ignore[method-assign]
    if "router" in sys.orig_argv:
        from services.router.transport import openai_body

        _build = openai_body.build

        def _build_badly(dispatch: Any, *rest: Any) -> bytes:
            if dispatch.model == "crash-the-router":
                raise KeyError(str(dispatch.members))
            return _build(dispatch, *rest)

        openai_body.build = _build_badly  # type: ignore[assignment]
    if "billing" in sys.orig_argv:
        from speedinfer.billing.v1 import reservation_pb2

        from services.billing.operations.reserve import Reserve
        from services.billing.operations.settle import Settle

        _apply = Reserve.apply

        def _apply_badly(self: Reserve, books: Any) -> Any:
            if self.item.model == "crash-billing":
                raise RuntimeError(str(self.item))
            return _apply(self, books)

        Reserve.apply = _apply_badly  # type: ignore[method-assign]
        _settle = Settle.apply

        def _settle_badly(self: Settle, books: Any) -> Any:
            if self.item.usage.prompt_tokens == QUARANTINED:
                return self._result(reservation_pb2.SETTLE_STATUS_INVALID, field="usage")
            return _settle(self, books)

        Settle.apply = _settle_badly  # type: ignore[method-assign]
