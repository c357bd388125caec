"""An event loop in a thread of its own, for what outlives one test, such as a fixture's servers."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

END_S = 10.0
T = TypeVar("T")


class LoopThread:
    """Runs from `start` to `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    async def run(self, what: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and wait for it here."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(what, self._loop))

    def call(self, what: Coroutine[Any, Any, T]) -> T:
        """The same for who has no loop."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(END_S)

    def soon(self, what: Callable[[], object]) -> None:
        """Do something there; does not wait."""
        self._loop.call_soon_threadsafe(what)

    def stop(self) -> None:
        """End. What still runs there is left as it is."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_S)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
