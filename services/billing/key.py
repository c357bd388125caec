"""An API key as billing keeps it: never its secret. Pure; anything in billing may import it."""

from dataclasses import dataclass
from enum import IntEnum

from services.billing.limits import Limits


class Status(IntEnum):
    """Whether a key is good. Values are those of KeyStatus."""

    ACTIVE = 1
    UNKNOWN = 2
    REVOKED = 3
    EXPIRED = 4


@dataclass(slots=True)
class Key:
    """A key. Its limits never change but for the end that a rotation gives it."""

    key_id: str
    account_id: str
    name: str
    sha256: bytes
    limits: Limits
    created_at_ms: int
    revoked_at_ms: int | None = None
    replaces_key_id: str = ""
    # The first key of its line of rotations, whose counters and places the whole line shares; empty: it is that itself.
    first_key_id: str = ""
    # Its successor, where it was rotated; it is then good until the end that its limits have.
    replaced_by_key_id: str = ""

    @property
    def line_id(self) -> str:
        """What it is counted under: a rotation gives no second allowance."""
        return self.first_key_id or self.key_id

    def status(self, now_ms: int) -> Status:
        """Whether it is good at a moment."""
        if self.revoked_at_ms is not None:
            return Status.REVOKED
        if self.limits.ended(now_ms):
            return Status.EXPIRED
        return Status.ACTIVE

    def may_use(self, model: str) -> bool:
        """Whether its allow-list names the model; an empty list allows all."""
        return self.limits.allow(model)
