"""The `openai` SDK for Node in a process that lives as long as the tests: `scenarios.mjs` is its other half."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pytest

from tests.sdk.seen import Refusal, Seen

SDK_FOLDER = Path(__file__).resolve().parents[2] / "build" / "node"
SCRIPT = Path(__file__).with_name("scenarios.mjs")
END_WITHIN_S = 10.0

Way = Literal["create", "helper", "leave"]


class NodeSdk:
    """`with NodeSdk(base_url) as sdk:`. Skips the test, by name, where Node or the package is not."""

    def __init__(self, base_url: str) -> None:
        node = shutil.which("node")
        if node is None or not (SDK_FOLDER / "node_modules" / "openai").is_dir():
            pytest.skip("Node, or its `openai` package, is not here: make test installs the package where npm is")
        environment = {"PATH": os.environ["PATH"], "SDK_FOLDER": str(SDK_FOLDER), "BASE_URL": base_url}
        self._process = subprocess.Popen(
            [node, str(SCRIPT)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "NodeSdk":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.communicate(timeout=END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def read(
        self,
        key: str,
        route: str,
        body: Mapping[str, Any],
        way: Way = "create",
        *,
        max_retries: int | None = 0,
        headers: Mapping[str, str] | None = None,
    ) -> Seen:
        """Ask and read to the end, or to the exception. `max_retries` None: the SDK's own."""
        job = {"api_key": key, "route": route, "body": body, "way": way, "max_retries": max_retries, "headers": headers}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "broken" not in answer, answer["broken"]
        refusal = answer.pop("refusal")
        calls = [(name, arguments) for name, arguments in answer.pop("calls")]
        return Seen(**answer, calls=calls, refusal=Refusal(**refusal) if refusal is not None else None)
