"""Billing as processes that are made and killed by the dozen: forked from one that has imported everything already.

`python -m tests.ledger.cradle` reads one order a line: settings, the step to die at, and the call that dies there. It answers
with the process and its port, and once more when the process has ended. `Cradle` is the test's side.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from services.billing import app, engine, intake
from services.common import log
from services.common.settings import Settings
from tests.contract.billing.service import TOKEN, Client, settings

# In the order in which a call passes them. Up to `saved` nothing of it may stand; from `committed` on all of it must.
STEPS = ("received", "taken", "loaded", "applied", "saved", "committed", "leased", "answered", "replied")
COMMITTED = STEPS.index("committed")


class Death:
    """Ends this process where a batch with the victim passes a step."""

    def __init__(self, step: str, kind: str, victim: str) -> None:
        self._step, self._kind, self._victim = step, kind, victim
        self._here = False

    def enter(self, operations: Sequence[Any]) -> None:
        """A batch, or a call's part of one."""
        mine = [operation.item for operation in operations if type(operation).__name__ == self._kind]
        names = ("reservation_id", "operation_id")
        self._here = any(getattr(item, name, "") == self._victim for item in mine for name in names)

    def at(self, step: str) -> None:
        if self._here and step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)

    def wait_everywhere(self) -> None:
        """Stand at every step of this process's billing. It stands between its parts, so that any store will do."""
        death, run, attempt = self, intake.Intake.run, engine.Engine._attempt
        answer, opened = engine._answer, app.open_store  # type: ignore[attr-defined]

        async def run_and_reply(self: Any, operations: Sequence[Any]) -> Any:
            death.enter(operations)
            death.at("received")
            results = await run(self, operations)
            death.enter(operations)
            death.at("replied")
            return results

        def attempt_and_lease(self: Any, operations: Sequence[Any]) -> Any:
            death.enter(operations)
            death.at("taken")
            answers = attempt(self, operations)
            death.at("leased")
            return answers

        def answer_all(*arguments: Any) -> None:
            answer(*arguments)
            death.at("answered")

        def open_store(*arguments: Any) -> Any:
            store: Any = opened(*arguments)
            session = store.session

            @contextmanager
            def watched() -> Iterator[_Session]:
                with session() as inner:
                    yield _Session(inner, death)
                death.at("committed")

            store.session = watched
            return store

        intake.Intake.run = run_and_reply  # type: ignore[method-assign]
        engine.Engine._attempt = attempt_and_lease  # type: ignore[method-assign]
        engine._answer = answer_all  # type: ignore[assignment]
        app.open_store = open_store  # type: ignore[attr-defined,assignment]


class _Session:
    """A session that dies on the way."""

    def __init__(self, inner: Any, death: Death) -> None:
        self._inner, self._death = inner, death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def load(self, names: Any) -> Any:
        found = self._inner.load(names)
        self._death.at("loaded")
        return found

    def save(self, changes: Any) -> None:
        self._death.at("applied")
        self._inner.save(changes)
        self._death.at("saved")


def _live(order: dict[str, Any]) -> None:
    """The forked process: billing, until it is killed."""
    values = {**order["settings"], "admin_token": TOKEN}
    if order["step"]:
        Death(order["step"], order["kind"], order["victim"]).wait_everywhere()

    async def serve() -> None:
        billing = app.Billing(Settings.model_validate(values))
        port = await billing.start()
        print(json.dumps({"pid": os.getpid(), "port": port}), flush=True)
        await asyncio.Event().wait()

    log.configure("billing", "error")
    asyncio.run(serve())


def main() -> None:
    with suppress(ImportError):
        # Once, not in every process that is forked.
        importlib.import_module("services.billing.store.postgresql")
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            try:
                _live(json.loads(line))
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}), flush=True)


class Cradle:
    """Makes one billing process after another over the same database."""

    def __init__(self, data_dir: Path, database: str) -> None:
        self._pid = 0
        self._settings = json.loads(settings(data_dir, database).model_dump_json())
        # A secret, which is written as stars.
        self._settings["billing"]["database"] = database

    async def open(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.ledger.cradle"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )

    async def start(self, step: str = "", kind: str = "", victim: str = "") -> Client:
        """A process that lives until it is killed, or until the victim's operation of that kind passes the step."""
        assert self._process.stdin is not None
        order = {"settings": self._settings, "step": step, "kind": kind, "victim": victim}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        told = await self._told()
        self._pid = told["pid"]
        return Client(told["port"])

    async def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        await self.gone()

    async def gone(self) -> None:
        """The process was killed; any other end is a failure."""
        self._pid, told = 0, await self._told()
        assert told == {"signal": signal.SIGKILL}

    async def close(self) -> None:
        """No process is left, whatever became of the test."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await self._process.wait() == 0

    async def _told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the cradle ended"
        found: dict[str, Any] = json.loads(line)
        return found


if __name__ == "__main__":
    main()
