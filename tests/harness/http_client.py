"""HTTP clients of the product, which speaks plain HTTP here: none reads the system's certificates, which takes longer than
most answers."""

import ssl
from typing import Any

import httpx

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def plain(**settings: Any) -> httpx.AsyncClient:
    """See httpx.AsyncClient."""
    return httpx.AsyncClient(verify=NO_CERTIFICATES, **settings)
