"""The operators' bearer token. Anybody may import it.

It is the setting `admin_token` where there is one; else it is made once and kept in `data_dir/admin_token` (mode 0600), which
all services of a machine share.
"""

import hmac
import os
import secrets
from pathlib import Path

from services.common.errors import ConfigurationError

FILE_NAME = "admin_token"


def load_or_make(configured: str | None, data_dir: Path) -> str:
    """The token; made and stored if there is none yet. Two processes that start at once agree on one."""
    if configured:
        return configured
    path = data_dir / FILE_NAME
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        # Written whole under another name, then linked: whoever comes second finds a complete file.
        draft = data_dir / f".{FILE_NAME}.{os.getpid()}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(f"sat-{secrets.token_urlsafe(32)}\n")
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return load(path)


def load(path: Path) -> str:
    """The token in a file. ConfigurationError if it is unreadable, empty, or open to others."""
    try:
        mode = path.stat().st_mode & 0o777
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"the admin token cannot be read from {path}: {error.strerror}") from error
    if mode & 0o077:
        raise ConfigurationError(f"{path} can be read by others (mode {mode:o}); run: chmod 600 {path}")
    if not token:
        raise ConfigurationError(f"{path} is empty; remove it to have a new token made")
    return token


def is_bearer(header: str | None, token: str) -> bool:
    """Whether an Authorization value carries the token; takes the same time for every wrong one."""
    scheme, _, presented = (header or "").partition(" ")
    # A header's bytes that are no UTF-8 come as lone surrogates; they are a wrong token like any other.
    shown = presented.strip().encode("utf-8", "surrogatepass")
    return hmac.compare_digest(shown, token.encode()) and scheme.lower() == "bearer"
