"""The engine under test over a real store, without gRPC: batches go in as the servicers give them, one a commit."""

from collections.abc import Sequence
from typing import Any

from services.billing.audit import audit
from services.billing.engine import Engine
from services.billing.lease import Leases
from services.billing.metrics import Metrics
from services.billing.operations.account import CreateAccount, PostAdjustment, PostCredit, SetAccountLimits
from services.billing.operations.key import CreateKey, RevokeKey, RotateKey
from services.billing.operations.operation import Operation
from services.billing.operations.price import SetPrice, SetPriceList
from services.billing.operations.release import Lapse, Release
from services.billing.operations.renew import Renew
from services.billing.operations.reserve import Reserve
from services.billing.operations.settle import Settle
from services.billing.rules import Rules
from services.billing.store.open import open_store
from tests.contract.billing.service import MovedClock
from tests.ledger.auditor import Answer
from tests.ledger.records import Account, day_start, month_start

RULES = Rules()
# More than can ever be open at once, so that every sweep takes all that are over.
ALL = 1_000_000
_BY_KIND: dict[str, Any] = {
    "reserve": Reserve,
    "settle": Settle,
    "release": Release,
    "post_credit": PostCredit,
    "adjust": PostAdjustment,
    "limit_account": SetAccountLimits,
    "create_key": CreateKey,
    "revoke": RevokeKey,
    "rotate": RotateKey,
    "set_price": SetPrice,
}


def operation(kind: str, item: Any, *more: str) -> Operation:
    """The engine's operation for an item of the wire's."""
    match kind:
        case "renew":
            return Renew(item)
        case "lapse":
            return Lapse(ALL)
        case "create_account":
            return CreateAccount(item, RULES, *more)
        case "set_price_list":
            return SetPriceList([SetPrice(one, RULES) for one in item])
    made: Operation = _BY_KIND[kind](item, RULES)
    return made


class Subject:
    """Billing without its servicers. It can be started again on the same data."""

    def __init__(self, database: str, clock: MovedClock) -> None:
        self._database, self._clock = database, clock

    def start(self) -> None:
        self._store = open_store(self._database, self._clock.wall_ms)
        self._leases = Leases(60_000)
        self._engine = Engine(self._store, self._leases, self._clock, Metrics(), max_queue=10_000, max_batch=10_000)
        self._engine.start()
        self._reader = self._store.reader()

    async def stop(self) -> None:
        self._reader.close()
        await self._engine.stop()
        self._store.close()

    async def do(self, operations: Sequence[Operation]) -> list[Any]:
        """One batch, in order, in one commit."""
        answers = await self._engine.submit(operations)
        assert answers is not None, "the queue is larger than any batch"
        return answers

    @property
    def leases(self) -> int:
        """How many leases the writer keeps."""
        return len(self._leases)

    def hold(self, reservation_id: str) -> Answer | None:
        """A reservation as it is stored."""
        found = self._reader.reservation(reservation_id)
        if found is None:
            return None
        counts = found.usage and (found.usage.prompt, found.usage.cached, found.usage.completion)
        return {
            "state": found.state.name,
            "account": found.account_id or "",
            "key": found.key_id,
            "hold": found.hold_nanos,
            "output_limit": found.output_limit,
            "version": found.price_version,
            "lease_ms": 0,
            "charge": found.charge_nanos,
            "counts": counts,
            "overrun": found.overrun,
        }

    def accounts(self, after: str = "") -> dict[str, Answer]:
        """All accounts with greater ids as they are stored, with what is used in the windows that are current."""
        found: dict[str, Answer] = {}
        for one in self._reader.accounts(after, ALL):
            counters = one.counters
            counters.roll(self._clock.wall)
            found[one.account_id] = {
                "balance": one.balance_nanos,
                "held": one.held_nanos,
                "open": one.open_holds,
                "entries": one.entries,
                "minute": (counters.minute.requests, counters.minute.tokens),
                "day": counters.day.spend_nanos,
                "month": counters.month.spend_nanos,
            }
        return found

    def entries(self, account_id: str) -> list[int]:
        """The account's own legs, in order."""
        return [one.amount_nanos for one in self._reader.entries(account_id, 0, 2**62, 0, ALL)]

    def verify(self) -> list[str]:
        """What the product's own audit finds."""
        with self._reader.book() as book:
            return audit(book, _unsealed).problems


def expected(account: Account, now_ms: int) -> Answer:
    """An account as the auditor has it, in the shape of `Subject.accounts`."""
    return {
        "balance": sum(account.entries),
        "held": account.held,
        "open": account.used.open,
        "entries": len(account.entries),
        "minute": account.used.minute(now_ms),
        "day": account.used.spend(day_start(now_ms)),
        "month": account.used.spend(month_start(now_ms)),
    }


def _unsealed(_key_id: str, _statement: bytes, _signature: bytes) -> str:
    return "nothing is sealed here"
