"""What a write transaction looks up one at a time, in the SQL that all stores understand; see `sql_reader` for its marks.

The stores' own sessions are built on it. Loading and saving are theirs.
"""

# Statements are put together from constants of ours only; values always go in as parameters.
# ruff: noqa: S608

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from services.billing.limits import Counters, Window
from services.billing.price import PriceVersion
from services.billing.reservation import State
from services.billing.store import rows
from services.billing.store.port import DoneOperation

PRICE_CACHE = 4_096
PERIODS = ("minute", "day", "month")


class SqlSession(ABC):
    """See Session. `prices` outlives the session: price versions never change, so what was read once holds."""

    def __init__(self, prices: dict[str, PriceVersion]) -> None:
        self._prices = prices

    @abstractmethod
    def _all(self, statement: str, *values: Any) -> list[Any]:
        """All rows."""

    def bearers(self, account_id: str, idempotency_key: str) -> list[tuple[str, State]]:
        """See Session. Two statements, because each of the two partial indexes serves one of them."""
        found: list[tuple[str, State]] = []
        for condition in ("state IN (1, 2)", "state = 5"):
            statement = (
                "SELECT reservation_id, state FROM reservation WHERE account_id = ? AND idempotency_key = ? "
                f"AND idempotency_key <> '' AND {condition}"
            )
            found += [(row[0], State(row[1])) for row in self._all(statement, account_id, idempotency_key)]
        return found

    def price_at(self, model: str, account_id: str, at_ms: int) -> PriceVersion | None:
        """See Session."""
        return self._price_of(model, account_id, at_ms)

    def price_latest(self, model: str, account_id: str) -> PriceVersion | None:
        """See Session."""
        return self._price_of(model, account_id, 2**63 - 1)

    def price(self, version: str) -> PriceVersion:
        """See Session."""
        if version not in self._prices:
            found = self._all(f"SELECT {rows.PRICE} FROM price_version WHERE version = ?", version)
            assert found, "a pinned price version exists"
            if len(self._prices) >= PRICE_CACHE:
                self._prices.clear()
            self._prices[version] = rows.price(found[0])
        return self._prices[version]

    def counters(self, key_id: str) -> Counters:
        """See Session."""
        statement = "SELECT period, start_ms, requests, tokens, spend_nanos FROM key_counter WHERE key_id = ?"
        windows = {row[0]: Window(*row[1:]) for row in self._all(statement, key_id)}
        return Counters(*(windows.get(period) or Window() for period in PERIODS))

    def open_holds(self, key_id: str) -> int:
        """See Session."""
        found = self._all(
            "SELECT count(*) FROM reservation WHERE state = 1 "
            "AND key_id IN (SELECT key_id FROM api_key WHERE first_key_id = ?)",
            key_id,
        )
        return int(found[0][0])

    def _operations(self, wanted: set[str]) -> dict[str, DoneOperation]:
        columns = "operation_id, kind, content, answer, done_at_ms"
        return self._by_id("operation", "operation_id", columns, wanted, lambda row: DoneOperation(*row))

    def _by_id(
        self,
        table: str,
        name: str,
        columns: str,
        wanted: Iterable[str],
        make: Callable[[rows.Row], Any],
        only: str = "",
    ) -> dict[str, Any]:
        """Rows by id."""
        if not (ids := list(wanted)):
            return {}
        statement = f"SELECT {columns} FROM {table} WHERE {name} IN (?*) {only}"
        return {row[0]: make(row) for row in self._all(statement, ids)}

    def _price_of(self, model: str, account_id: str, at_ms: int) -> PriceVersion | None:
        found = self._all(
            "SELECT version FROM price_version WHERE model = ? AND account_id = ? AND effective_from_ms <= ? "
            "ORDER BY effective_from_ms DESC, number DESC LIMIT 1",
            model,
            account_id,
            at_ms,
        )
        return self.price(found[0][0]) if found else None
