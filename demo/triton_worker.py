"""A real Triton Inference Server on this machine, without GPU or Docker, serving a model repository.

    .venv-demo/bin/python demo/triton_worker.py --model-repository demo/triton_models \\
        --http-port 18100 --grpc-port 18101 --metrics-port 18102 --work-dir .speedinfer/triton

Prints one line `READY http://...` when every model answers; exits 0 on SIGTERM, SIGINT and when its parent dies, with
the server, its model processes and its shared memory gone. Any number may run at once, also from one work folder.

As a module, from any interpreter: `unavailable_reason(venv)` says why it cannot run, and `TritonServer` runs the
script with the environment's Python and stops it.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from demo.lifeline import end_with_parent
from demo.triton_install import TritonInstall, find_triton, unavailable_reason

__all__ = ["TritonServer", "unavailable_reason"]

ENDINGS = {signal.SIGTERM, signal.SIGINT}
START_TIMEOUT_S = 120.0
# Triton's own wait for running requests at shutdown, and ours before the processes are killed.
EXIT_TIMEOUT_S = 3
KILL_AFTER_S = 10.0


class TritonServer:
    """The script below as a child process. `with TritonServer(...) as server:` gives one that is ready."""

    def __init__(
        self,
        *,
        model_repository: Path,
        work_dir: Path,
        venv: Path,
        http_port: int,
        grpc_port: int,
        metrics_port: int,
        models: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        """`models`: load only these (default: all in the repository). `log`: default is a file in `work_dir`."""
        self.http_port = http_port
        self.grpc_port = grpc_port
        self.log = log or work_dir / f"triton-{http_port}.log"
        self._command = [
            str(venv / "bin" / "python"),
            str(Path(__file__).resolve()),
            *("--model-repository", str(model_repository)),
            *("--work-dir", str(work_dir)),
            *("--http-port", str(http_port)),
            *("--grpc-port", str(grpc_port)),
            *("--metrics-port", str(metrics_port)),
            *(part for model in models for part in ("--model", model)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start without waiting. Call from a thread that outlives the server (see demo/lifeline.py)."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Raises RuntimeError with the end of the log when the server ends instead, TimeoutError when it takes longer."""
        assert self._process is not None, "not started"
        deadline = time.monotonic() + timeout_s
        while not any(line.startswith("READY ") for line in self.log.read_text(errors="replace").splitlines()):
            if self._process.poll() is not None:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
                raise RuntimeError(f"Triton ended with status {self._process.returncode}:\n{tail}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"Triton was not ready after {timeout_s:.0f} s; its log is {self.log}")
            time.sleep(0.05)

    def stop(self) -> int:
        """End the server and everything it started; returns its exit status. May be called twice."""
        assert self._process is not None, "not started"
        if self._process.poll() is None:
            self._process.terminate()
        return self._process.wait(timeout=KILL_AFTER_S + 10)

    def __enter__(self) -> TritonServer:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def is_ready(http_port: int) -> bool:
    """Triton calls itself ready when each of its models is."""
    connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=2)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def taken_port(ports: Sequence[int]) -> int | None:
    """The first that somebody else listens on. Asked first, since a stranger's answer would pass for our readiness."""
    for port in ports:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections just closed do not matter
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                return port
    return None


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Triton Inference Server from the wheel nvidia-pytriton, on the CPU")
    parser.add_argument("--model-repository", type=Path, required=True)
    parser.add_argument("--http-port", type=int, required=True)
    parser.add_argument("--grpc-port", type=int, required=True)
    parser.add_argument("--metrics-port", type=int, required=True)
    parser.add_argument("--work-dir", type=Path, required=True)
    parser.add_argument("--model", action="append", default=[], help="load only this model; may be repeated")
    return parser.parse_args(argv)


def server_command(args: argparse.Namespace, install: TritonInstall, backends: Path, shared_memory: str) -> list[str]:
    # Named one by one, because left to itself Triton takes every folder for a model, and Python leaves `__pycache__`
    # folders between them. In this mode models can also be unloaded and loaded again over HTTP.
    models = args.model or sorted(config.parent.name for config in args.model_repository.glob("*/config.pbtxt"))
    return [
        str(install.server),
        f"--model-repository={args.model_repository.absolute()}",
        f"--backend-directory={backends}",
        f"--cache-directory={install.caches}",
        f"--backend-config=python,shm-region-prefix-name={shared_memory}",
        *(f"--{listener}-address=127.0.0.1" for listener in ("http", "grpc", "metrics")),
        f"--http-port={args.http_port}",
        f"--grpc-port={args.grpc_port}",
        f"--metrics-port={args.metrics_port}",
        "--allow-gpu-metrics=false",
        "--pinned-memory-pool-byte-size=0",  # it is for GPUs
        "--disable-auto-complete-config",  # each config is whole; guessing would start every model's process twice
        "--log-info=false",
        f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
        "--model-control-mode=explicit",
        *(f"--load-model={model}" for model in models),
    ]


def start_server(command: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    def in_child() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*ENDINGS, signal.SIGCHLD})
        end_with_parent()

    # A session of its own: Ctrl-C in a terminal reaches us alone, and we can address all of the server's processes.
    # Running code between fork and exec is safe here because this process has one thread.
    return subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=in_child,
    )


def end_server(server: subprocess.Popen[bytes], shared_memory: str) -> None:
    server.terminate()
    try:
        server.wait(timeout=KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        print("Triton did not end in time; killing it", file=sys.stderr)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)  # model processes that outlived it, too
    server.wait()
    for region in Path("/dev/shm").glob(f"{shared_memory}*"):
        region.unlink(missing_ok=True)


def main() -> None:
    args = arguments()
    # Blocked, and taken with sigtimedwait: no signal is lost between two steps, and none interrupts one.
    signals = {*ENDINGS, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    end_with_parent()

    began = time.monotonic()
    try:
        install = find_triton(Path(sys.prefix))
    except RuntimeError as reason:
        sys.exit(f"Triton cannot run here: {reason}")
    if (port := taken_port([args.http_port, args.grpc_port, args.metrics_port])) is not None:
        sys.exit(f"Triton cannot start: port {port} on 127.0.0.1 is taken")
    shared_memory = f"speedinfer_{os.getpid()}_"
    command = server_command(args, install, install.lay_out(args.work_dir), shared_memory)
    server = start_server(command, install.environment())
    try:
        ready = False
        while True:
            received = signal.sigtimedwait(signals, 0.5 if ready else 0.05)
            if received is not None and received.si_signo in ENDINGS:
                return
            if server.poll() is not None:
                sys.exit(f"Triton ended with status {server.returncode}; what it said is above")
            if not ready and (ready := is_ready(args.http_port)):
                took = time.monotonic() - began
                where = f"http://127.0.0.1:{args.http_port} grpc 127.0.0.1:{args.grpc_port}"
                print(f"READY {where} after {took:.1f} s", flush=True)
            if not ready and time.monotonic() - began > START_TIMEOUT_S:
                sys.exit(f"Triton was not ready after {START_TIMEOUT_S:.0f} s")
    finally:
        end_server(server, shared_memory)


if __name__ == "__main__":
    main()
