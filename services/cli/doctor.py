"""`speedinfer doctor`: looks at everything that the services need, and says what is wrong and what to do."""

import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from speedinfer.billing.v1 import account_pb2, account_pb2_grpc
from speedinfer.router.v1 import registry_pb2, registry_pb2_grpc

from services.billing.store import open as stores
from services.cli import connection, output, ports, readiness, shape
from services.cli.failure import CommandError
from services.cli.invocation import Invocation
from services.common import admin_token
from services.common.errors import ConfigurationError
from services.common.settings import Settings

CALL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    ok: bool
    detail: str
    remedy: str = ""
    # Deserves a look, though nothing is wrong: it does not make the exit code 1.
    warning: bool = False


def doctor(invocation: Invocation) -> int:
    """Check settings, ports, services, the admin token, the database and the workers; exit 1 if anything is wrong."""
    try:
        settings = invocation.settings()
    except ConfigurationError as error:
        found = [
            Finding("settings", False, str(error), "put right what is named; docs/guides/settings.md has the names")
        ]
    else:
        found = [Finding("settings", True, "are right"), *examine(settings)]
    well = all(finding.ok for finding in found)
    invocation.show(
        {"ok": well, "checks": [asdict(finding) for finding in found]},
        lambda: output.table(
            ("check", "", "finding", "what to do"),
            ((finding.check, _word(finding), finding.detail, finding.remedy) for finding in found),
        ),
    )
    return 0 if well else 1


def _word(finding: Finding) -> str:
    if not finding.ok:
        return "WRONG"
    return "warning" if finding.warning else "ok"


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything, the cheapest first."""
    yield _token(settings)
    # Services that are named as elsewhere have their ports and files elsewhere.
    if not settings.edge.billing_target:
        yield _database(settings)
    router = readiness.grpc_health(ports.loopback(settings.router_target, "router"))
    billing = readiness.grpc_health(ports.loopback(settings.billing_target, "billing"))
    edge = readiness.edge_ready(ports.loopback(settings.edge.listen, "edge.listen"))
    looks = {"billing": billing, "router": router, "edge": edge}
    for name, look in looks.items():
        remedy = "" if look.ready else f"start it: `speedinfer up`, or `speedinfer {name}` alone"
        yield Finding(name, look.ready, look.detail, remedy)
    remote = {"router": settings.edge.router_target, "billing": settings.edge.billing_target}
    all_places = ports.places(settings)
    for place in all_places:
        # A service that answers is the one that listens there.
        if not looks[place.service].ready and not remote.get(place.service):
            reason = ports.why_not_free(place, all_places)
            state, _, remedy = (reason or "").partition("; ")
            yield Finding(f"port {place.setting}", reason is None, state or f"{place.address} is free", remedy)
    if billing.ready:
        yield _accepts_token(settings)
    if router.ready:
        yield from _workers(settings)


def _token(settings: Settings) -> Finding:
    if settings.token:
        return Finding("admin token", True, "is set in the settings")
    path = settings.data_dir / admin_token.FILE_NAME
    if not path.exists():
        return Finding(
            "admin token",
            False,
            f"{path} does not exist",
            "`speedinfer up` makes it; or set data_dir to that of the services",
        )
    try:
        admin_token.load(path)
    except ConfigurationError as error:
        state, _, remedy = str(error).partition("; ")
        return Finding("admin token", False, state, remedy)
    return Finding("admin token", True, f"is in {path}")


def _database(settings: Settings) -> Finding:
    url = settings.database_url
    if not url.startswith("sqlite:///"):
        return _server(url)
    path = Path(url.removeprefix("sqlite:///"))
    if not path.exists():
        return Finding("database", False, f"{path} does not exist", "billing makes it when it starts")
    try:
        # Read-only: a doctor changes nothing, and billing goes on writing.
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=CALL_TIMEOUT_S) as database:
            journal = database.execute("PRAGMA journal_mode").fetchone()[0]
            answer = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        database.close()
    except sqlite3.Error as error:
        return Finding(
            "database", False, f"{path} cannot be read: {error}", "restore it from a backup, or check its owner"
        )
    if answer != "ok":
        return Finding("database", False, f"{path} is damaged: {answer}", "stop billing and restore it from a backup")
    return Finding("database", True, f"{path} is whole ({journal})")


def _server(url: str) -> Finding:
    """A database elsewhere: logged in to and looked at as billing does when it starts, and nothing changed."""
    try:
        stores.foresee(url)
    except ConfigurationError as error:
        remedy = "put billing.database or the server right; see docs/guides/postgresql.md"
        return Finding("database", False, str(error).removeprefix("billing.database: "), remedy)
    return Finding(
        "database", True, f"the {urlsplit(url).scheme} server lets billing in and keeps what it acknowledges"
    )


def _accepts_token(settings: Settings) -> Finding:
    try:
        with connection.billing(settings) as billing:
            stub = account_pb2_grpc.AccountServiceStub(billing.channel)
            billing.call(stub.ListAccounts, account_pb2.ListAccountsRequest(page_size=1), CALL_TIMEOUT_S)
    except (CommandError, ConfigurationError) as error:
        return Finding("billing's answer", False, str(error), "use the data_dir or the admin_token of the services")
    return Finding("billing's answer", True, "takes the admin token")


def _workers(settings: Settings) -> Iterator[Finding]:
    try:
        with connection.router(settings) as router:
            stub = registry_pb2_grpc.WorkerRegistryServiceStub(router.channel)
            found = router.call(stub.ListWorkers, registry_pb2.ListWorkersRequest(), CALL_TIMEOUT_S).workers
    except (CommandError, ConfigurationError) as error:
        yield Finding("workers", False, str(error), "use the data_dir or the admin_token of the services")
        return
    if not found:
        yield Finding("workers", False, "none is registered", "`speedinfer workers register FILE`")
    yield from (_worker(shape.worker_detail(one)) for one in found)


def _worker(worker: dict[str, Any]) -> Finding:
    status, error = worker["status"], (worker["last_probe"] or {}).get("error")
    well = status in ("healthy", "draining")
    # A worker that drains takes nothing new, so that it does not answer is no fault; but it will not come back as it is.
    warning = status == "draining" and bool(error)
    why = worker["detail"] or (f"its last probe failed ({error})" if warning else "")
    remedy = f"`speedinfer workers show {worker['worker_id']}`" if warning or not well else ""
    return Finding(f"worker {worker['worker_id']}", well, f"{status}: {why}" if why else status, remedy, warning)
