"""`speedinfer workers`: register inference servers, look at them, take them out."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from speedinfer.router.v1 import registry_pb2, registry_pb2_grpc

from services.cli import connection, output, shape, strict_json, typed
from services.cli.failure import CommandError
from services.cli.invocation import Invocation, command, new_app
from services.common import registration_form

app = new_app("Inference servers: register, look at, drain.")

# The router's check reaches out to the worker and has it generate a token.
CHECK_TIMEOUT_S = 120.0
MAX_REGISTRATION_BYTES = 1024 * 1024

Registration = Annotated[str, typer.Argument(metavar="FILE", help="The registration as JSON; - for standard input.")]
WorkerId = Annotated[str, typer.Argument(metavar="ID", help="The worker's id.")]


@command(app, "register")
def register(invocation: Invocation, file: Registration) -> None:
    """Check a worker and have it serve; an id that exists is replaced without cutting its streams."""
    request = read_registration(file)
    with connection.router(invocation.settings()) as router:
        stub = registry_pb2_grpc.WorkerRegistryServiceStub(router.channel)
        value = shape.worker_detail(router.call(stub.RegisterWorker, request, CHECK_TIMEOUT_S).worker)
    invocation.show(value, lambda: output.details(value))
    _say_state(value)


@command(app, "check")
def check(invocation: Invocation, file: Registration) -> int:
    """Do the checks of a registration, more thoroughly, and register nothing; exit 1 if the worker would not serve."""
    request = registry_pb2.CheckWorkerRequest(registration=read_registration(file))
    with connection.router(invocation.settings()) as router:
        stub = registry_pb2_grpc.WorkerRegistryServiceStub(router.channel)
        answer = router.call(stub.CheckWorker, request, CHECK_TIMEOUT_S)
    value = shape.worker_detail(answer.worker) | {"findings": list(answer.findings)}
    invocation.show(value, lambda: output.details(value | {"findings": "\n".join(answer.findings)}))
    _say_state(value)
    return 0 if value["status"] == "healthy" else 1


@command(app, "list")
def list_workers(invocation: Invocation) -> None:
    """List all workers, as /health shows them."""
    with connection.router(invocation.settings()) as router:
        stub = registry_pb2_grpc.WorkerRegistryServiceStub(router.channel)
        found = router.call(stub.ListWorkers, registry_pb2.ListWorkersRequest()).workers
    columns = ("worker_id", "runtime", "transport", "models", "status", "circuit", ">in_flight", "detail")

    def rows() -> Iterable[list[Any]]:
        for detail in found:
            row = shape.worker_detail(detail)
            row["models"] = row["supported_models"]
            yield [row[name.removeprefix(">")] for name in columns]

    invocation.show([shape.worker(detail.worker) for detail in found], lambda: output.table(columns, rows()))


@command(app, "show")
def show(invocation: Invocation, worker_id: WorkerId) -> None:
    """Show one worker with its configuration and what is wrong with it."""
    with connection.router(invocation.settings()) as router:
        stub = registry_pb2_grpc.WorkerRegistryServiceStub(router.channel)
        answer = router.call(stub.GetWorker, registry_pb2.GetWorkerRequest(worker_id=worker_id))
    value = shape.worker_detail(answer.worker)
    invocation.show(value, lambda: output.details(value))


@command(app, "drain")
def drain(
    invocation: Invocation,
    worker_id: WorkerId,
    wait: Annotated[
        int, typer.Option(parser=typed.duration_ms, metavar="TIME", help="How long to wait for the last stream: 15m.")
    ] = 3_600_000,
) -> int:
    """Give a worker nothing new, and wait until its last stream has ended; exit 1 if it has not by then."""
    request = registry_pb2.DrainWorkerRequest(worker_id=worker_id, wait_ms=wait)
    in_flight, drained = 0, False
    with connection.router(invocation.settings()) as router:
        stub = registry_pb2_grpc.WorkerRegistryServiceStub(router.channel)
        for answer in router.stream(stub.DrainWorker, request, wait / 1000 + connection.CALL_TIMEOUT_S):
            in_flight, drained = answer.in_flight, answer.drained
            if not drained and not invocation.as_json:
                output.print_note(f"{worker_id}: {in_flight} running")
    value = {"worker_id": worker_id, "drained": drained, "in_flight": in_flight}
    invocation.show(value, lambda: f"{worker_id} is drained" if drained else f"{worker_id}: {in_flight} still run")
    return 0 if drained or not wait else 1


@command(app, "remove")
def remove(invocation: Invocation, worker_id: WorkerId) -> None:
    """Forget a worker; its running requests finish."""
    with connection.router(invocation.settings()) as router:
        stub = registry_pb2_grpc.WorkerRegistryServiceStub(router.channel)
        router.call(stub.RemoveWorker, registry_pb2.RemoveWorkerRequest(worker_id=worker_id))
    invocation.show({"worker_id": worker_id, "removed": True}, lambda: f"{worker_id} is removed")


def read_registration(file: str) -> registry_pb2.RegisterWorkerRequest:
    """A registration from a file or standard input. CommandError names what is wrong with it."""
    name = "standard input" if file == "-" else file
    try:
        text = sys.stdin.read(MAX_REGISTRATION_BYTES + 1) if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name} cannot be read: {error}") from None
    if len(text) > MAX_REGISTRATION_BYTES:
        raise CommandError(f"{name} is larger than {MAX_REGISTRATION_BYTES} bytes")
    try:
        value = strict_json.read(text)
    except ValueError as error:
        raise CommandError(f"{name} is not JSON: {error}") from None
    return parse_registration(value, name)


def parse_registration(value: Any, name: str) -> registry_pb2.RegisterWorkerRequest:
    """A registration from its JSON form; keys that are not known are refused by name."""
    try:
        return registration_form.read(value)
    except registration_form.WrongForm as error:
        raise CommandError("\n".join(f"{name}: {problem}" for problem in error.problems)) from None


def _say_state(value: dict[str, Any]) -> None:
    for warning in value["warnings"]:
        output.print_note(f"warning: {warning}")
    if value["status"] != "healthy":
        output.print_note(
            f"{value['worker_id']} is {value['status']}: {value['detail'] or 'see `speedinfer workers show`'}"
        )
