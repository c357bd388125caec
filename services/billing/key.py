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

    def status(self, now_ms: int) -> Status:
        """Whether it is good at a moment."""
        if self.revoked_at_ms is not None:
            return Status.REVOKED
        if self.limits.expires_at_ms is not None and self.limits.expires_at_ms <= now_ms:
            return Status.EXPIRED
        return Status.ACTIVE

    def may_use(self, model: str) -> bool:
        """Whether its allow-list names the model; an empty list allows all."""
        return not self.limits.models or model in self.limits.models
