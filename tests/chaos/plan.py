"""The plan of a storm: everything that will go wrong and when, made from one seed before it begins. Pure.

Nothing begins in its last seconds, in which what is open comes to its end: a storm of a minute is over in a minute.

What a worker does with a call depends on the seed, the worker and the call alone, not on what ran before; so a plan can be read
and replayed, though two runs never interleave alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import NamedTuple

from tests.chaos.caller import Manner
from tests.chaos.numbered import Act, Part

CALLS_PER_S = 12
# A quiet end, and as much of it in which nothing is struck any more.
QUIET_S = 6.0
UNSTRUCK_S = 4.0
SERVICES = ("edge", "router", "billing")
CUSTOMERS = 4
KEYS_EACH = 2
# Weights of what a worker does with a call.
_ACTS = {
    Act.WELL: 60,
    Act.HANG: 4,
    Act.RESET: 6,
    Act.CLOSE: 4,
    Act.GARBAGE: 4,
    Act.ERROR_FRAME: 5,
    Act.BUSY: 5,
    Act.UNAVAILABLE: 4,
    Act.BROKEN: 4,
    Act.NO_USAGE: 2,
    Act.NOT_HTTP: 2,
}


class Asked(NamedTuple):
    """One call: when it is made, by which customer's which key, and how its client behaves."""

    at_s: float
    customer: int
    key: int
    manner: Manner


@dataclass(frozen=True)
class Fault:
    """Something that happens to a process or a worker.

    `kill`: -9 and a new start; `freeze`: SIGSTOP for a while; `flap`: a worker cuts its connections and does not listen for a
    while; `idle`: it closes its kept connections."""

    at_s: float
    kind: str
    whom: str
    lasts_s: float = 0.0

    def __str__(self) -> str:
        lasts = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.at_s:6.1f} s  {self.kind} {self.whom}{lasts}"


@dataclass(frozen=True)
class Plan:
    """A storm."""

    seed: int
    seconds: float
    asked: tuple[Asked, ...]
    faults: tuple[Fault, ...]

    def part(self, worker: str, call: int) -> Part:
        """What a worker does with a call."""
        chance = Random(f"{self.seed}/{worker}/{call}")
        events = chance.randint(1, 24)
        (act,) = chance.choices(list(_ACTS), list(_ACTS.values()))
        return Part(
            act=act,
            events=events,
            at=chance.randint(0, events - 1),
            gap_s=chance.choice((0.0, 0.0, 0.01, 0.05, 0.2)),
            pad_bytes=chance.choice((0, 0, 0, 4_000)),
        )

    def told(self, call: int, workers: Sequence[str]) -> str:
        """The plan's lines of one call, for whoever looks into a failure."""
        one = self.asked[call]
        lines = [f"  plan: at {one.at_s:.1f} s, customer {one.customer}, {_short(one.manner)}"]
        lines += [f"  on {worker}: {_short(self.part(worker, call))}" for worker in workers]
        near = [fault for fault in self.faults if -5 < fault.at_s - one.at_s < 15]
        return "\n".join([*lines, *(f"  {fault}" for fault in near)])


def make(seed: int, seconds: float, workers: Sequence[str]) -> Plan:
    """The plan of a seed."""
    chance = Random(seed)
    asked = tuple(
        Asked(
            chance.uniform(0, seconds - QUIET_S),
            chance.randrange(CUSTOMERS),
            chance.randrange(KEYS_EACH),
            _manner(chance),
        )
        for _ in range(int((seconds - QUIET_S) * CALLS_PER_S))
    )
    faults = [*_service_faults(chance, seconds), *_worker_faults(chance, seconds, workers)]
    return Plan(
        seed, seconds, tuple(sorted(asked, key=lambda one: one.at_s)), tuple(sorted(faults, key=lambda f: f.at_s))
    )


def _short(value: Manner | Part) -> str:
    """What is not as usual."""
    parts = [(field.name, getattr(value, field.name), field.default) for field in fields(value)]
    return ", ".join(
        f"{name}={told.name if isinstance(told, Act) else told}" for name, told, usual in parts if told != usual
    )


def _manner(chance: Random) -> Manner:
    stream = chance.random() < 0.75
    leaves = chance.random() < 0.25
    leaves_at = (chance.randint(0, 20) if stream else 0) if leaves else None
    return Manner(
        stream=stream,
        leaves_at=leaves_at,
        leaves_after_s=chance.choice((0.0, 0.02, 0.3)) if leaves_at == 0 else 0.0,
        slow_s=chance.choice((0.0, 0.0, 0.0, 0.05, 0.3)),
        wants_usage=chance.random() < 0.5,
    )


def _service_faults(chance: Random, seconds: float) -> Iterator[Fault]:
    """One after another, never two services at once: each is killed at least once in a minute, in an order of its own."""
    at_s = chance.uniform(3, 6)
    kinds: list[tuple[str, str]] = []
    while at_s < seconds - QUIET_S - UNSTRUCK_S:
        if not kinds:
            kinds = [(kind, service) for kind in ("kill", "freeze") for service in SERVICES]
            chance.shuffle(kinds)
        kind, service = kinds.pop()
        yield Fault(at_s, kind, service, chance.uniform(0.5, 3.5) if kind == "freeze" else 0.0)
        at_s += chance.uniform(3.5, 6.5)


def _worker_faults(chance: Random, seconds: float, workers: Sequence[str]) -> Iterator[Fault]:
    for worker in workers:
        at_s = chance.uniform(2, 8)
        while at_s < seconds - QUIET_S - UNSTRUCK_S:
            kind = chance.choice(("flap", "idle", "idle"))
            lasts_s = chance.uniform(0.2, 2.0) if kind == "flap" else 0.0
            yield Fault(at_s, kind, worker, lasts_s)
            at_s += lasts_s + chance.uniform(2, 9)
