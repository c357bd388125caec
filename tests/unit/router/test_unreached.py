"""An operator reads where it was tried and why it failed."""

import aiohttp
import pytest

from services.router.transport.unreached import reason
from tests.harness.ports import free_port


async def test_a_refused_connection_is_named() -> None:
    port = free_port()
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await session.get(f"http://127.0.0.1:{port}/")
    assert reason(caught.value) == f"cannot connect to 127.0.0.1:{port}: connection refused"


def test_other_errors_are_told_by_their_kind() -> None:
    assert reason(aiohttp.ServerDisconnectedError()) == "ServerDisconnectedError"
