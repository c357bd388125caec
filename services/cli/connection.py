"""Calls from the command to the router and to billing, with the operators' token. Imported by the command's modules only.

Each call waits for a bounded time, and each failure becomes one sentence that says what to do.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import grpc
from speedinfer.billing.v1.account_pb2 import MutationStatus

from services.cli.failure import CommandError
from services.common import admin_token
from services.common.rpc import CHANNEL_OPTIONS
from services.common.settings import Settings

CALL_TIMEOUT_S = 30.0
TURNS = 4
PAGE_SIZE = 1000

Response = TypeVar("Response")


class Connection:
    """One service. `with billing(settings) as connection:` closes it."""

    def __init__(self, service: str, target: str, settings: Settings) -> None:
        self.service = service
        self.target = target
        self.channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._token, self._whence = _find_token(settings)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def call(self, method: Callable[..., Response], request: Any, timeout_s: float = CALL_TIMEOUT_S) -> Response:
        """One call. CommandError if it fails."""
        for turn in range(1, TURNS + 1):
            try:
                return method(request, timeout=timeout_s, metadata=self._metadata)
            except grpc.RpcError as error:
                failed: Any = error
                # Turned away unseen by a process that has just been succeeded: its successor is there.
                if failed.code() is not grpc.StatusCode.CANCELLED or turn == TURNS:
                    raise CommandError(self._explain(error)) from None
        raise AssertionError("the last turn answers or raises")

    def stream(
        self, method: Callable[..., Iterator[Response]], request: Any, timeout_s: float | None
    ) -> Iterator[Response]:
        """One call that answers many messages. CommandError if it fails."""
        answered = False
        try:
            for message in method(request, timeout=timeout_s, metadata=self._metadata):
                answered = True
                yield message
        except grpc.RpcError as error:
            raise CommandError(self._explain(error, answered)) from None

    @property
    def _the_service(self) -> str:
        return "the router" if self.service == "router" else self.service

    @property
    def _metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self._token}")] if self._token else []

    def _explain(self, error: grpc.RpcError, answered: bool = False) -> str:
        # What is raised is at once an error and a finished call; the types do not say so.
        failed: Any = error
        code: grpc.StatusCode = failed.code()
        if code is grpc.StatusCode.UNAVAILABLE and not _is_ours(failed):
            if answered:
                return f"the connection to {self._the_service} at {self.target} was lost; see `speedinfer doctor`"
            return f"{self.service} does not answer at {self.target}; start it with `speedinfer up`"
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"{self.service} at {self.target} did not answer in time; try again, or run `speedinfer doctor`"
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return f"{self.service} at {self.target} refuses the admin token ({self._whence})"
        if code is grpc.StatusCode.PERMISSION_DENIED and not _is_ours(failed):
            return (
                f"the sidecar of {self._the_service} does not let this identity make this call; see the table in"
                " docs/decisions/0015-sidecars.md, and use the operator's sidecar, or finance's for reports"
            )
        return failed.details() or f"{self.service} at {self.target} failed: {code.name}"


def billing(settings: Settings) -> Connection:
    """Billing, where the settings say that it is."""
    return Connection("billing", settings.billing_target, settings)


def router(settings: Settings) -> Connection:
    """The router, where the settings say that it is."""
    return Connection("router", settings.router_target, settings)


class MutationResult(Protocol):
    """What every mutation of billing answers for each item."""

    status: Any
    field: str
    message: str


Result = TypeVar("Result", bound=MutationResult)


def only(results: Any) -> Any:
    """The result of a call with one item. CommandError unless it was done."""
    if len(results) != 1:
        raise CommandError(f"billing answered {len(results)} results for one item; are the versions the same?")
    result = results[0]
    if result.status != MutationStatus.MUTATION_STATUS_DONE:
        word = MutationStatus.Name(result.status).removeprefix("MUTATION_STATUS_").lower().replace("_", " ")
        raise CommandError(result.message or f"{word}: {result.field or 'the request'}")
    return result


def pages(connection: Connection, method: Callable[..., Any], request: Any) -> Iterator[Any]:
    """Every page of a listing, one call each."""
    request.page_size = PAGE_SIZE
    while True:
        page = connection.call(method, request)
        yield page
        if not page.next_page_token or page.next_page_token == request.page_token:
            return
        request.page_token = page.next_page_token


def _is_ours(failed: Any) -> bool:
    """Whether a service of ours refused, as against nobody being there."""
    return any(key == "grpc-status-details-bin" for key, _ in failed.trailing_metadata() or ())


def _find_token(settings: Settings) -> tuple[str, str]:
    if settings.token:
        return settings.token, "the setting admin_token"
    path = settings.data_dir / admin_token.FILE_NAME
    if not path.exists():
        # The call tells more than we could: that nobody answers, or that the token lies elsewhere.
        return "", f"there is none in {path}; is data_dir that of the services, or set SPEEDINFER_ADMIN_TOKEN"
    return admin_token.load(path), f"read from {path}"
