"""Who breaks it, pays: what becomes of a dispatched request that does not end as it should. Pure; the relay imports it.

The table is the contract's (section 3). Two facts decide: whether content was sent to the client, and whether usage so far
is known (prompt and at least one completion count). A whole answer is content only once it is settled, so a non-stream
request is always in the first row.
"""

from enum import Enum

from speedinfer.common.v1.usage_pb2 import Usage


class Event(Enum):
    """What happened to a request before its answer was complete."""

    CLIENT_LEFT = "the client left, or took nothing for too long"
    TOTAL_DEADLINE = "the request's total deadline ran out"
    WORKER_FAILED = "the worker, the router or this gateway failed"


class Verdict(Enum):
    """What is done."""

    RELEASE = "drop the worker, give the hold back"
    CHARGE_SO_FAR = "drop the worker, charge what it reported so far"
    READ_ON = "read on without the client and charge what the worker reports"
    RELEASE_UNMETERED = "give the hold back although content was delivered, and raise an alarm"


_TABLE: dict[tuple[Event, bool, bool], Verdict] = {
    # (event, content was sent, usage so far is known)
    (Event.CLIENT_LEFT, False, False): Verdict.RELEASE,
    (Event.CLIENT_LEFT, False, True): Verdict.RELEASE,
    (Event.CLIENT_LEFT, True, False): Verdict.READ_ON,
    (Event.CLIENT_LEFT, True, True): Verdict.CHARGE_SO_FAR,
    (Event.TOTAL_DEADLINE, False, False): Verdict.RELEASE,
    (Event.TOTAL_DEADLINE, False, True): Verdict.RELEASE,
    (Event.TOTAL_DEADLINE, True, False): Verdict.RELEASE_UNMETERED,
    (Event.TOTAL_DEADLINE, True, True): Verdict.CHARGE_SO_FAR,
    (Event.WORKER_FAILED, False, False): Verdict.RELEASE,
    (Event.WORKER_FAILED, False, True): Verdict.RELEASE,
    (Event.WORKER_FAILED, True, False): Verdict.RELEASE,
    (Event.WORKER_FAILED, True, True): Verdict.RELEASE,
}


def decide(event: Event, *, content_sent: bool, usage_known: bool) -> Verdict:
    """The verdict of the table."""
    return _TABLE[event, content_sent, usage_known]


def is_known(usage: Usage | None) -> bool:
    """Whether usage so far is enough to be charged."""
    return usage is not None and usage.HasField("prompt_tokens") and usage.HasField("completion_tokens")
