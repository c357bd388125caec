"""A worker that stops listening, as a flapping one does, leaves nothing open."""

import asyncio
import gc
import socket
import warnings

from tests.chaos.numbered import NumberedWorker, Part


async def test_a_worker_that_stops_while_somebody_connects_leaves_no_socket_open() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for turns in range(4):
            worker = NumberedWorker("w", lambda _worker, _call: Part())
            await worker.start()
            with socket.create_connection(("127.0.0.1", int(worker.url.rpartition(":")[2].partition("/")[0]))):
                for _turn in range(turns):
                    await asyncio.sleep(0)
                await worker.stop()
        gc.collect()
    assert [str(warning.message) for warning in heard] == []
