"""Which certificate a server shows to who asks now."""

import socket
import ssl
from pathlib import Path

from services.common import certificates
from services.common.listen import split

WITHIN_S = 10.0


def shown(address: str, authority: Path, pair: Path) -> str:
    """The serial number of the certificate that a server shows now."""
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    context.load_cert_chain(pair / "tls.crt", pair / "tls.key")
    with (
        socket.create_connection(split(address, "server"), timeout=WITHIN_S) as plain,
        context.wrap_socket(plain) as own,
    ):
        der = own.getpeercert(binary_form=True)
    assert der is not None
    return certificates.tell(ssl.DER_cert_to_PEM_cert(der).encode()).serial
