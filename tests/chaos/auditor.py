"""Judges a history against the books. Pure; it knows the contract and nothing of the product's code.

What is checked: an answered call has exactly one charge, equal to the price of the usage that its client saw; a refused or
failed one has none; one whose client left or cannot know has at most one, of counts that a worker reported for it; text is
what one worker sent, in order, whole or cut short; nothing is held, nothing is charged twice or to another account, and each
balance is the credit less the charges.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.history import Attempt, Books, Call, Charge, Counts, Ending
from tests.harness.charges import charge_nanos

PAID_STATES = frozenset({"settled", "late"})
OPEN_STATES = frozenset({"held"})
PROMPT_PRICE, COMPLETION_PRICE = "0.20", "0.60"


def price_nanos(counts: Counts) -> int:
    """What counts cost at the prices of these tests."""
    usage = {"prompt_tokens": counts.prompt, "completion_tokens": counts.completion}
    return charge_nanos(usage, PROMPT_PRICE, COMPLETION_PRICE)


def audit(calls: Sequence[Call], attempts: Sequence[Attempt], books: Books, *, calm: bool = False) -> list[str]:
    """Everything that is wrong, each with its call. `calm`: only clients misbehaved, so that who saw content and left pays."""
    by_request: Mapping[str, list[Charge]] = _grouped(books.charges)
    tries: defaultdict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        tries[attempt.call].append(attempt)
    wrong: list[str] = []
    known: dict[str, Call] = {}
    for call in calls:
        mine = tries[call.number]
        ids = {attempt.request_id for attempt in mine} | ({call.request_id} if call.request_id else set())
        known |= dict.fromkeys(ids, call)
        charges = [charge for request_id in sorted(ids) for charge in by_request.get(request_id, [])]
        problems = [*_identity(call, ids), *_text(call, mine), *_money(call, mine, charges, calm)]
        held = "/".join(books.holds.get(request_id, "no hold") for request_id in sorted(ids))
        about = f"call {call.number} ({call.ending.name}, {call.code or call.status}, {held})"
        wrong += [f"{about}: {each}" for each in problems]
    wrong += _strangers(books, known)
    wrong += _holds(books, by_request)
    wrong += _balances(books)
    return wrong


def _grouped(charges: Sequence[Charge]) -> dict[str, list[Charge]]:
    found: defaultdict[str, list[Charge]] = defaultdict(list)
    for charge in charges:
        found[charge.request_id].append(charge)
    return found


def _identity(call: Call, ids: set[str]) -> Iterator[str]:
    if len(ids) > 1:
        yield f"it went by several request ids: {sorted(ids)}"
    if call.ending is Ending.HUNG:
        yield "it never ended"


def _text(call: Call, mine: Sequence[Attempt]) -> Iterator[str]:
    sent = ["".join(attempt.sent) for attempt in mine]
    if call.ending is Ending.ANSWERED:
        if call.text not in sent:
            yield f"the text {call.text[-80:]!r} is not what a worker sent: {[text[-80:] for text in sent]}"
    elif not any(text.startswith(call.text) for text in ["", *sent]):
        yield f"the text {call.text[-80:]!r} is no beginning of what a worker sent: {[text[-80:] for text in sent]}"


def _money(call: Call, mine: Sequence[Attempt], charges: Sequence[Charge], calm: bool) -> Iterator[str]:
    if len(charges) > 1:
        yield f"it was charged {len(charges)} times"
    for charge in charges:
        if charge.account_id != call.account_id:
            yield f"it was charged to {charge.account_id} instead of {call.account_id}"
        if charge.amount_nanos != price_nanos(charge.counts):
            yield f"it was charged {charge.amount_nanos} nano-USD for {charge.counts}, not {price_nanos(charge.counts)}"
    reported = {counts for attempt in mine for counts in attempt.reported}
    if call.ending is Ending.ANSWERED:
        yield from _answered(call, charges, reported)
    elif call.ending in (Ending.REFUSED, Ending.FAILED):
        yield from ("it was charged although its client was told of a failure" for _ in charges)
    else:
        for charge in charges:
            if charge.counts not in reported:
                yield f"it was charged for {charge.counts}, which no worker reported"
            if not any(attempt.sent for attempt in mine):
                yield "it was charged although nothing was sent to it"
            if call.usage is not None and charge.counts != call.usage:
                yield f"it was charged for {charge.counts}, and its client had seen {call.usage}"
        if calm and call.stream and call.text and not charges:
            yield "its client left with content and paid nothing"


def _answered(call: Call, charges: Sequence[Charge], reported: set[Counts]) -> Iterator[str]:
    if not charges:
        yield "it was answered and never charged"
    if call.usage is None:
        yield "it was answered without usage"
        return
    if call.usage not in reported:
        yield f"its client saw {call.usage}, which no worker reported"
    for charge in charges:
        if charge.counts != call.usage:
            yield f"it was charged for {charge.counts}, and its client saw {call.usage}"
        if call.cost_nanos is not None and charge.amount_nanos != call.cost_nanos:
            yield f"it was charged {charge.amount_nanos} nano-USD, and its client was told {call.cost_nanos}"


def _strangers(books: Books, known: Mapping[str, Call]) -> Iterator[str]:
    for charge in books.charges:
        if charge.request_id not in known:
            yield f"{charge.request_id} was charged {charge.amount_nanos} nano-USD, and nobody knows of it"


def _holds(books: Books, by_request: Mapping[str, list[Charge]]) -> Iterator[str]:
    for request_id, state in books.holds.items():
        if state in OPEN_STATES:
            yield f"the hold of {request_id} is still open"
        if (state in PAID_STATES) != (request_id in by_request):
            yield f"the hold of {request_id} is {state}, and {len(by_request.get(request_id, []))} charges are booked"
    for request_id in by_request:
        if request_id not in books.holds:
            yield f"{request_id} was charged without a hold"


def _balances(books: Books) -> Iterator[str]:
    for account_id, credit in books.credit_nanos.items():
        paid = sum(charge.amount_nanos for charge in books.charges if charge.account_id == account_id)
        if books.balance_nanos[account_id] != credit - paid:
            yield f"account {account_id} has {books.balance_nanos[account_id]}, not {credit} - {paid} nano-USD"
