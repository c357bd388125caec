"""Which account a presented key belongs to: asked of billing, remembered for at most a second.

A revoked key starts nothing new after that second. Answers of "no" are remembered too, apart from the good ones, so that a
flood of wrong keys neither reaches billing nor pushes good ones out. The secret itself is never kept, only its hash.
"""

from collections.abc import Callable
from dataclasses import dataclass

from speedinfer.billing.v1.access_pb2 import Authorization, KeyStatus
from speedinfer.billing.v1.access_pb2 import PresentedKey as PresentedKeyMessage

from services.common import apikey
from services.edge.billing_client import BillingClient
from services.edge.coalesce import Shared
from services.edge.openai_errors import INVALID_KEY, Refused

MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a request is for."""

    key_id: str
    account_id: str
    # Empty: all.
    models: frozenset[str]

    def may_use(self, model: str) -> bool:
        """Whether the key may use a model."""
        return not self.models or model in self.models


class KeyCache:
    """Authorises keys."""

    def __init__(self, billing: BillingClient, keep_s: float, clock: Callable[[], float]) -> None:
        self._billing = billing
        self._keep_s = keep_s
        self._clock = clock
        # Insertion order is age, since every entry lives equally long.
        self._good: dict[apikey.PresentedKey, tuple[float, Caller]] = {}
        self._bad: dict[apikey.PresentedKey, tuple[float, None]] = {}
        self._calls: Shared[Caller | None] = Shared()

    async def authorise(self, credential: str) -> Caller:
        """The caller that a credential stands for. Refused (401); BillingUnavailable."""
        key = apikey.parse_key(credential)
        if key is None:
            raise Refused(INVALID_KEY)
        now = self._clock()
        found = self._good.get(key) or self._bad.get(key)
        caller = found[1] if found and now < found[0] else await self._calls.get(key, lambda: self._ask(key))
        if caller is None:
            raise Refused(INVALID_KEY)
        return caller

    async def _ask(self, key: apikey.PresentedKey) -> Caller | None:
        # Counted from before the call: the answer is at least as old as its question.
        until = self._clock() + self._keep_s
        answer = await self._billing.authorize(PresentedKeyMessage(key_id=key.key_id, key_sha256=key.sha256))
        self._good.pop(key, None)
        self._bad.pop(key, None)
        caller = _caller(answer)
        if caller is None:
            self._bad[key] = (until, None)
            _trim(self._bad)
        else:
            self._good[key] = (until, caller)
            _trim(self._good)
        return caller


def _caller(answer: Authorization) -> Caller | None:
    if answer.status != KeyStatus.KEY_STATUS_ACTIVE or not answer.account_id:
        return None
    return Caller(answer.key_id, answer.account_id, frozenset(answer.models))


def _trim(
    entries: dict[apikey.PresentedKey, tuple[float, Caller]] | dict[apikey.PresentedKey, tuple[float, None]],
) -> None:
    while len(entries) > MAX_REMEMBERED:
        del entries[next(iter(entries))]
