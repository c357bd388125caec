"""What `make run` does: the three services, a real language model on each transport, and a key to try them with.

    .venv/bin/python demo/run.py           with DEMO=0 only the services

Billing, router and edge come up first; llama.cpp is registered as soon as it answers, while Triton is still being
installed. Everything that is kept lies in `data_dir` (`.speedinfer`), so a second run finds it. Ctrl-C stops everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from demo import run_install, run_workers
from demo.lifeline import end_with_parent
from demo.run_account import DemoAccount, open_account
from demo.run_receipts import Receipts
from demo.run_workers import COMMON_MODEL, DemoWorker
from services.cli import connection
from services.cli.failure import CommandError
from services.common import settings as settings_module
from services.common.errors import ConfigurationError
from services.common.settings import Settings

RECEIPT_EVERY_S = 0.25
# Longer than the services' own drain.
END_WITHIN_S = 240.0

HOW_TO_REGISTER = """\
Register a worker of yours (an OpenAI-compatible server, or Triton; README.md has both):
  echo '{"worker_id":"my-worker","worker_type":"gpu","runtime":"vllm","runtime_endpoint":"http://127.0.0.1:8000/v1",\
"supported_models":["acme/model-1"],"runtime_config":{"transport":"openai"}}' | .venv/bin/speedinfer workers register -
  .venv/bin/speedinfer prices set acme/model-1 --prompt 0.20 --completion 0.60
  .venv/bin/speedinfer accounts create demo --credit 10
  .venv/bin/speedinfer keys create --account ACCOUNT_ID"""


def say(text: str) -> None:
    print(text, flush=True)


class Demo:
    """Everything that was started, so that it can be stopped."""

    def __init__(self, settings: Settings, stop: asyncio.Event) -> None:
        self.settings = settings
        self.stop = stop
        self.folder = settings.data_dir / "demo"
        self.services: asyncio.subprocess.Process | None = None
        self.workers: list[asyncio.subprocess.Process] = []
        self.base_url = ""

    async def start_services(self) -> bool:
        """Start `speedinfer up` and wait until it is ready; False if it ended instead (it says why itself)."""
        self.services = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.cli.main", "up", "--json", "--with-parent", str(os.getpid())),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env={"SPEEDINFER_LOG_LEVEL": "warning"} | os.environ,
            start_new_session=True,
        )
        assert self.services.stdout is not None
        line = await self.services.stdout.readline()
        if not line:
            return False
        self.base_url = json.loads(line)["base_url"]
        return True

    async def start_worker(self, worker: DemoWorker) -> None:
        """Start a worker and wait until it is ready. RuntimeError if it does not come up."""
        self.workers.append(await run_workers.start(worker, self.folder / worker.log_name))

    async def register(self, worker: DemoWorker) -> None:
        """Register a worker that is ready. RuntimeError or CommandError if the router does not take it."""
        found = await asyncio.to_thread(run_workers.register, self.settings, worker)
        if found["status"] != "healthy":
            raise RuntimeError(f"{worker.worker_id} is {found['status']}: {found['detail']}")

    async def end(self) -> int:
        """Stop the services, which drain, and then the workers that their streams need; the services' exit code."""
        code = 0
        if self.services is not None:
            with contextlib.suppress(ProcessLookupError):
                self.services.terminate()
            try:
                async with asyncio.timeout(END_WITHIN_S):
                    code = await self.services.wait()
            except TimeoutError:
                self.services.kill()
                code = await self.services.wait()
        await asyncio.gather(*(run_workers.end(process) for process in self.workers))
        return code


async def run(settings: Settings, with_workers: bool) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _ask_to_stop, stop, loop)
    demo = Demo(settings, stop)
    # In two steps, because `parents` would make the outer one with the usual mode.
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    demo.folder.mkdir(exist_ok=True, mode=0o700)
    say("starting billing, router and edge ...")
    work = asyncio.create_task(_work(demo, with_workers))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    work.cancel()
    failure = (await asyncio.gather(work, return_exceptions=True))[0]
    say("stopping ...")
    code = await demo.end()
    while isinstance(failure, ExceptionGroup):
        failure = failure.exceptions[0]
    if isinstance(failure, RuntimeError | OSError | CommandError):
        print(f"make run: {failure}", file=sys.stderr)
        return 1
    if isinstance(failure, Exception):
        raise failure
    say("stopped")
    return code


def _ask_to_stop(stop: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    stop.set()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
        # A second Ctrl-C ends us at once; the services and workers notice and drain by themselves.
        signal.signal(number, signal.SIG_DFL)


async def _work(demo: Demo, with_workers: bool) -> None:
    """Goes on until the services end by themselves, which is a failure, or until it is cancelled."""
    async with asyncio.TaskGroup() as group:
        services = group.create_task(demo.start_services())
        llama, reason = await _first_worker(demo) if with_workers else (None, None)
        if not await services:
            raise RuntimeError("the services did not come up; what they said stands above")
    assert demo.services is not None
    async with asyncio.TaskGroup() as group:
        if llama is not None:
            group.create_task(_show(demo, llama))
        else:
            say(f"SpeedInfer is ready: {demo.base_url}" + (f"\nno demo workers: {reason}" if reason else ""))
            say(HOW_TO_REGISTER)
        await demo.services.wait()
        raise RuntimeError("the services ended; what they said stands above")


async def _first_worker(demo: Demo) -> tuple[DemoWorker | None, str | None]:
    """The language model in llama.cpp, started but not registered; or why there is none."""
    if (reason := await _install("llm")) is not None:
        return None, reason
    say("starting the language model in llama.cpp ...")
    llama = run_workers.llama_worker()
    try:
        await demo.start_worker(llama)
    except RuntimeError as error:
        return None, str(error)
    return llama, None


async def _show(demo: Demo, llama: DemoWorker) -> None:
    """The language model and a key that works first, then Triton while receipts already come."""
    try:
        await demo.register(llama)
        models = [COMMON_MODEL, llama.own_model, "demo/triton"]
        account = await asyncio.to_thread(open_account, demo.settings, models)
    except (RuntimeError, CommandError) as error:
        say(f"the demo's language model does not serve: {error}")
        say(HOW_TO_REGISTER)
        return
    say(_welcome(demo, account, llama))
    async with asyncio.TaskGroup() as group:
        group.create_task(_follow(demo, account))
        group.create_task(_add_triton(demo, account))


async def _add_triton(demo: Demo, account: DemoAccount) -> None:
    try:
        if (reason := await _install("triton", demo.folder / "install-triton.log")) is not None:
            say(f"without Triton: {reason}")
            return
        say("starting the same model in Triton ...")
        triton = run_workers.triton_worker(demo.folder / "triton")
        await demo.start_worker(triton)
        await demo.register(triton)
    except (RuntimeError, CommandError) as error:
        say(f"without Triton: {error}")
        return
    say(
        f"Triton serves {COMMON_MODEL}, too, and alone {triton.own_model}:\n\n  {_curl(demo, account, triton.own_model)}\n"
    )


async def _follow(demo: Demo, account: DemoAccount) -> None:
    """Print a receipt after each answer. Billing may be restarted meanwhile: what was missed comes afterwards."""
    with connection.billing(demo.settings) as billing:
        receipts = await _retry(lambda: Receipts(billing, account.account_id))
        while True:
            for line in await _retry(lambda: list(receipts.new())):
                say(line)
            await asyncio.sleep(RECEIPT_EVERY_S)


async def _retry(read: Callable[[], Any]) -> Any:
    while True:
        try:
            return await asyncio.to_thread(read)
        except CommandError:
            await asyncio.sleep(1)


async def _install(part: str, log: Path | None = None) -> str | None:
    """Install a part unless it is there; why not, if it cannot be had. pip is shown, or goes to `log` in the background."""
    if await asyncio.to_thread(run_install.installed, part):
        return None
    command = [sys.executable, str(run_install.__file__), part]
    say(f"installing {run_install.PARTS[part]} ..." + ("" if log is None else f" (progress in {log})"))
    with contextlib.ExitStack() as stack:
        output = None if log is None else stack.enter_context(log.open("wb"))
        # REQUIRE_ALL makes the script's exit code say whether the part is there.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | {"REQUIRE_ALL": "1"},
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await run_workers.end(process)
            raise
    if code == 0:
        return None
    return f"{run_install.PARTS[part]} cannot be had here" + ("" if log is None else f"; {log} says why")


def _curl(demo: Demo, account: DemoAccount, model: str) -> str:
    body = {
        "model": model,
        "stream": True,
        "messages": [{"role": "user", "content": "Name the capital of France."}],
    }
    return (
        f"curl -N {demo.base_url}/chat/completions -H 'Authorization: Bearer {account.key}'"
        f" -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    )


def _welcome(demo: Demo, account: DemoAccount, llama: DemoWorker) -> str:
    return f"""
SpeedInfer is ready.

  base URL  {demo.base_url}
  key       {account.key}
  models    {COMMON_MODEL}; {llama.own_model} is llama.cpp alone

Try it:

  {_curl(demo, account, COMMON_MODEL)}

After each answer a receipt stands here. Ctrl-C stops everything; the account stays as it is.
"""


def main() -> int:
    if os.environ.get("MAKELEVEL"):
        end_with_parent()
    try:
        settings = settings_module.load(None)
    except ConfigurationError as error:
        print(f"make run: {error}", file=sys.stderr)
        return 1
    return asyncio.run(run(settings, os.environ.get("DEMO", "1") != "0"))


if __name__ == "__main__":
    sys.exit(main())
