"""Every cell of the lifecycle, written down a second time from the contract's table."""

import pytest

from services.billing.reservation import TABLE, Effect, Event, State, step

RESERVE, RENEW, SETTLE, RELEASE, LAPSE = Event
UNKNOWN, HELD, SETTLED, RELEASED, EXPIRED, LATE = State

CELLS = [
    (UNKNOWN, RESERVE, Effect.GUARD, HELD),
    (UNKNOWN, RENEW, Effect.UNKNOWN, UNKNOWN),
    (UNKNOWN, SETTLE, Effect.UNKNOWN, UNKNOWN),
    (UNKNOWN, RELEASE, Effect.REMEMBER, RELEASED),
    (UNKNOWN, LAPSE, Effect.NOTHING, UNKNOWN),
    (HELD, RESERVE, Effect.REPEAT, HELD),
    (HELD, RENEW, Effect.EXTEND, HELD),
    (HELD, SETTLE, Effect.CHARGE, SETTLED),
    (HELD, RELEASE, Effect.GIVE_BACK, RELEASED),
    (HELD, LAPSE, Effect.GIVE_BACK, EXPIRED),
    (SETTLED, RESERVE, Effect.REPEAT, SETTLED),
    (SETTLED, RENEW, Effect.ANSWER, SETTLED),
    (SETTLED, SETTLE, Effect.REPEAT, SETTLED),
    (SETTLED, RELEASE, Effect.CONFLICT, SETTLED),
    (SETTLED, LAPSE, Effect.NOTHING, SETTLED),
    (RELEASED, RESERVE, Effect.ANSWER, RELEASED),
    (RELEASED, RENEW, Effect.ANSWER, RELEASED),
    (RELEASED, SETTLE, Effect.CONFLICT, RELEASED),
    (RELEASED, RELEASE, Effect.ANSWER, RELEASED),
    (RELEASED, LAPSE, Effect.NOTHING, RELEASED),
    (EXPIRED, RESERVE, Effect.ANSWER, EXPIRED),
    (EXPIRED, RENEW, Effect.ANSWER, EXPIRED),
    (EXPIRED, SETTLE, Effect.LATE_CHARGE, LATE),
    (EXPIRED, RELEASE, Effect.ANSWER, EXPIRED),
    (EXPIRED, LAPSE, Effect.NOTHING, EXPIRED),
    (LATE, RESERVE, Effect.REPEAT, LATE),
    (LATE, RENEW, Effect.ANSWER, LATE),
    (LATE, SETTLE, Effect.REPEAT, LATE),
    (LATE, RELEASE, Effect.CONFLICT, LATE),
    (LATE, LAPSE, Effect.NOTHING, LATE),
]


@pytest.mark.parametrize(("state", "event", "effect", "becomes"), CELLS)
def test_cell(state: State, event: Event, effect: Effect, becomes: State) -> None:
    cell = step(state, event)
    assert (cell.effect, cell.state) == (effect, becomes)


def test_every_cell_is_written_down() -> None:
    assert {(state, event) for state, event, _, _ in CELLS} == {(state, event) for state in State for event in Event}
    assert set(TABLE) == set(State)


def test_money_moves_once_at_most() -> None:
    """No path of events charges twice: a charge leads to a state from which nothing leads on."""
    for state, row in TABLE.items():
        for cell in row.values():
            if cell.effect in (Effect.CHARGE, Effect.LATE_CHARGE):
                assert cell.state.charged
                assert all(after.state is cell.state for after in TABLE[cell.state].values())
            else:
                assert cell.state is state or not cell.state.charged
