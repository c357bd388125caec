"""The life of a reservation as a table: what each event does in each state. Pure; anything in billing may import it.

    unknown -> HELD -> SETTLED | RELEASED | EXPIRED;  EXPIRED -> LATE;  unknown -> RELEASED (remembered)

A hold resolves exactly once: no cell leads from a closed state anywhere but from EXPIRED to LATE, and only CHARGE and
LATE_CHARGE move money.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

from services.billing.usage import Counts


class State(IntEnum):
    """Where a reservation stands. Values are those of ReservationState, and of the store."""

    UNKNOWN = 0
    HELD = 1
    SETTLED = 2
    RELEASED = 3
    EXPIRED = 4
    LATE = 5

    @property
    def charged(self) -> bool:
        """Whether money was taken."""
        return self in (State.SETTLED, State.LATE)


class Event(Enum):
    """What can happen to one."""

    RESERVE = "reserve"
    RENEW = "renew"
    SETTLE = "settle"
    RELEASE = "release"
    LAPSE = "lapse"


class Effect(Enum):
    """What the event does."""

    # Judge key, model, limits and balance; if nothing stands in the way, set the hold aside.
    GUARD = "guard"
    # Same content: the same answer. Other content: a conflict that names the field. Nothing changes.
    REPEAT = "repeat"
    # Answer with the state as it is. Nothing changes.
    ANSWER = "answer"
    EXTEND = "extend"
    CHARGE = "charge"
    LATE_CHARGE = "late_charge"
    GIVE_BACK = "give_back"
    # Store that the id is closed, so that it can no longer be reserved.
    REMEMBER = "remember"
    CONFLICT = "conflict"
    # The id means nothing here.
    UNKNOWN = "unknown"
    # Cannot happen; the sweep passes it over.
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: the effect, and the state that it leads to (the same where nothing changes)."""

    effect: Effect
    state: State


def _row(state: State, reserve: Cell, renew: Effect, settle: Cell, release: Cell, lapse: Cell) -> dict[Event, Cell]:
    return {
        Event.RESERVE: reserve,
        Event.RENEW: Cell(renew, state),
        Event.SETTLE: settle,
        Event.RELEASE: release,
        Event.LAPSE: lapse,
    }


def _stays(effect: Effect, state: State) -> Cell:
    return Cell(effect, state)


TABLE: dict[State, dict[Event, Cell]] = {
    State.UNKNOWN: _row(
        State.UNKNOWN,
        reserve=Cell(Effect.GUARD, State.HELD),
        renew=Effect.UNKNOWN,
        settle=_stays(Effect.UNKNOWN, State.UNKNOWN),
        release=Cell(Effect.REMEMBER, State.RELEASED),
        lapse=_stays(Effect.NOTHING, State.UNKNOWN),
    ),
    State.HELD: _row(
        State.HELD,
        reserve=_stays(Effect.REPEAT, State.HELD),
        renew=Effect.EXTEND,
        settle=Cell(Effect.CHARGE, State.SETTLED),
        release=Cell(Effect.GIVE_BACK, State.RELEASED),
        lapse=Cell(Effect.GIVE_BACK, State.EXPIRED),
    ),
    State.SETTLED: _row(
        State.SETTLED,
        reserve=_stays(Effect.REPEAT, State.SETTLED),
        renew=Effect.ANSWER,
        settle=_stays(Effect.REPEAT, State.SETTLED),
        release=_stays(Effect.CONFLICT, State.SETTLED),
        lapse=_stays(Effect.NOTHING, State.SETTLED),
    ),
    State.RELEASED: _row(
        State.RELEASED,
        reserve=_stays(Effect.ANSWER, State.RELEASED),
        renew=Effect.ANSWER,
        settle=_stays(Effect.CONFLICT, State.RELEASED),
        release=_stays(Effect.ANSWER, State.RELEASED),
        lapse=_stays(Effect.NOTHING, State.RELEASED),
    ),
    State.EXPIRED: _row(
        State.EXPIRED,
        reserve=_stays(Effect.ANSWER, State.EXPIRED),
        renew=Effect.ANSWER,
        settle=Cell(Effect.LATE_CHARGE, State.LATE),
        release=_stays(Effect.ANSWER, State.EXPIRED),
        lapse=_stays(Effect.NOTHING, State.EXPIRED),
    ),
    State.LATE: _row(
        State.LATE,
        reserve=_stays(Effect.REPEAT, State.LATE),
        renew=Effect.ANSWER,
        settle=_stays(Effect.REPEAT, State.LATE),
        release=_stays(Effect.CONFLICT, State.LATE),
        lapse=_stays(Effect.NOTHING, State.LATE),
    ),
}


def step(state: State, event: Event) -> Cell:
    """The cell for an event in a state."""
    return TABLE[state][event]


@dataclass(slots=True)
class Reservation:
    """A hold and what became of it. Amounts in nano-USD, moments in milliseconds since the epoch.

    A remembered release of an id that was never reserved has no account: everything but id, state and moments is empty.
    """

    reservation_id: str
    state: State
    created_at_ms: int
    account_id: str | None = None
    key_id: str = ""
    model: str = ""
    operation: int = 0
    hold_nanos: int = 0
    output_limit: int | None = None
    price_version: str = ""
    # What it counts against its key's tokens per minute until a settle corrects it.
    limit_tokens: int = 0
    idempotency_key: str = ""
    # The request's content (content.py), to compare a repeated one with.
    asked: bytes = b""
    # No lease goes beyond it.
    hard_end_ms: int = 0
    closed_at_ms: int | None = None
    charge_nanos: int | None = None
    usage: Counts | None = None
    worker_id: str = ""
    attempts: int = 0
    ending: int = 0
    overrun: bool = False
    # The account's balance just after the charge, so that a repeated settlement gets the same answer.
    balance_after_nanos: int | None = None
    # Why it was released.
    cause: str = ""
