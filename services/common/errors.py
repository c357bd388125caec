"""The one error tree of operating failures that are not ordinary outcomes. Anybody may import it.

Ordinary outcomes (a refusal, a conflict) are values. What is raised is either one of these or a bug. `rpc.py` maps them to
a gRPC status in one place.
"""

import grpc


class ServiceError(Exception):
    """A call that cannot be done, with a text that its caller may see."""

    reason = "INTERNAL"
    status = grpc.StatusCode.INTERNAL
    retryable = False

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidArgument(ServiceError):
    """The request is wrong in itself; `field` names the part."""

    reason = "INVALID_ARGUMENT"
    status = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(ServiceError):
    """What the request names does not exist."""

    reason = "NOT_FOUND"
    status = grpc.StatusCode.NOT_FOUND


class Unauthenticated(ServiceError):
    """The admin token is missing or wrong."""

    reason = "UNAUTHENTICATED"
    status = grpc.StatusCode.UNAUTHENTICATED


class Unavailable(ServiceError):
    """Not now: draining, full, or a part that is needed does not answer."""

    reason = "UNAVAILABLE"
    status = grpc.StatusCode.UNAVAILABLE
    retryable = True


class TurnedAway(ServiceError):
    """This process has a successor and did nothing; whoever asks again reaches that one. gRPC itself says CANCELLED where a
    call crosses with a server's end, so that one rule of the callers covers both."""

    reason = "TURNED_AWAY"
    status = grpc.StatusCode.CANCELLED
    retryable = True


class ConfigurationError(Exception):
    """A setting is wrong; the text says which, why and what to do. Ends the process with exit code 1."""
