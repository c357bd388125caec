"""What is known of a request before its body is read. Edge modules import it."""

from dataclasses import dataclass

from aiohttp import web
from speedinfer.common.v1.context_pb2 import RequestContext

from services.common.ids import uuid7
from services.edge import client_headers


@dataclass(slots=True)
class Arrival:
    """One request on its way. `started_s` and `deadline_s` are of the loop's clock."""

    request_id: str
    started_s: float
    client_request_id: str = ""
    traceparent: str = ""
    tracestate: str = ""
    # For the log line and metrics, as far as they are known.
    key_id: str = ""
    model: str = ""
    worker_id: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    code: str = ""

    def context(self, remaining_s: float, attempt: int = 0) -> RequestContext:
        """What travels with every item that is about this request."""
        return RequestContext(
            request_id=self.request_id,
            attempt=attempt,
            remaining_ms=max(int(remaining_s * 1000), 1),
            traceparent=self.traceparent,
            tracestate=self.tracestate,
        )


ARRIVAL = web.RequestKey("arrival", Arrival)


def note(request: web.Request, now_s: float) -> Arrival:
    """Give a request its id."""
    traceparent, tracestate = client_headers.trace(request.headers)
    arrival = Arrival(
        request_id=uuid7(),
        started_s=now_s,
        client_request_id=client_headers.client_request_id(request.headers),
        traceparent=traceparent,
        tracestate=tracestate,
    )
    request[ARRIVAL] = arrival
    return arrival
