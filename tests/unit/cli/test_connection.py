"""What a failed call is called: nobody there, or lost on the way."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from speedinfer.router.v1 import registry_pb2, registry_pb2_grpc

from services.cli import connection
from services.cli.failure import CommandError
from services.common.settings import EdgeSettings, Settings


def drain(
    request: registry_pb2.DrainWorkerRequest, context: grpc.ServicerContext
) -> Iterator[registry_pb2.DrainWorkerResponse]:
    """Breaks off after as many answers as `wait_ms` says, as a socket does that is closed: with no details of ours."""
    for _ in range(request.wait_ms):
        yield registry_pb2.DrainWorkerResponse(in_flight=1)
    context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


@pytest.fixture
def router() -> Iterator[connection.Connection]:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        handler = grpc.unary_stream_rpc_method_handler(
            drain, registry_pb2.DrainWorkerRequest.FromString, registry_pb2.DrainWorkerResponse.SerializeToString
        )
        name = registry_pb2.DESCRIPTOR.services_by_name["WorkerRegistryService"].full_name
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"DrainWorker": handler}),))
        target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with connection.router(Settings(edge=EdgeSettings(router_target=target))) as router:
            yield router
        server.stop(None).wait()


@pytest.mark.parametrize(
    ("answers", "said"),
    [(0, "router does not answer at .*; start it with"), (2, "^the connection to the router at .* was lost")],
)
def test_a_stream_that_breaks_off_is_not_a_service_that_is_not_there(
    answers: int, said: str, router: connection.Connection
) -> None:
    stub = registry_pb2_grpc.WorkerRegistryServiceStub(router.channel)
    request = registry_pb2.DrainWorkerRequest(worker_id="w", wait_ms=answers)
    got: list[registry_pb2.DrainWorkerResponse] = []
    with pytest.raises(CommandError, match=said):
        got.extend(router.stream(stub.DrainWorker, request, 10))
    assert len(got) == answers


class Failed(grpc.RpcError):
    """A call that ended with a status."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "this router has a successor"


@pytest.mark.parametrize(("times", "calls"), [(connection.TURNS - 1, connection.TURNS), (99, connection.TURNS)])
def test_what_a_succeeded_service_turned_away_is_asked_again(
    times: int, calls: int, router: connection.Connection
) -> None:
    made: list[str] = []

    def call(request: str, **_: object) -> str:
        made.append(request)
        if len(made) <= times:
            raise Failed(grpc.StatusCode.CANCELLED)
        return "done"

    if times < connection.TURNS:
        assert router.call(call, "a") == "done"
    else:
        with pytest.raises(CommandError, match="has a successor"):
            router.call(call, "a")
    assert len(made) == calls
