"""What a run of calls looked like from outside: each client's record, each worker's, and the books afterwards. Values only.

An outcome that the client cannot know (its connection broke, or it left) is an outcome of its own: it is judged by what is
possible, never guessed.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Counts(NamedTuple):
    """Tokens, as a worker reports them."""

    prompt: int
    completion: int


class Ending(Enum):
    """How a call ended for its client."""

    ANSWERED = "[DONE], or a whole 200"
    REFUSED = "an HTTP error"
    FAILED = "an error event in a stream"
    LEFT = "the client left"
    LOST = "the connection broke: the client cannot know"
    HUNG = "no end within the client's patience"


@dataclass
class Call:
    """One call, as its client saw it."""

    number: int
    account_id: str
    stream: bool = True
    ending: Ending = Ending.LOST
    # Known once headers came.
    request_id: str = ""
    status: int = 0
    # The error's code, or what broke.
    code: str = ""
    text: str = ""
    # From the usage frame (or the whole answer), and the cost there if it had one.
    usage: Counts | None = None
    cost_nanos: int | None = None


@dataclass
class Attempt:
    """One dispatch, as the worker that got it saw it."""

    call: int
    request_id: str
    worker: str
    # The pieces of text that were sent (the last one perhaps not received), and every usage that was reported.
    sent: list[str] = field(default_factory=list)
    reported: list[Counts] = field(default_factory=list)


@dataclass(frozen=True)
class Charge:
    """One charge in the ledger."""

    request_id: str
    account_id: str
    counts: Counts
    amount_nanos: int


@dataclass(frozen=True)
class Books:
    """What billing says when all is over."""

    charges: tuple[Charge, ...] = ()
    # Request -> state of its hold.
    holds: dict[str, str] = field(default_factory=dict)
    # Account -> its credit, and its balance now.
    credit_nanos: dict[str, int] = field(default_factory=dict)
    balance_nanos: dict[str, int] = field(default_factory=dict)
