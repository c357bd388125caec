"""The bound on the items of one call, and the way of a call's items through the engine. Servicers use it."""

from collections.abc import Sequence
from typing import Any

from services.billing.engine import Engine
from services.billing.operations.operation import Operation
from services.common.errors import InvalidArgument


class Intake:
    """The engine, for calls with many items."""

    def __init__(self, engine: Engine, max_items: int) -> None:
        self._engine = engine
        self._max_items = max_items

    def check(self, items: Sequence[Any]) -> None:
        """InvalidArgument where a call has more items than one may have."""
        if len(items) > self._max_items:
            raise InvalidArgument(f"a call has at most {self._max_items} items", field="items")

    async def run(self, operations: Sequence[Operation]) -> list[Any] | None:
        """The items' answers, or None where billing is busy and none was looked at."""
        self.check(operations)
        return await self._engine.submit(operations)
