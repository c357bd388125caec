"""The targets of a name's SRV records: each address of a target, with its port, is a worker. `sources.py` makes it.

All targets are workers, whatever their priority and weight. One that cannot be resolved keeps the addresses that it had.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import structlog

from services.router.discovery.absence import Absence
from services.router.discovery.port import Found, Sighting, Unseen
from services.router.discovery.questions import Answer, NoSuchName, QuestionFailed, Questions

# No sooner is looked again, however short an answer is good for.
SHORTEST_WAIT_S = 1.0
# Questions at once, and how long after a look's beginning there are no new ones.
MAX_QUESTIONS = 32
LOOK_WITHIN_S = 10.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Host:
    addresses: frozenset[str] = frozenset()
    absence: Absence = field(default_factory=Absence)


class SrvSource:
    """A name with SRV records."""

    def __init__(self, name: str, questions: Questions, interval_s: float) -> None:
        self.title = f"the SRV name {name}"
        self._name = name
        self._questions = questions
        self._interval_s = interval_s
        self._absence = Absence()
        self._hosts: dict[str, _Host] = {}
        # For how long what was said in this look is good.
        self._good_for_s = interval_s

    async def sightings(self) -> AsyncGenerator[Sighting, None]:
        """See port.Source."""
        while True:
            self._good_for_s = self._interval_s
            yield await self._look()
            await asyncio.sleep(max(self._good_for_s, min(SHORTEST_WAIT_S, self._interval_s)))

    async def _look(self) -> Sighting:
        try:
            answer = await self._questions.services(self._name)
        except NoSuchName:
            return frozenset() if self._absence.is_believed() else Unseen("it is said that there is no such name")
        except QuestionFailed as error:
            self._absence.forget()
            return Unseen(str(error))
        self._absence.forget()
        self._note(answer)
        await self._resolve({host for host, _ in answer.found})
        return frozenset(Found(address, port) for host, port in answer.found for address in self._hosts[host].addresses)

    async def _resolve(self, hosts: set[str]) -> None:
        """Bring what is known of the hosts up to date."""
        self._hosts = {host: self._hosts.get(host, _Host()) for host in hosts}
        turns = asyncio.Semaphore(MAX_QUESTIONS)
        until = asyncio.get_running_loop().time() + LOOK_WITHIN_S

        async def ask(host: str) -> bool:
            async with turns:
                return asyncio.get_running_loop().time() < until and await self._ask(host)

        # All of them end, whatever becomes of one.
        outcomes = await asyncio.gather(*map(ask, sorted(hosts)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if failed := outcomes.count(False):
            _log.warning("targets_not_resolved", by=self.title, targets=failed, of=len(hosts))

    async def _ask(self, host: str) -> bool:
        """Whether it is known now what addresses it has."""
        known = self._hosts[host]
        try:
            answer = await self._questions.addresses(host)
        except NoSuchName:
            if not known.absence.is_believed():
                return False
            known.addresses = frozenset()
            return True
        except QuestionFailed:
            known.absence.forget()
            return False
        known.absence.forget()
        self._note(answer)
        known.addresses = answer.found
        return True

    def _note(self, answer: Answer) -> None:
        self._good_for_s = min(self._good_for_s, answer.ttl_s)
