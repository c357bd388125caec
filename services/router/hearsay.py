"""What routers tell one another of workers, and how far it is believed: the words of `store.port.Verdict`. Pure but for the
workers that it changes; the registrar owns one.

A word never decides alone: it makes a router look at once, and stands for all but the last of the bad looks that it takes. Only
that a worker reports no usage is believed as it is, of the very registration that it was said of, since no look shows it.
Nothing is told that another router told: each would answer every word with its own.
"""

from collections.abc import Collection

from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY, WORKER_STATUS_MISCONFIGURED

from services.router.health import NO_USAGE
from services.router.store.port import Verdict
from services.router.worker import Worker

UP, DOWN, WRONG, WITHOUT_USAGE = "up", "down", "wrong", "without_usage"


class Hearsay:
    """What this router has to tell, and what it and others told before."""

    def __init__(self) -> None:
        # Worker id -> the registration's version and the last word of it that everybody heard.
        self._known: dict[str, tuple[int, str]] = {}
        self._to_tell: dict[str, Verdict] = {}

    def note(self, worker: Worker) -> bool:
        """The worker's state may have changed. True if there is something to tell."""
        if worker.last_probe is None or not worker.version:
            return False
        word = _word(worker)
        if self._known.get(worker.worker_id) == (worker.version, word):
            self._to_tell.pop(worker.worker_id, None)
            return False
        self._to_tell[worker.worker_id] = Verdict(worker.worker_id, worker.version, word)
        return True

    def to_tell(self) -> list[Verdict]:
        """What is to be told now, once."""
        told = list(self._to_tell.values())
        self._to_tell.clear()
        self._known |= {verdict.worker_id: (verdict.version, verdict.word) for verdict in told}
        return told

    def hear(self, worker: Worker, verdict: Verdict) -> None:
        """Another router told of a worker of ours."""
        if verdict.version != worker.version:
            return
        self._known[verdict.worker_id] = (verdict.version, verdict.word)
        if verdict.word == _word(worker):
            self._to_tell.pop(verdict.worker_id, None)
            return
        # What we have to tell of it crossed with this word, and is told all the same.
        if verdict.word == WITHOUT_USAGE:
            worker.told_without_usage()
        elif verdict.word in (DOWN, WRONG):
            worker.health.on_hearsay()
        worker.attention.set()

    def keep_only(self, worker_ids: Collection[str]) -> None:
        """No others are registered any more."""
        self._known = {each: word for each, word in self._known.items() if each in worker_ids}
        self._to_tell = {each: verdict for each, verdict in self._to_tell.items() if each in worker_ids}


def _word(worker: Worker) -> str:
    health = worker.health
    if health.finding == NO_USAGE and not health.is_up:
        return WITHOUT_USAGE
    if health.own_status == WORKER_STATUS_HEALTHY:
        return UP
    return WRONG if health.own_status == WORKER_STATUS_MISCONFIGURED else DOWN
