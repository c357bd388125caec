"""The relay's bookkeeping: credit is neither lost nor made, and never blocks who has taken all; messages stay bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speedinfer.common.v1.usage_pb2 import Usage
from speedinfer.router.v1.frame_pb2 import Data, End, Frame, UsageSoFar
from speedinfer.router.v1.relay_pb2 import RelayRequest

from services.common.errors import InvalidArgument
from services.common.relay_terms import FRAME_BYTES, MAX_CREDIT_BYTES, Allowance, Outgoing, Repayment, cost


@pytest.mark.property
@given(
    window=st.integers(1, 5_000),
    # True: the router reads a frame of that size if it may; False: the edge's client takes the oldest.
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 3_000)), max_size=200),
)
def test_credit_is_neither_lost_nor_made(window: int, steps: list[tuple[bool, int]]) -> None:
    allowance, repayment = Allowance(window), Repayment(window)
    on_the_way: list[int] = []
    sent = taken = given_back = 0

    def take() -> None:
        nonlocal taken, given_back
        size = on_the_way.pop(0)
        taken += size
        if due := repayment.took(size):
            given_back += due
            allowance.add(due)

    for reads, size in steps:
        if reads and not allowance.is_spent:
            on_the_way.append(size)
            allowance.spend(size)
            sent += size
        elif not reads and on_the_way:
            take()
        assert allowance.left_bytes == window - sent + given_back
        assert given_back <= taken <= sent
        # What the edge may have to keep: the window, and the one frame that overdrew it.
        assert sum(on_the_way) < window + 3_000
    while on_the_way:
        take()
    assert not allowance.is_spent, "who has taken everything gets more"


@pytest.mark.property
@given(sizes=st.lists(st.integers(0, 400), max_size=100), every=st.integers(1, 10))
def test_messages_keep_order_and_bound(sizes: list[int], every: int) -> None:
    outgoing: Outgoing[RelayRequest] = Outgoing(RelayRequest, message_bytes=500)
    begun_in: list[int] = []
    sent: list[tuple[int, int]] = []

    def take() -> None:
        message = outgoing.take()
        if message is not None:
            numbers = [command.number for command in message.commands]
            assert len(numbers) == 1 or sum(sizes[number] for number in numbers) <= 500
            sent.extend((number, outgoing.taken) for number in numbers)

    for number, size in enumerate(sizes):
        outgoing.room(size).commands.add(number=number)
        begun_in.append(outgoing.last_number)
        assert outgoing.waiting_bytes == sum(sizes[len(sent) : number + 1])
        if number % every == 0:
            take()
    while len(outgoing):
        take()
    assert [number for number, _ in sent] == list(range(len(sizes)))
    assert [message for _, message in sent] == begun_in
    assert outgoing.waiting_bytes == 0


def test_credit_beyond_the_bound_is_a_breach() -> None:
    allowance = Allowance(MAX_CREDIT_BYTES)
    with pytest.raises(InvalidArgument):
        allowance.add(1)


def test_what_a_frame_counts() -> None:
    assert cost(Frame(data=Data(payloads=[b"abc", b"de"]))) == FRAME_BYTES + 5
    assert cost(Frame(end=End(usage_frame=b"abcd"))) == FRAME_BYTES + 4
    assert cost(Frame(usage=UsageSoFar(usage=Usage(prompt_tokens=1)))) == FRAME_BYTES
