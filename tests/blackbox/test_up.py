"""`speedinfer up`: three services as one, watched, drained in order, and never left behind."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.product import Product
from tests.harness.until import until
from tests.harness.upstream import MODEL, Script, Upstream


class Up:
    """A running `speedinfer up`; its settings are those of a Product that is not started by itself."""

    def __init__(self, folder: Path) -> None:
        self.product = Product(folder)
        self.said = folder / "up.log"
        with self.said.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", "up", "--json"],
                env=self.product.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.said.read_text()
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def pids(self) -> dict[str, int]:
        pids: dict[str, int] = self.ready["pids"]
        return pids

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path / "up")
    yield running
    running.close()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One for all tests that leave it running."""
    running = Up(tmp_path_factory.mktemp("lasting") / "up")
    yield running
    running.close()


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def test_it_says_where_it_is_and_drains_on_sigterm(up: Up) -> None:
    assert up.ready["base_url"] == up.product.base_url
    assert set(up.pids) == {"billing", "router", "edge"}
    assert up.product.command("accounts", "create", "acme", "--credit", "1")["balance"] == "1.000000000"
    up.process.terminate()
    assert up.process.wait(60) == 0, up.said.read_text()
    assert all(gone(pid) for pid in up.pids.values())


def test_ctrl_c_is_the_same(up: Up) -> None:
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0, up.said.read_text()
    assert all(gone(pid) for pid in up.pids.values())


def test_a_second_one_on_the_same_folder_is_refused(lasting: Up) -> None:
    shown = lasting.product.run("up")
    assert shown.code == 1
    assert "another `speedinfer up`" in shown.err
    assert str(lasting.process.pid) in shown.err


def test_a_port_that_is_taken_is_named_with_the_way_out(tmp_path: Path) -> None:
    product = Product(tmp_path / "taken")
    with socket.create_server(("127.0.0.1", product.ports["edge"])):
        shown = product.run("up")
    assert shown.code == 1
    assert product.address("edge") in shown.err
    assert "SPEEDINFER_EDGE__LISTEN=" in shown.err


def test_a_port_that_is_taken_is_named_for_a_single_service(tmp_path: Path) -> None:
    product = Product(tmp_path / "single")
    for name in ("billing", "router", "edge"):
        with socket.create_server(("127.0.0.1", product.ports[name])):
            shown = product.run(name)
        assert shown.code == 1
        assert f"{product.address(name)} ({name}.listen) is taken by another process" in shown.err
        assert f"SPEEDINFER_{name.upper()}__LISTEN=" in shown.err


def test_two_settings_with_one_address_are_refused_before_anything_starts(tmp_path: Path) -> None:
    product = Product(tmp_path / "twice")
    product.environment["SPEEDINFER_EDGE__ADMIN_LISTEN"] = product.address("router")
    shown = product.run("up")
    assert shown.code == 1
    assert "edge.admin_listen and router.listen have the same address" in shown.err
    assert not (product.data_dir / "admin_token").exists()


@pytest.mark.parametrize("name", ["billing", "router", "edge"])
def test_a_service_that_dies_is_started_again(name: str, lasting: Up) -> None:
    os.kill(lasting.pids[name], signal.SIGKILL)
    until(lambda: f"{name} is back" in lasting.said.read_text(), f"{name} is started again")
    assert f"{name} was ended by SIGKILL" in lasting.said.read_text()
    assert lasting.product.command("accounts", "list") == []
    assert lasting.product.command("workers", "list") == []


def test_services_drain_when_it_is_killed(up: Up) -> None:
    up.process.kill()
    up.process.wait()
    until(lambda: all(gone(pid) for pid in up.pids.values()), "all services have ended")


def test_a_running_stream_is_settled_when_it_is_killed(up: Up, upstream: Upstream) -> None:
    product = up.product
    product.register(upstream.registration())
    product.price(MODEL)
    account_id = product.account()
    upstream.plays(Script(pieces=("word ",) * 40, completion_tokens=40, gap_s=0.2))
    body = {"model": MODEL, "stream": True, "max_tokens": 64, "messages": [{"role": "user", "content": "Count."}]}
    with (
        httpx.Client(headers={"authorization": f"Bearer {product.key(account_id)}"}, timeout=60) as client,
        client.stream("POST", f"{product.base_url}/chat/completions", json=body) as answer,
    ):
        frames = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
        assert "word" in next(frames)
        up.process.kill()
        up.process.wait()
        # A new one does not take what it finds for a stranger's.
        again = product.run("up")
        *_, usage, done = frames
    assert again.code == 1
    assert (
        f"a previous edge of this data_dir ({product.data_dir}) is still draining (process {up.pids['edge']})"
        in again.err
    )
    assert done == "[DONE]"
    # Billing was there to the end: without its answer there is no cost.
    assert json.loads(usage)["usage"]["cost"] == pytest.approx(0.0000264)
    until(lambda: all(gone(pid) for pid in up.pids.values()), "all services have ended")
    # They end in their order, and none by a second signal.
    said = [json.loads(line) for line in up.said.read_text().splitlines() if line.startswith("{")]
    assert [line["service"] for line in said if line["event"] == "draining"] == ["edge", "router", "billing"]
    assert "second_signal_stops_at_once" not in up.said.read_text()


def test_a_service_that_cannot_start_ends_it_with_a_reason(tmp_path: Path) -> None:
    product = Product(tmp_path / "broken", {"SPEEDINFER_BILLING__DATABASE": "nonsense://somewhere"})
    shown = product.run("up")
    assert shown.code == 1
    assert "billing ended with status 1" in shown.err
