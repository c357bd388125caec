"""What a client's own library made of an answer, in one shape for all of them; and whether that is what the scenario says.

Each `test_scenarios_*.py` turns its library's objects into a `Seen`, so that what is right stands here once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.scenario import Answered, Failed, Scenario

# The class that an SDK raises for a status; 5xx are InternalServerError, every other a plain APIStatusError.
_CLASS_OF_STATUS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    409: "ConflictError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
}
IN_BAND_CLASS = "APIError"


@dataclass(frozen=True)
class Refusal:
    """An error as the library raised it (or, for curl, as it stands in what was printed)."""

    # The SDK's own class; a class that LangChain derives from one counts as that one. Empty for curl.
    kind: str
    # None: an error event in a stream; then there is nothing to tell SDKs about another attempt.
    status: int | None
    code: str | None
    type: str | None
    message: str
    # Everything that the library shows of it.
    shown: str
    # The SDKs were told not to try again.
    no_retry: bool = False


@dataclass
class Seen:
    """One answer. `usages` holds each usage object that was seen, with the OpenAI API's names."""

    # Of the first choice.
    text: str = ""
    # The last that was given, of any choice.
    finish_reason: str | None = None
    usages: list[Mapping[str, Any]] = field(default_factory=list)
    # Name and arguments of each tool call, as the library put them together.
    calls: list[tuple[str, str]] = field(default_factory=list)
    refusal: Refusal | None = None
    # How many HTTP requests the library made for it, where that was counted.
    attempts: int = 0


def shows_usage(scenario: Scenario) -> bool:
    """False where the client said that it wants none: streams only."""
    options = scenario.request.get("stream_options") or {}
    return not (scenario.stream and options.get("include_usage") is False)


def assert_read(seen: Seen, scenario: Scenario) -> None:
    """AssertionError unless the library read what the scenario says, to the last count or to the class of its error."""
    if isinstance(scenario.outcome, Answered):
        _assert_answered(seen, scenario, scenario.outcome)
    else:
        _assert_failed(seen, scenario.outcome)


def _assert_answered(seen: Seen, scenario: Scenario, outcome: Answered) -> None:
    assert seen.refusal is None, seen.refusal
    if scenario.route != "embeddings":
        assert seen.text == outcome.text
        assert seen.finish_reason == outcome.finish_reason
    if not shows_usage(scenario):
        assert seen.usages == []
        return
    [usage] = seen.usages
    counts = (usage["prompt_tokens"], usage.get("completion_tokens") or 0)
    assert counts == (outcome.prompt, outcome.completion)
    details = usage.get("prompt_tokens_details")
    cached = (details.get("cached_tokens") or 0) if isinstance(details, Mapping) else 0
    assert min(cached, outcome.prompt) == min(outcome.cached, outcome.prompt)


def _assert_failed(seen: Seen, outcome: Failed) -> None:
    refusal = seen.refusal
    assert refusal is not None, f"nothing was raised; it read {seen.text!r}, {seen.finish_reason}"
    assert refusal.status == outcome.status, refusal
    assert outcome.code in (refusal.code, refusal.type), refusal
    if refusal.kind:
        assert refusal.kind == class_of(outcome.status), refusal
    assert seen.usages == [], "usage was shown for a failure"
    if outcome.status is None:
        assert seen.text == outcome.text
        assert seen.finish_reason == outcome.finish_reason
    else:
        assert seen.text == ""
        assert refusal.no_retry is outcome.no_retry
    for said in outcome.says:
        assert said in refusal.message
    for hidden in outcome.hides:
        assert hidden not in refusal.shown


def class_of(status: int | None) -> str:
    """The class that both SDKs raise for a status, or for an error event where there is none."""
    if status is None:
        return IN_BAND_CLASS
    return "InternalServerError" if status >= 500 else _CLASS_OF_STATUS.get(status, "APIStatusError")
