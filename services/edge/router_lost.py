"""How a call to a router fails that brought no `end` and no `failure`. Edge modules that speak to routers import it."""

import grpc


class Lost(Exception):
    """The router did not bring the request to an end; `code` says how. A worker may have seen it."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__(code.name)
        self.code = code


class NotBegun(Exception):
    """No worker has seen the request: it may go to another link, or to another router."""
