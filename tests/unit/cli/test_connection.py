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
