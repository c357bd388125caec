"""What the only writer of a database knows to be in it, so that it need not ask again: accounts, keys, open holds and lists of
prices. Only `store/sqlite.py` uses it: where several processes write, nobody knows.

Records are the very objects that operations change. They are right as long as every batch is stored, so after one that was not,
whatever the reason, everything is forgotten and read anew. What is full begins anew, too; it costs a look-up, nothing else.
"""

from typing import TypeVar

from services.billing.key import Key
from services.billing.ledger import Account
from services.billing.price import PriceVersion
from services.billing.reservation import Reservation, State
from services.billing.store.port import Changes, Loaded

T = TypeVar("T")
Scope = tuple[str, str]
MAX_KEPT = 16_384


class Kept:
    """See above. Used by the writer's thread alone."""

    def __init__(self, at_most: int = MAX_KEPT) -> None:
        self._at_most = at_most
        self.accounts: dict[str, Account] = {}
        self.keys: dict[str, Key] = {}
        # Open ones only: most are closed within a minute, and hardly any is asked for afterwards.
        self.holds: dict[str, Reservation] = {}
        # By model and account (empty: for all), in the order in which they apply.
        self.prices: dict[Scope, list[PriceVersion]] = {}

    def forget(self) -> None:
        """A batch was not stored."""
        for records in (self.accounts, self.keys, self.holds, self.prices):
            records.clear()

    def keep_prices(self, scope: Scope, versions: list[PriceVersion]) -> None:
        """All versions of a scope, as they are stored."""
        self._put(self.prices, {scope: versions})

    def stored(self, loaded: Loaded, changes: Changes) -> None:
        """A batch was stored: what it loaded and made is known now."""
        self._put(self.accounts, loaded.accounts)
        self._put(self.accounts, changes.new_accounts)
        self._put(self.keys, loaded.keys)
        self._put(self.keys, changes.new_keys)
        for changed in (changes.changed_reservations, changes.new_reservations):
            opened = {name: one for name, one in changed.items() if one.state is State.HELD}
            for name in changed.keys() - opened.keys():
                self.holds.pop(name, None)
            self._put(self.holds, opened)
        for version in changes.prices:
            self.prices.pop((version.model, version.account_id), None)

    def _put(self, kept: dict[str, T] | dict[Scope, T], found: dict[str, T] | dict[Scope, T]) -> None:
        if len(kept) + len(found) > self._at_most:
            kept.clear()
        kept.update(found)  # type: ignore[arg-type]
