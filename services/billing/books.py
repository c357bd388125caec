"""The working set of one batch: what it loaded, what it changes, and the leases that follow from it.

Operations read and change records here and nowhere else; the engine saves all of it in one transaction. Only the writer's
thread uses it. An operation judges first and changes afterwards, so that a refusal leaves no trace.
"""

from collections import defaultdict
from collections.abc import Iterable

from services.billing import chain, ledger, limits
from services.billing.key import Key
from services.billing.lease import Lease, Leases
from services.billing.ledger import Account, Transaction
from services.billing.limits import Counters
from services.billing.price import PriceVersion
from services.billing.reservation import Reservation, State
from services.billing.store.port import Changes, DoneOperation, Names, NewEntry, NewTransaction, Session

PricesMark = tuple[int, int, dict[tuple[str, str], PriceVersion | None]]


class Books:
    """Everything that the operations of a batch see. All of them see the same moment."""

    def __init__(self, session: Session, leases: Leases, monotonic_ms: int, *, sweeps: bool = True) -> None:
        # Letting holds lapse is up to this process.
        self.sweeps = sweeps
        # Milliseconds since the epoch; see `begin`.
        self.now_ms = 0
        self.monotonic_ms = monotonic_ms
        self.leases = leases
        self.changes = Changes()
        # Applied to the leases once the batch is on disk.
        self.granted: dict[str, Lease] = {}
        self.closed: set[str] = set()
        self._session = session
        self._reservations: dict[str, Reservation] = {}
        self._operations: dict[str, DoneOperation] = {}
        self._keys: dict[str, Key] = {}
        self._accounts: dict[str, Account] = {}
        self._bearers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        # Open holds of a line of keys: as stored before the batch, and the batch's own change.
        self._stored_holds: dict[str, int] = {}
        self._new_holds: defaultdict[str, int] = defaultdict(int)
        self._prices: dict[tuple[str, str], PriceVersion | None] = {}

    def fetch(self, names: Names) -> None:
        """Load what is named. What is here already stays as it is."""
        found = self._session.load(names)
        self._reservations = {**found.reservations, **self._reservations}
        self._operations = {**found.operations, **self._operations}
        self._keys = {**found.keys, **self._keys}
        self._accounts = {**found.accounts, **self._accounts}

    def begin(self, wall_ms: int) -> None:
        """Set the moment of the batch, once all that it is about is here. See `limits.moment`."""
        self.now_ms = limits.moment(wall_ms, (account.counters for account in self._accounts.values()))

    def reservation(self, reservation_id: str) -> Reservation | None:
        """A reservation that was named."""
        return self._reservations.get(reservation_id)

    def operation(self, operation_id: str) -> DoneOperation | None:
        """An operator's mutation that was named and done."""
        return self._operations.get(operation_id)

    def key(self, key_id: str) -> Key | None:
        """A key that was named."""
        return self._keys.get(key_id)

    def account(self, account_id: str) -> Account | None:
        """An account that was named, or is that of a named key or reservation."""
        return self._accounts.get(account_id)

    def bearer(self, account_id: str, idempotency_key: str) -> tuple[str, State] | None:
        """The held or charged reservation of the account that bears the idempotency key."""
        candidates = dict(self._session.bearers(account_id, idempotency_key))
        # This batch may have closed some of them, and opened or charged others.
        names = candidates.keys() | self._bearers[account_id, idempotency_key]
        candidates |= {name: self._reservations[name].state for name in names if name in self._reservations}
        open_or_charged = [
            (state is State.HELD, name, state)
            for name, state in candidates.items()
            if state is State.HELD or state.charged
        ]
        return max(open_or_charged)[1:] if open_or_charged else None

    def price_now(self, model: str, account_id: str) -> PriceVersion | None:
        """The version in effect: the account's own, else the general one."""
        for scope in (account_id, ""):
            if (model, scope) not in self._prices:
                self._prices[model, scope] = self._session.price_at(model, scope, self.now_ms)
            if (version := self._prices[model, scope]) is not None:
                return version
        return None

    def price_latest(self, model: str, account_id: str) -> PriceVersion | None:
        """The version that applies last, of this batch or stored: the account's own, else the general one."""
        for scope in (account_id, ""):
            stored = self._session.price_latest(model, scope)
            mine = [one for one in self.changes.prices if one.model == model and one.account_id == scope]
            versions = [*([stored] if stored else []), *mine]
            if versions:
                # Of equals, the one that was set later.
                return max(enumerate(versions), key=lambda pair: (pair[1].effective_from_ms, pair[0]))[1]
        return None

    def price(self, version: str) -> PriceVersion:
        """The version that a reservation names."""
        for mine in self.changes.prices:
            if mine.version == version:
                return mine
        return self._session.price(version)

    def counters(self, key: Key) -> Counters:
        """The counters of the key's line at this moment. Changed ones must be given to `keep_counters`."""
        counters = self.changes.counters.get(key.line_id) or self._session.counters(key.line_id)
        counters.roll(self.now_ms)
        return counters

    def keep_counters(self, key: Key, counters: Counters) -> None:
        """Save the counters of a key's line."""
        self.changes.counters[key.line_id] = counters

    def open_holds(self, key: Key) -> int:
        """How many holds of the key's line are open."""
        line_id = key.line_id
        if line_id not in self._stored_holds:
            self._stored_holds[line_id] = self._session.open_holds(line_id)
        return self._stored_holds[line_id] + self._new_holds[line_id]

    def lease(self, reservation_id: str) -> Lease | None:
        """The lease of an open hold."""
        return self.granted.get(reservation_id) or self.leases.get(reservation_id)

    def renew(self, reservation: Reservation) -> tuple[Lease, bool]:
        """The lease of an open hold after its renewal, and whether it lasts longer by it. The process that sweeps is told."""
        name = reservation.reservation_id
        lease = self.lease(name)
        if lease is None:
            # Another process made the hold a moment ago.
            lease = self.leases.found(
                self.monotonic_ms, self.now_ms, reservation.created_at_ms, reservation.hard_end_ms
            )
            self.granted[name] = lease
        extended = self.leases.extend(lease, self.monotonic_ms)
        if extended and not self.sweeps:
            self.changes.renewed.add(name)
        return lease, extended

    def renewed_elsewhere(self, reservation_ids: Iterable[str]) -> set[str]:
        """Holds that another process renewed since this was last asked; each has a longer lease now."""
        renewed: set[str] = set()
        for reservation_id, times in self._session.renewals(reservation_ids).items():
            lease = self.lease(reservation_id)
            if lease is not None and times > lease.renewals:
                lease.renewals = times
                if self.leases.extend(lease, self.monotonic_ms):
                    renewed.add(reservation_id)
        return renewed

    def correct_counters(self, reservation: Reservation, tokens: int, spend_nanos: int) -> None:
        """Add a difference to what an account's reservation counts against its key and account. Its account is saved by
        whoever closes it."""
        account = self._accounts[reservation.account_id or ""]
        account.counters.roll(self.now_ms)
        account.counters.correct(reservation.created_at_ms, tokens, spend_nanos)
        key = self._keys.get(reservation.key_id)
        if key is not None and key.limits.counted:
            counters = self.counters(key)
            counters.correct(reservation.created_at_ms, tokens, spend_nanos)
            self.keep_counters(key, counters)

    def add_account(self, account: Account) -> None:
        """Open an account."""
        self._accounts[account.account_id] = account
        self.changes.new_accounts[account.account_id] = account

    def limit_account(self, account: Account) -> None:
        """Save an account whose limits changed."""
        if account.account_id not in self.changes.new_accounts:
            self.changes.limited_accounts[account.account_id] = account

    def add_key(self, key: Key) -> None:
        """Add a key."""
        self._keys[key.key_id] = key
        self.changes.new_keys[key.key_id] = key

    def change_key(self, key: Key) -> None:
        """Save a key that changed."""
        if key.key_id not in self.changes.new_keys:
            self.changes.changed_keys[key.key_id] = key

    def add_price(self, version: PriceVersion) -> None:
        """Add a version."""
        self.changes.prices.append(version)
        if version.effective_from_ms <= self.now_ms:
            self._prices[version.model, version.account_id] = version

    def mark_prices(self) -> PricesMark:
        """Where versions and operations stand, for `undo_prices`."""
        return len(self.changes.prices), len(self.changes.operations), dict(self._prices)

    def undo_prices(self, mark: PricesMark) -> None:
        """Take back the versions that were added since, and that they were done. Nothing else may have happened."""
        prices, operations, self._prices = mark
        for done in self.changes.operations[operations:]:
            del self._operations[done.operation_id]
        del self.changes.prices[prices:]
        del self.changes.operations[operations:]

    def add_operation(self, done: DoneOperation) -> None:
        """Remember a mutation and its answer."""
        self._operations[done.operation_id] = done
        self.changes.operations.append(done)

    def remember(self, reservation: Reservation) -> None:
        """Store an id as closed that was never held."""
        self._reservations[reservation.reservation_id] = reservation
        self.changes.new_reservations[reservation.reservation_id] = reservation

    def hold(self, reservation: Reservation, account: Account, lease: Lease) -> None:
        """Set a hold aside."""
        account.held_nanos += reservation.hold_nanos
        account.open_holds += 1
        self._touch(account)
        self.remember(reservation)
        self._bear(reservation)
        self._new_holds[self._keys[reservation.key_id].line_id] += 1
        self.granted[reservation.reservation_id] = lease
        self.closed.discard(reservation.reservation_id)

    def close(self, reservation: Reservation, account: Account, state: State) -> None:
        """Give an open hold back; what is charged for it is posted apart. An EXPIRED one turns LATE the same way."""
        if reservation.state is State.HELD:
            self._new_holds[self._keys[reservation.key_id].line_id] -= 1
            account.held_nanos -= reservation.hold_nanos
            account.open_holds -= 1
            self.granted.pop(reservation.reservation_id, None)
            self.closed.add(reservation.reservation_id)
        self._bear(reservation)
        reservation.state = state
        reservation.closed_at_ms = self.now_ms
        self._touch(account)
        if reservation.reservation_id not in self.changes.new_reservations:
            self.changes.changed_reservations[reservation.reservation_id] = reservation

    def post(self, transaction: Transaction) -> int:
        """Book a transaction; answers the number of the customer's entry. The caller has checked that balances fit."""
        booked = NewTransaction(
            self._session.next_transaction(),
            transaction.kind,
            self.now_ms,
            transaction.request_id,
            transaction.operation_id,
            transaction.note,
            transaction.charge,
        )
        self.changes.transactions.append(booked)
        entries: list[NewEntry] = []
        for leg in transaction.legs:
            entry = NewEntry(self._session.next_entry(), booked.number, leg.account_id, leg.amount_nanos, None, None)
            entries.append(entry)
            if leg.account_id in ledger.HOUSE:
                continue
            account = self._accounts[leg.account_id]
            assert ledger.fits(account.balance_nanos, leg.amount_nanos), "the balance must fit"
            if account.chain_head is None:
                account.chain_head = chain.start(account.account_id, account.entries, account.balance_nanos)
            account.balance_nanos += leg.amount_nanos
            account.entries += 1
            entry.account_seq, entry.balance_after_nanos = account.entries, account.balance_nanos
            self._touch(account)
        self._chain(booked, entries)
        self.changes.entries += entries
        return entries[0].number

    def _chain(self, booked: NewTransaction, entries: list[NewEntry]) -> None:
        """Each customer's leg says all of them, so it is chained once all are known."""
        for entry in filter(chain.is_chained, entries):
            account = self._accounts[entry.account_id]
            assert account.chain_head is not None, "its chain was begun"
            entry.chain = account.chain_head = chain.link(account.chain_head, booked, entries, entry)

    def _touch(self, account: Account) -> None:
        if account.account_id not in self.changes.new_accounts:
            self.changes.changed_accounts[account.account_id] = account

    def _bear(self, reservation: Reservation) -> None:
        if reservation.idempotency_key:
            self._bearers[reservation.account_id or "", reservation.idempotency_key].add(reservation.reservation_id)
