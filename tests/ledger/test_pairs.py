"""Every operation in every state of a reservation, and every pair of them: what is answered, what it becomes, what is booked.

The table is the contract's, with a column for a repetition with other content and one for usage that cannot be charged.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from google.protobuf.message import Message
from speedinfer.billing.v1 import account_pb2, key_pb2, price_pb2
from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.common.v1 import usage_pb2

from services.common.ids import uuid7
from services.common.money import to_money
from tests.contract.billing.service import MovedClock
from tests.ledger import answers
from tests.ledger.auditor import Answer
from tests.ledger.operator_items import USD, tier
from tests.ledger.subject import Subject, operation

# ANSWER, or ANSWER>state where it becomes another one. "-": no lapse.
TABLE = """
            reserve    reserve   renew    settle        settle        settle    release              sweep
            same       other              same          other         no usage
unknown     HELD>held  HELD>held UNKNOWN  UNKNOWN       UNKNOWN       UNKNOWN   RELEASED>remembered  -
held        HELD       CONFLICT  RENEWED  SETTLED>settled SETTLED>settled INVALID RELEASED>released  over>expired
settled     SETTLED    CONFLICT  CLOSED   SETTLED       CONFLICT      INVALID   CONFLICT             -
released    RELEASED   RELEASED  CLOSED   CONFLICT      CONFLICT      INVALID   RELEASED             -
remembered  RELEASED   RELEASED  CLOSED   CONFLICT      CONFLICT      INVALID   RELEASED             -
expired     EXPIRED    EXPIRED   CLOSED   LATE>late     LATE>late     INVALID   EXPIRED              -
late        LATE       CONFLICT  CLOSED   LATE          CONFLICT      INVALID   CONFLICT             -
"""
COLUMNS = ("reserve same", "reserve other", "renew", "settle same", "settle other", "settle none", "release", "sweep")
CELLS = {row.split()[0]: dict(zip(COLUMNS, row.split()[1:], strict=True)) for row in TABLE.splitlines()[3:]}
STATES = tuple(CELLS)
# What is sent: each content as the first or the other one.
OPERATIONS = ("reserve a", "reserve b", "renew", "settle a", "settle b", "settle none", "release", "sweep")
# How a reservation comes into each state: before the lease is over and after.
WAYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown": ((), ()),
    "held": ((), ("reserve a",)),
    "settled": ((), ("reserve a", "settle a")),
    "released": ((), ("reserve a", "release")),
    "remembered": ((), ("release",)),
    "expired": (("reserve a",), ()),
    "late": (("reserve a",), ("settle a",)),
}
# At 1 USD per million tokens.
PROMPT = {"a": 500_000, "b": 600_000}
OUTPUT = 500_000
COMPLETION = {"a": 7, "b": 8}


@dataclass(frozen=True)
class Place:
    """Where one reservation stands by the table, and with which content."""

    state: str = "unknown"
    asked: str = ""
    settled: str = ""

    def expect(self, what: str) -> tuple[str, str, "Place"]:
        """The answer, the field that it names, and where the reservation stands afterwards."""
        verb, _, content = what.partition(" ")
        before = self.asked if verb == "reserve" else self.settled
        column = what
        if content in ("a", "b"):
            column = f"{verb} {'same' if before in ('', content) else 'other'}"
        word, _, becomes = CELLS[self.state][column].partition(">")
        field = ""
        if word == "CONFLICT" and column.endswith("other"):
            told = {"reserve": self.asked, "settle": self.settled}[verb]
            names = {"reserve": "prompt.text_bytes", "settle": "usage.completion_tokens"}
            field = names[verb] if told else ""
        if word == "INVALID":
            field = "usage.completion_tokens"
        if not becomes:
            return word, field, self
        after = replace(self, state=becomes)
        if becomes == "held":
            after = replace(after, asked=content)
        if becomes in ("settled", "late"):
            after = replace(after, settled=content)
        return word, field, after

    @property
    def charge(self) -> int:
        """What was taken for it."""
        return (1_000 + COMPLETION[self.settled]) * 1_000 if self.settled else 0

    @property
    def hold(self) -> int:
        """What is set aside for it."""
        return (PROMPT[self.asked] + OUTPUT) * 1_000 if self.state == "held" else 0


class Books:
    """The engine, with an account and a key for each reservation, whose numbers they share."""

    def __init__(self, database: str) -> None:
        self.clock = MovedClock()
        self.subject = Subject(database, self.clock)
        self._numbers = count()

    def new_id(self) -> str:
        return uuid7(self.clock.wall)

    async def price(self) -> None:
        bounds = price_pb2.ModelBounds(max_output_tokens=OUTPUT, template_request_tokens=0)
        item = price_pb2.SetPriceItem(operation_id=self.new_id(), model="m", tiers=[tier(0, USD, USD)], bounds=bounds)
        await self.subject.do([operation("set_price", item)])

    async def accounts(self, how_many: int) -> list["One"]:
        ones = [One(self, next(self._numbers)) for _ in range(how_many)]
        await self.subject.do([each for one in ones for each in one.opening()])
        return ones

    async def pass_lease(self) -> None:
        """A lease's time, with a look at the leases in between as the sweep does."""
        for _ in range(3):
            self.clock.advance(20_000)
            await self.subject.do([operation("renew", pb.RenewItem(reservation_id=self.new_id()))])


class One:
    """One reservation and where it stands."""

    def __init__(self, books: Books, number: int) -> None:
        self._books, self.account, self._key = books, f"acct-{number:04}", f"key-{number:04}"
        self.id = books.new_id()
        self.place = Place()

    def opening(self) -> Iterator[Any]:
        item = account_pb2.CreateAccountItem(operation_id=self._books.new_id(), name="n", credit=to_money(5 * USD))
        yield operation("create_account", item, self.account)
        key = key_pb2.CreateKeyItem(
            operation_id=self._books.new_id(), account_id=self.account, key_id=self._key, key_sha256=bytes(32)
        )
        yield operation("create_key", key)

    def does(self, what: str) -> Any:
        """The engine's operation."""
        verb, _, content = what.partition(" ")
        match verb:
            case "reserve":
                item: Message = pb.ReserveItem(
                    reservation_id=self.id,
                    key_id=self._key,
                    model="m",
                    operation=2,  # type: ignore[arg-type]
                    prompt=pb.PromptSize(text_bytes=PROMPT[content]),
                    output_limit=OUTPUT,
                )
            case "settle":
                usage = usage_pb2.Usage(prompt_tokens=1_000, completion_tokens=COMPLETION.get(content))
                item = pb.SettleItem(reservation_id=self.id, usage=usage, worker_id="w", attempts=1, ending=1)  # type: ignore[arg-type]
            case "release":
                item = pb.ReleaseItem(reservation_id=self.id, cause="c")
            case "renew":
                item = pb.RenewItem(reservation_id=self.id)
            case _:
                return operation("lapse", None)
        return operation(verb, item)

    def check(self, what: str, answer: Message) -> None:
        """The answer is the table's; afterwards it stands where the table leads."""
        word, field, after = self.place.expect(what)
        if what != "sweep":
            found = answers.read(answer)
            said = found.get("refused") or found.get("status") or found["state"]
            assert (said, found.get("field", "")) == (word, field), (self.place, what, found)
        self.place = after

    def check_books(self, accounts: dict[str, Answer], where: object) -> None:
        """The account holds and has paid what the table says, once."""
        stands = self._books.subject.hold(self.id)
        state = {"remembered": "released"}.get(self.place.state, self.place.state)
        assert (stands["state"].lower() if stands else "unknown") == state, (where, self.place)
        account = accounts[self.account]
        found = (account["balance"], account["held"], account["open"], account["entries"])
        held = int(self.place.state == "held")
        charged = int(self.place.settled != "")
        assert found == (5 * USD - self.place.charge, self.place.hold, held, 1 + charged), (where, self.place)


async def brought(books: Books) -> list[One]:
    """One reservation in each state."""
    ones = await books.accounts(len(STATES))
    before, after = ([WAYS[state][side] for state in STATES] for side in (0, 1))
    await perform(books, ones, before)
    await books.pass_lease()
    await perform(books, ones, [("sweep",)] * len(ones))
    await perform(books, ones, after)
    assert [one.place.state for one in ones] == list(STATES)
    return ones


async def perform(books: Books, ones: list[One], whats: list[tuple[str, ...]]) -> list[list[Message]]:
    """All of it in one batch, each reservation's operations in order; checked by the table."""
    asked = [(one, what) for one, mine in zip(ones, whats, strict=True) for what in mine]
    if not asked:
        return [[] for _ in ones]
    found = iter(await books.subject.do([one.does(what) for one, what in asked]))
    answered: list[list[Message]] = []
    for one, mine in zip(ones, whats, strict=True):
        answered.append([next(found) for _ in mine])
        for what, answer in zip(mine, answered[-1], strict=True):
            one.check(what, answer)
    return answered


@pytest.fixture
async def books(database: str) -> AsyncIterator[Books]:
    made = Books(database)
    made.subject.start()
    await made.price()
    yield made
    assert made.subject.verify() == []
    await made.subject.stop()


async def end(books: Books, ones: list[One], where: object) -> None:
    accounts = books.subject.accounts(after=ones[0].account[:-1])
    for one in ones:
        one.check_books(accounts, where)
    # Nothing of it is open when the next pair comes.
    await perform(books, ones, [("release",) if one.place.state == "held" else () for one in ones])


@pytest.mark.parametrize("first", OPERATIONS)
async def test_every_operation_after_every_other_in_every_state(books: Books, first: str) -> None:
    last: list[tuple[One, str]] = []
    for second in OPERATIONS:
        ones = await brought(books)
        for what in (first, second):
            if what == "sweep":
                await books.pass_lease()
            answered = await perform(books, ones, [(what,)] * len(ones))
        if second != "sweep":
            # Whatever it was: asked once more it is answered the same.
            again = await books.subject.do([one.does(second) for one in ones])
            assert again == [mine[0] for mine in answered], (first, second)
            last += [(one, second) for one in ones]
        await end(books, ones, (first, second))
    # And so it is after a restart.
    before = await books.subject.do([one.does(what) for one, what in last])
    await books.subject.stop()
    books.subject.start()
    again = await books.subject.do([one.does(what) for one, what in last])
    assert [timeless(answer) for answer in again] == [timeless(answer) for answer in before]


@pytest.mark.parametrize("first", OPERATIONS)
async def test_every_pair_within_one_batch(books: Books, first: str) -> None:
    for second in OPERATIONS[:-1]:
        ones = await brought(books)
        if first == "sweep":
            await books.pass_lease()
        await perform(books, ones, [(first, second, second)] * len(ones))
        await end(books, ones, (first, second))


def timeless(answer: Message) -> Message:
    """Without what is left of a lease, which a restart makes full."""
    if isinstance(answer, pb.ReserveResult | pb.SettleResult) and answer.HasField("reservation"):
        answer.reservation.lease_ms = 0
    return answer


def test_the_table_is_whole() -> None:
    assert STATES == ("unknown", "held", "settled", "released", "remembered", "expired", "late")
    assert all(tuple(row) == COLUMNS for row in CELLS.values())
