"""The URL of a PostgreSQL database: read, and spoken of without its password. PostgreSQL stores of any service import it.

The URL is a secret. Nothing here or in what PostgreSQL says of it reaches a message but the database's name, the host and
the user; what could be a piece of a password that was not percent-encoded is refused without being repeated.
"""

import psycopg
from psycopg.conninfo import conninfo_to_dict

from services.common.errors import ConfigurationError

_NOT_UNDERSTOOD = (
    "{setting} is not a URL that PostgreSQL understands (postgresql://USER:PASSWORD@HOST:PORT/DATABASE); characters "
    "such as @ / : # % in a password are written percent-encoded (%40 %2F %3A %23 %25)"
)


def place(url: str, setting: str) -> str:
    """The database's name and host, for messages. ConfigurationError, which repeats nothing but the setting's name, if it is no
    URL."""
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except (psycopg.Error, UnicodeError):
        # Without what PostgreSQL said: it quotes what it did not understand.
        raise ConfigurationError(_NOT_UNDERSTOOD.format(setting=setting)) from None
    hosts, ports, name = parts.get("host", ""), parts.get("port", ""), parts.get("dbname", "")
    if "@" in hosts + name + parts.get("user", "") or not all(port.isdecimal() for port in ports.split(",") if port):
        # Where a password's own @ or / ended it, the rest of it stands here.
        raise ConfigurationError(_NOT_UNDERSTOOD.format(setting=setting))
    return f"PostgreSQL database {name!r} at {hosts or 'this machine'}"


def said(error: psycopg.Error) -> str:
    """What PostgreSQL said, in one line and without the rows that it may quote in its details."""
    if error.diag.message_primary:
        return error.diag.message_primary
    # No answer of a server: its driver tells of the host, the port and the user, and never of the password.
    return " ".join(str(error).split()) or type(error).__name__
