"""The engine against an auditor that was written from the contract and imports nothing of it.

20,000 random operations, more by FUZZ_LEDGER_OPERATIONS, in episodes with a seed each. After each batch every answer, every
balance, hold, counter and state must be the auditor's; at the end of an episode `ledger verify` must be clean, and everything
stored must be what the auditor has. A failure names its seed: FUZZ_LEDGER_SEED runs that episode alone.
"""

import os
import secrets
from collections.abc import Sequence
from random import Random

import pytest

from services.billing.store.port import StoreError
from tests.contract.billing.service import MovedClock
from tests.ledger import answers
from tests.ledger.asker import Asked, Asker
from tests.ledger.auditor import Auditor, shown
from tests.ledger.disk import Disk
from tests.ledger.records import DAY_MS
from tests.ledger.subject import Subject, expected, operation

OPERATIONS = int(os.environ.get("FUZZ_LEDGER_OPERATIONS", "20000"))
SEED = os.environ.get("FUZZ_LEDGER_SEED")
EPISODE = 2_500
LARGEST_BATCH = 80
# How often the disk fails, and how.
FAULTY = 0.04
FAULTS = ("full", "read_only", "fsync")
# How many of the calls about one id a failure tells of.
TOLD = 12


class Episode:
    """One database, one seed."""

    def __init__(self, seed: int, database: str, disk: Disk) -> None:
        self._seed = seed
        self._disk = disk
        self._chance = Random(seed)
        # Near the end of a month, so that days and months end within it.
        self._clock = MovedClock(1_800_000_000_000 + self._chance.randrange(30 * DAY_MS))
        self._auditor = Auditor(self._clock.wall, self._clock.monotonic)
        self._asker = Asker(self._chance, self._auditor)
        self._subject = Subject(database, self._clock)
        self._batches = 0
        # The last batch failed: each open hold has a full lease when billing has its database again.
        self._lost = False

    async def run(self, operations: int) -> None:
        self._subject.start()
        try:
            self._auditor.look()
            await self._batch(self._asker.open_up())
            while len(self._asker.log) < operations:
                await self._pass_time()
                if self._lost:
                    self._auditor.restart()
                    self._lost = False
                self._auditor.look()
                size = self._chance.choice((1, 3, 10, 40, LARGEST_BATCH))
                if self._chance.random() < FAULTY:
                    await self._faulty_batch(size)
                else:
                    await self._batch([self._asker.next() for _ in range(size)])
            self._compare_everything()
        finally:
            await self._subject.stop()

    async def _pass_time(self) -> None:
        chance = self._chance
        dice = chance.random()
        if dice < 0.03:
            await self._subject.stop()
            # Down for a while, and monotonic time begins anew.
            self._clock.wall += chance.choice((0, 1_000, 3_600_000))
            self._clock.monotonic = chance.randrange(10_000_000)
            self._subject.start()
            self._move(0, 0)
            self._auditor.restart()
            self._lost = False
        elif dice < 0.05:
            # Stopped as by SIGSTOP: time went on.
            self._move(*[chance.choice((30_001, 90_000, 4_000_000))] * 2)
        elif dice < 0.07:
            # Somebody sets the clock ahead: no lease is shorter for it.
            self._move(chance.choice((60_000, 3_600_000, DAY_MS, 31 * DAY_MS)), 0)
        elif dice < 0.072:
            self._move(91 * DAY_MS, 0)
        else:
            self._move(*[chance.choice((0, 1, 300, 2_000, 12_000, 30_000))] * 2)

    def _move(self, wall_ms: int, monotonic_ms: int) -> None:
        self._clock.wall += wall_ms
        self._clock.monotonic += monotonic_ms
        self._auditor.now_ms, self._auditor.monotonic_ms = self._clock.wall, self._clock.monotonic

    async def _faulty_batch(self, size: int) -> None:
        """The disk fails for a batch. Unless it wrote nothing, nothing of it stands, and it is all asked again next time."""
        before = self._asker.copy()
        asked = [self._asker.next() for _ in range(size)]
        self._disk.fails = self._chance.choice(FAULTS)
        try:
            await self._batch(asked)
        except StoreError:
            self._asker, self._auditor = before, before.auditor
            self._lost = True
        finally:
            self._disk.fails = ""

    async def _batch(self, asked: Sequence[Asked]) -> None:
        self._batches += 1
        found = await self._subject.do([operation(one.kind, one.item, *one.more) for one in asked])
        for place, (one, answer) in enumerate(zip(asked, found, strict=True)):
            said = answers.read(answer)
            assert said == one.answer, self._told(one, f"call {place} of the batch", said, one.answer)
        assert self._subject.leases == len(self._auditor.open), f"{self._where()}: leases"
        there = self._subject.accounts()
        now_ms = self._auditor.now_ms
        for account_id, account in self._auditor.accounts.items():
            mine, theirs = there.get(account_id), expected(account, now_ms)
            assert mine == theirs, self._told(asked[-1], f"account {account_id}", mine, theirs)
        for one in asked:
            if isinstance(one.item, list) or not getattr(one.item, "reservation_id", ""):
                continue
            reservation_id = one.item.reservation_id
            known = self._auditor.holds.get(reservation_id)
            stands = self._subject.hold(reservation_id)
            assert stands == (known and shown(known)), self._told(one, "reservation", stands, known and shown(known))

    def _compare_everything(self) -> None:
        problems = self._subject.verify()
        assert problems == [], f"{self._where()}: {problems}"
        for account_id, account in self._auditor.accounts.items():
            assert self._subject.entries(account_id) == account.entries, f"{self._where()}: entries of {account_id}"
        for reservation_id, hold in self._auditor.holds.items():
            assert self._subject.hold(reservation_id) == shown(hold), f"{self._where()}: {reservation_id}"

    def _where(self) -> str:
        return f"FUZZ_LEDGER_SEED={self._seed}, batch {self._batches}"

    def _told(self, one: Asked, what: str, said: object, wanted: object) -> str:
        mine = getattr(one.item, "reservation_id", "")
        about = [each for each in self._asker.log if mine and getattr(each.item, "reservation_id", "") == mine]
        story = "\n".join(f"  {each.kind} {_short(each.item)} -> {each.answer}" for each in about[-TOLD:])
        return f"{self._where()}, {what}: {one.kind} {_short(one.item)}\n said   {said}\n wanted {wanted}\n{story}"


def _short(item: object) -> str:
    return " ".join(str(item).split())


def sizes() -> list[int]:
    """How many operations each episode has."""
    if SEED is not None:
        return [EPISODE]
    whole, rest = divmod(OPERATIONS, EPISODE)
    return [EPISODE] * whole + [rest] * (rest > 0)


@pytest.mark.parametrize("size", [pytest.param(size, id=str(number)) for number, size in enumerate(sizes())])
async def test_the_engine_does_what_the_auditor_says(database: str, size: int) -> None:
    seed = secrets.randbelow(2**32) if SEED is None else int(SEED)
    disk = Disk()
    # Of another store's disk nothing is known here; it never fails, and a seed is the same run there up to its first failure.
    with disk.under_sqlite():
        await Episode(seed, database, disk).run(size)
