"""Reads an event stream as a strict client would. Only for tests; the product's own parser is not used on purpose."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

DONE = "[DONE]"


@dataclass
class Stream:
    """Everything that a client saw of one stream."""

    status: int
    headers: httpx.Headers
    payloads: list[str] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the last thing was [DONE]."""
        return bool(self.payloads) and self.payloads[-1] == DONE

    @property
    def frames(self) -> list[dict[str, Any]]:
        """The JSON payloads."""
        return [json.loads(payload) for payload in self.payloads if payload != DONE]

    @property
    def usage(self) -> dict[str, Any] | None:
        """The usage of the one frame that has any. AssertionError if there are two."""
        found = [frame["usage"] for frame in self.frames if frame.get("usage")]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def content(self) -> str:
        """The text of the first choice."""
        return "".join(
            choice["delta"].get("content") or ""
            for frame in self.frames
            for choice in frame.get("choices", [])
            if "delta" in choice
        )

    @property
    def error(self) -> dict[str, Any] | None:
        """The error event, if there was one."""
        return next((frame["error"] for frame in self.frames if frame.get("error") is not None), None)


async def events(response: httpx.Response) -> AsyncIterator[str]:
    """The data of each event; comments are left out, anything else is an error."""
    rest = ""
    async for text in response.aiter_text():
        rest += text
        while "\n\n" in rest:
            event, rest = rest.split("\n\n", 1)
            if event.startswith(":"):
                continue
            assert event.startswith("data: "), event
            assert "\n" not in event, event
            yield event.removeprefix("data: ")
    assert not rest.strip(), f"cut in the middle of an event: {rest!r}"


async def stream(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Stream:
    """Post `body` and read the stream to its end; an answer that is no stream has its body as the only payload."""
    async with client.stream("POST", path, json=body, headers=headers) as response:
        seen = Stream(response.status_code, response.headers)
        if response.headers["content-type"].startswith("text/event-stream"):
            async for payload in events(response):
                seen.payloads.append(payload)
        else:
            seen.payloads.append((await response.aread()).decode())
        return seen
