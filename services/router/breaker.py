"""The circuit breaker of one worker: a pure state table. `worker.py` owns one per worker.

Only what the worker did counts: 4xx and back-pressure are no failures, and neither is a client that left. A half-open circuit
lets one request through at a time, whatever becomes meanwhile of those that were let through before it opened. A circuit that
closed again eases in: the worker's fair number of requests at once doubles with each success, so that one that comes back is
not met by a crowd.
"""

from enum import StrEnum


class Circuit(StrEnum):
    """The states, by the words that health shows."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Event(StrEnum):
    """What can happen to a circuit."""

    # A request is let through.
    ADMITTED = "admitted"
    # A request got content, or its whole answer.
    SUCCEEDED = "succeeded"
    # The worker failed a request.
    FAILED = "failed"
    # A request ended without saying anything of the worker.
    UNDECIDED = "undecided"
    # The time of an open circuit is over.
    RESTED = "rested"


# State -> event -> next state. A failure of a closed circuit opens it only at the bound; what is not here changes nothing.
TABLE: dict[Circuit, dict[Event, Circuit]] = {
    Circuit.CLOSED: {Event.FAILED: Circuit.OPEN},
    # What was let through before the circuit opened still ends; only its success says something new.
    Circuit.OPEN: {Event.RESTED: Circuit.HALF_OPEN, Event.SUCCEEDED: Circuit.CLOSED},
    Circuit.HALF_OPEN: {Event.SUCCEEDED: Circuit.CLOSED, Event.FAILED: Circuit.OPEN},
}


# How many requests at once a worker that has just come back is meant to have, and from where on it is like any other.
EASE_FROM = 2
EASE_TO = 64


class Breaker:
    """Counts failures in a row; times are seconds of a monotonic clock, given by the caller."""

    def __init__(self, failures_to_open: int, open_s: float) -> None:
        self._failures_to_open = failures_to_open
        self._open_s = open_s
        self._state = Circuit.CLOSED
        self._failures = 0
        self._opened_at = 0.0
        # A half-open circuit waits for the outcome of one request, this one.
        self._probing = False
        self._prober: object = None
        # While the circuit eases in; None otherwise.
        self._meant: int | None = None

    def state(self, now: float) -> Circuit:
        """The state at `now`."""
        if self._state is Circuit.OPEN and now - self._opened_at >= self._open_s:
            self._move(Event.RESTED, now)
        return self._state

    def rests_until(self, now: float) -> float | None:
        """When an open circuit lets somebody try again; None if it is not open."""
        return self._opened_at + self._open_s if self.state(now) is Circuit.OPEN else None

    def admits(self, now: float) -> bool:
        """Whether a request may go to the worker."""
        state = self.state(now)
        return state is Circuit.CLOSED or (state is Circuit.HALF_OPEN and not self._probing)

    @property
    def is_settled(self) -> bool:
        """Whether it is closed, and does not ease in: it then neither refuses a request nor minds one."""
        return self._state is Circuit.CLOSED and self._meant is None

    def prefers_others(self, in_flight: int) -> bool:
        """Whether the worker has as many requests as it should have so soon. A preference, not a bound: where there is no
        other worker it gets more."""
        return self._meant is not None and in_flight >= self._meant

    def ease_in(self) -> None:
        """The worker has come back: begin with few requests."""
        self._meant = EASE_FROM

    def record(self, event: Event, now: float, request: object = None) -> None:
        """Something happened to `request`, which is told from others by its identity."""
        state = self.state(now)
        if event is Event.ADMITTED:
            self._probing, self._prober = state is Circuit.HALF_OPEN, request
            return
        if state is Circuit.HALF_OPEN:
            if self._probing and request is self._prober:
                self._probing = False
            elif event is not Event.SUCCEEDED:
                # It was sent before the circuit opened. That it failed is no news.
                return
        if event is Event.SUCCEEDED:
            self._failures = 0
            if self._meant is not None:
                self._meant = self._meant * 2 if self._meant < EASE_TO else None
        elif event is Event.FAILED:
            self._failures += 1
            if state is Circuit.CLOSED and self._failures < self._failures_to_open:
                return
        self._move(event, now)

    def _move(self, event: Event, now: float) -> None:
        after = TABLE[self._state].get(event, self._state)
        if after is self._state:
            return
        self._state = after
        self._probing = False
        if after is Circuit.OPEN:
            self._opened_at = now
        elif after is Circuit.CLOSED:
            self._failures = 0
            self.ease_in()
