"""The order in which settlements are sent again: none stands in the way of the others."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.backoff import Backoff
from services.edge.resend_order import ResendOrder
from tests.unit.edge.test_outbox import entry

MOST = 8


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["good", "poison", "put off"]), max_size=40))
def test_whatever_billing_cannot_take_everything_else_is_delivered(kinds: list[str]) -> None:
    waiting = {str(number): kind for number, kind in enumerate(kinds)}
    order = ResendOrder(MOST)
    for _ in range(8 + 4 * len(kinds)):
        batch = order.batch([entry(each) for each in waiting])
        assert len(batch) <= MOST
        if not batch:
            break
        sent = {each.reservation_id: waiting[each.reservation_id] for each in batch}
        if "poison" in sent.values():
            order.failed(batch)
            continue
        order.answered([each for each in batch if sent[each.reservation_id] == "put off"])
        for reservation_id, kind in sent.items():
            if kind == "good":
                del waiting[reservation_id]
    assert "good" not in waiting.values()
    assert order.batch([entry(each) for each in waiting]) == []
    # They have their turn again in the next round.
    order.begin()
    assert bool(order.batch([entry(each) for each in waiting])) == bool(waiting)


def test_batches_grow_again() -> None:
    order, waiting = ResendOrder(MOST), [entry(str(number)) for number in range(20)]
    sizes = []
    for _ in range(4):
        order.failed(order.batch(waiting))
    for _ in range(5):
        sizes.append(len(order.batch(waiting)))
        order.answered([])
    assert sizes == [1, 2, 4, 8, 8]


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_pauses_grow_to_their_bound_and_are_not_the_same_for_all(seed: int, count: int) -> None:
    backoff = Backoff(0.2, 5.0, Random(seed))
    for number in range(count):
        bound_s = min(0.2 * 2**number, 5.0)
        assert bound_s / 2 <= backoff.next_s() <= bound_s
    backoff.reset()
    assert backoff.next_s() <= 0.2
    assert Backoff(1.0, 1.0, Random(seed)).next_s() != Backoff(1.0, 1.0, Random(seed + 1)).next_s()
