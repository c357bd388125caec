"""A scenario: what a worker does with one request, and what a client must get and pay for it.

One table (`tests/fakes/scenarios/`) serves the fault tests, the SDK tests and the fake worker's own command, so that each says
the same of the same bytes. A scenario's name is the name of the worker's model that plays it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.scripts import Script


@dataclass(frozen=True)
class Answered:
    """The client reads a whole answer and pays for these counts."""

    # What the first choice says.
    text: str
    prompt: int
    completion: int
    # A part of the prompt's.
    cached: int = 0
    finish_reason: str = "stop"
    # Pieces of the worker's JSON that reach the client byte for byte, and pieces that must not.
    relays: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed:
    """The client is told of a failure and pays nothing."""

    code: str
    # The HTTP status where nothing was shown before; None: an error event in a stream whose status was 200.
    status: int | None = None
    # What had been shown before.
    text: str = ""
    # The worker's own reason to finish, where it had given one; the gateway makes none up.
    finish_reason: str | None = None
    # SDKs are told not to try again.
    no_retry: bool = False
    # The header `retry-after`, where it matters.
    retry_after_s: int | None = None
    # Texts that the error's message must hold, and must not.
    says: tuple[str, ...] = ()
    hides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """One request's fate."""

    name: str
    # The rows of public fault reports that it shows (`S1`), or none.
    rows: tuple[str, ...]
    script: Script
    outcome: Answered | Failed
    stream: bool = True
    # `chat/completions`, `completions` or `embeddings`.
    route: str = "chat/completions"
    # The client's members besides model, messages (prompt, input) and stream.
    request: Mapping[str, Any] = field(default_factory=dict)
    # The registration's runtime_config besides transport, check and model_map.
    config: Mapping[str, Any] = field(default_factory=dict)
