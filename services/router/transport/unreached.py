"""Why a connection did not come about, in words for an operator. Pure; the HTTP transports import it."""

import os

import aiohttp

from services.router.transport.guarded_resolver import NotAllowed


def reason(error: Exception) -> str:
    """Where it was tried and what the system said, such as `cannot connect to 127.0.0.1:8000: connection refused`; for other
    errors their kind. For operators only: it names an address."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return type(error).__name__
    if is_refused(error):
        return str(error.os_error.strerror)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"cannot connect to {error.host}:{error.port}: the name is not known"
    number = error.os_error.errno
    said = os.strerror(number).lower() if number is not None and number > 0 else type(error.os_error).__name__
    return f"cannot connect to {error.host}:{error.port}: {said}"


def is_refused(error: Exception) -> bool:
    """Whether nothing was tried, since no worker may be where the name leads."""
    return isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, NotAllowed)
