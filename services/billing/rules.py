"""The few figures that the operations need from the settings. Pure; anything in billing may import it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """How long things last."""

    # Ids are kept and taken for so long.
    id_age_days: int = 90
    # No hold outlives its request's deadline by more.
    after_deadline_ms: int = 120_000
    # The deadline of a request that names none, and the longest that is believed.
    default_deadline_ms: int = 3_600_000
    max_deadline_ms: int = 86_400_000
