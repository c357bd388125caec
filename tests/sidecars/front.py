"""An edge's sidecar with a stand-in behind it that keeps what comes through, byte for byte, and answers what a test wants."""

import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from tests.harness.ports import free_port
from tests.sidecars.envoy import Envoy
from tests.sidecars.mesh import certificates, empty

HEADER_TIMEOUT_S, BODY_TIMEOUT_S = 0.4, 0.8
CURL_S = 20


@dataclass(frozen=True)
class Came:
    """One request as it came to the edge's place."""

    method: str
    path: str
    headers: HTTPMessage
    body: bytes


@dataclass
class Behind:
    """What is behind the sidecar: what came, and what is answered."""

    came: list[Came] = field(default_factory=list)
    # Two events; the second goes out when the test has seen the first.
    second: threading.Event = field(default_factory=threading.Event)


class Front:
    """`with Front(folder) as front:`."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are further environment variables."""
        self.behind = Behind()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.behind))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.address = f"127.0.1.5:{free_port()}"
        kept = certificates(folder / "certificates", "make", "--public-name", "127.0.1.5")
        self.authority = kept / "ca" / "tls.crt"
        # Where the edge would find its router and billing.
        self.callees = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        environment = {
            "SPEEDINFER_CONFIG": str(empty(folder)),
            "SPEEDINFER_EDGE__LISTEN": f"127.0.0.1:{self._server.server_port}",
            "SPEEDINFER_EDGE__ROUTER_TARGET": self.callees[0],
            "SPEEDINFER_EDGE__BILLING_TARGET": self.callees[1],
            "SPEEDINFER_SIDECAR__CERTIFICATES": str(kept),
            "SPEEDINFER_SIDECAR__PUBLIC_LISTEN": self.address,
            "SPEEDINFER_SIDECAR__ADMIN_LISTEN": f"127.0.0.1:{free_port()}",
            # Nobody is there.
            "SPEEDINFER_SIDECAR__ROUTERS": "127.0.0.1:1",
            "SPEEDINFER_SIDECAR__BILLINGS": "127.0.0.1:1",
            "SPEEDINFER_SIDECAR__HEADER_TIMEOUT_S": str(HEADER_TIMEOUT_S),
            "SPEEDINFER_SIDECAR__BODY_TIMEOUT_S": str(BODY_TIMEOUT_S),
            **(settings or {}),
        }
        self.envoy = Envoy(folder / "sidecar", "edge", environment)

    def __enter__(self) -> "Front":
        self._thread.start()
        try:
            self.envoy.__enter__()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.behind.second.set()
        self.envoy.stop()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(behind: Behind) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "speedinfer", ""

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            behind.came.append(Came(self.command, self.path, self.headers, body))
            if self.path.endswith("/events"):
                self._stream()
                return
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        do_POST = do_GET

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for event in (b"data: first\n\n", b"data: second\n\n"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                behind.second.wait(CURL_S)
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@dataclass(frozen=True)
class Answer:
    """What curl got."""

    status: int
    version: str
    headers: Mapping[str, str]
    body: bytes


def curl(
    url: str,
    authority: Path,
    *options: str,
    stdin: bytes | None = None,
    meanwhile: Callable[[bytes], None] | None = None,
) -> Answer:
    """Ask by curl, which speaks both HTTP versions; `meanwhile` gets the first part of the body as soon as it is there."""
    command: Sequence[str] = (
        *("curl", "--silent", "--no-buffer", "--noproxy", "*", "--path-as-is", "--max-time", str(CURL_S)),
        *("--cacert", str(authority), "--include", *options, url),
    )
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(stdin or b"")
        process.stdin.close()
        lines = []
        while (line := process.stdout.readline()).strip():
            lines.append(line.decode("latin-1").strip())
        first = process.stdout.read1() if meanwhile is not None else b""
        if meanwhile is not None:
            meanwhile(first)
        body = first + process.stdout.read()
    assert process.returncode == 0, f"curl ended with {process.returncode}"
    version, status, *_ = lines[0].split()
    pairs = (line.partition(":") for line in lines[1:])
    return Answer(int(status), version, {name.lower(): value.strip() for name, _, value in pairs}, body)


def problem(body: bytes) -> dict[str, object]:
    """The error in OpenAI's envelope. AssertionError if that is not its form."""
    error: dict[str, object] = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error
