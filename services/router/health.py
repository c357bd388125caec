"""Whether a worker gets requests, from what probes, checks and traffic show: a pure state. `worker.py` owns one per worker.

Down after so many bad probes in a row, back after so many good looks; wrong at once, since a wrong registration does not heal
by waiting. Draining hides the rest but does not forget it.
"""

from dataclasses import dataclass

from speedinfer.router.v1.fleet_pb2 import (
    WORKER_STATUS_DRAINING,
    WORKER_STATUS_HEALTHY,
    WORKER_STATUS_MISCONFIGURED,
    WORKER_STATUS_UNHEALTHY,
    WorkerStatus,
)

from services.router.transport.port import MISCONFIGURED, Finding

ANSWERS_WITHOUT_USAGE = 3
NO_USAGE = Finding(MISCONFIGURED, "reports no usage: several complete answers in a row came without it")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How many looks in a row change the mind."""

    to_go_down: int
    to_come_back: int


class Health:
    """The state of one worker."""

    def __init__(self, thresholds: Thresholds, draining: bool = False, *, checks_read_usage: bool = True) -> None:
        self._thresholds = thresholds
        # Whether a good check shows that the worker reports usage.
        self._checks_read_usage = checks_read_usage
        self._status: WorkerStatus.ValueType = WORKER_STATUS_UNHEALTHY
        self._bad = 0
        self._good = 0
        self._without_usage = 0
        # Traffic showed that it reports none, and nothing has shown the contrary.
        self._lost_usage = False
        self.draining = draining
        # A check once went well: what the worker can do is known.
        self.checked = False
        # The last look's outcome, or what traffic showed.
        self.finding = Finding("connect", "not looked at yet")

    @property
    def status(self) -> WorkerStatus.ValueType:
        """What others see."""
        return WORKER_STATUS_DRAINING if self.draining else self._status

    @property
    def own_status(self) -> WorkerStatus.ValueType:
        """What it is under a drain."""
        return self._status

    @property
    def is_up(self) -> bool:
        """Checked and answering, draining or not."""
        return self._status == WORKER_STATUS_HEALTHY

    def on_check(self, finding: Finding) -> None:
        """A whole check ended. The first one decides at once."""
        first = not self.checked
        if not finding.error and self._lost_usage and not self._checks_read_usage:
            # All is well but what the check did not look at. Registering the worker anew begins anew.
            self._status = WORKER_STATUS_MISCONFIGURED
            self.finding = NO_USAGE
            return
        self.finding = finding
        if not finding.error:
            self.checked = True
            self._bad = 0
            self._good += 1
            if first or self._good >= self._thresholds.to_come_back:
                self._status = WORKER_STATUS_HEALTHY
                self._without_usage = 0
                self._lost_usage = False
            return
        self._good = 0
        self._status = WORKER_STATUS_MISCONFIGURED if finding.error == MISCONFIGURED else WORKER_STATUS_UNHEALTHY

    def on_probe(self, finding: Finding) -> None:
        """A probe of a worker that is up ended."""
        if not finding.error:
            self._bad = 0
            self.finding = Finding(warnings=self.finding.warnings, findings=self.finding.findings)
            return
        self._bad += 1
        self._good = 0
        self.finding = finding
        if self._bad >= self._thresholds.to_go_down and self.is_up:
            self._status = WORKER_STATUS_UNHEALTHY

    def on_usage(self, reported: bool) -> bool:
        """A complete answer came, with or without usage. True if that made the worker misconfigured."""
        self._without_usage = 0 if reported else self._without_usage + 1
        return self._without_usage >= ANSWERS_WITHOUT_USAGE and self.on_lost_usage()

    def on_hearsay(self) -> None:
        """Another router found it down: one bad look of our own is enough."""
        self._bad = max(self._bad, self._thresholds.to_go_down - 1)

    def on_lost_usage(self) -> bool:
        """It reports no usage, as our traffic or another router's showed. True if that made it misconfigured."""
        if not self.is_up:
            return False
        self._status = WORKER_STATUS_MISCONFIGURED
        self._good = 0
        self._lost_usage = True
        self.finding = NO_USAGE
        return True
