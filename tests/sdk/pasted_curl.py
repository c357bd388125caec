"""curl as people paste it (`-sSN`), with `-i` so that the head is printed too; from what it prints to a `Seen`."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from services.common.money import parse_usd
from tests.fakes.scenario import Answered, Scenario
from tests.harness.sse import DONE
from tests.sdk.purse import scenario_nanos
from tests.sdk.seen import Refusal, Seen, shows_usage

TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Printed:
    """What stood on the terminal."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def is_stream(self) -> bool:
        """Whether it is an event stream."""
        return self.headers["content-type"].startswith("text/event-stream")

    @property
    def payloads(self) -> list[str]:
        """The data lines of a stream, without `data: `."""
        return [line.removeprefix("data: ") for line in self.body.splitlines() if line.startswith("data: ")]

    @property
    def frames(self) -> list[dict[str, Any]]:
        """The JSON of a stream, or the whole answer. Numbers with a point are texts, so that a cost is as it was printed."""
        texts = [each for each in self.payloads if each != DONE] if self.is_stream else [self.body]
        return [json.loads(text, parse_float=str) for text in texts]

    @property
    def told(self) -> tuple[int, str, str | None, str]:
        """All of it that an SDK goes by."""
        return self.status, self.headers["content-type"], self.headers.get("x-should-retry"), self.body

    @property
    def seen(self) -> Seen:
        """The same as an SDK's reading of it."""
        seen = Seen()
        for frame in self.frames:
            if frame.get("usage") is not None:
                seen.usages.append(frame["usage"])
            if (error := frame.get("error")) is not None:
                no_retry = self.headers.get("x-should-retry") == "false"
                shown = ("", None if self.is_stream else self.status, error["code"], error["type"], error["message"])
                seen.refusal = Refusal(*shown, json.dumps(error), no_retry)
            for choice in frame.get("choices") or ():
                seen.finish_reason = choice.get("finish_reason") or seen.finish_reason
                if choice["index"] == 0:
                    said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
                    seen.text += said.get("content") or ""
        return seen


def curl(base_url: str, key: str, route: str, body: Mapping[str, Any]) -> Printed:
    """Run it. Skips the test, by name, where there is no curl."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not here")
    done = subprocess.run(
        [
            *("curl", "-sSNi", f"{base_url}/{route}"),
            *("-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json"),
            *("-d", json.dumps(body)),
        ],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    head, _, rest = done.stdout.partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    parts = (line.partition(":") for line in fields)
    headers = {name.lower(): value.strip() for name, _, value in parts}
    found = re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", status)
    assert found is not None, status
    return Printed(int(found.group(1)), headers, rest.decode())


def assert_ends(printed: Printed, scenario: Scenario) -> None:
    """AssertionError unless status, type and last lines are what a person relies on."""
    if isinstance(scenario.outcome, Answered):
        _assert_well_ended(printed, scenario, scenario.outcome)
    else:
        _assert_refused(printed, scenario.outcome.status)


def _assert_well_ended(printed: Printed, scenario: Scenario, outcome: Answered) -> None:
    assert printed.status == 200, printed.body
    assert printed.is_stream is scenario.stream
    if scenario.stream:
        assert printed.body.endswith(f"\n\ndata: {DONE}\n\n")
        assert printed.payloads.count(DONE) == 1
    if shows_usage(scenario):
        cost = printed.frames[-1]["usage"]["cost"]
        assert len(cost.partition(".")[2]) == 9, cost
        assert parse_usd(cost) == scenario_nanos(outcome)


def _assert_refused(printed: Printed, status: int | None) -> None:
    assert printed.status == (status or 200), printed.body
    assert printed.is_stream is (status is None)
    assert DONE not in printed.payloads
    assert set(printed.frames[-1]) == {"error"}
    assert set(printed.frames[-1]["error"]) == {"message", "type", "param", "code"}
    if not printed.is_stream:
        assert printed.headers["content-type"].startswith("application/json")
