"""The key that signs seals, and the public halves that prove them. Billing's sealing and the command import it.

Ed25519. The private key is a PEM file outside the database (mode 0600), made when the first seal is: whoever can write the
database but not read that file cannot make a seal. A key is known by the first 16 hex digits of its public half's SHA-256.
"""

import hashlib
import os
import re
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from services.common.errors import ConfigurationError

_PEM = re.compile(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\n?", re.DOTALL)


class SealKey:
    """A private key."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.key_id = _key_id(private.public_key())

    def sign(self, statement: bytes) -> bytes:
        """Its signature."""
        return self._private.sign(statement)

    @property
    def public_pem(self) -> str:
        """The public half."""
        return self._private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class PublicKeys:
    """Keys by which seals are proved."""

    def __init__(self, keys: dict[str, Ed25519PublicKey]) -> None:
        self._keys = keys

    def verify(self, key_id: str, statement: bytes, signature: bytes) -> str:
        """Why the signature is no good, or nothing."""
        key = self._keys.get(key_id)
        if key is None:
            known = ", ".join(sorted(self._keys)) or "none"
            return f"is signed with the key {key_id}, which is not known (known: {known}); name its public half"
        try:
            key.verify(signature, statement)
        except InvalidSignature:
            return f"its signature is not that of key {key_id}"
        return ""


def read_public(pem: bytes) -> PublicKeys:
    """One public key or several, one after another. ValueError where there is none or one is not Ed25519."""
    found: dict[str, Ed25519PublicKey] = {}
    for block in _PEM.findall(pem):
        try:
            key = load_pem_public_key(block)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ValueError("is no public key in PEM form") from error
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("holds a public key that is not Ed25519")
        found[_key_id(key)] = key
    if not found:
        raise ValueError("holds no public key in PEM form")
    return PublicKeys(found)


def own_public(path: Path) -> PublicKeys:
    """The public half of the key in a file; none where there is no file yet. ConfigurationError as `load`."""
    return read_public(load(path).public_pem.encode()) if path.exists() else PublicKeys({})


def load_or_make(path: Path) -> SealKey:
    """The key; made and stored if there is none yet. Two that start at once agree on one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # Written whole under another name, then linked: whoever comes second finds a complete file.
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                # A seal may be on disk before the key is; then nobody could prove it.
                os.fsync(file.fileno())
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        _sync_folder(path.parent)
    return load(path)


def load(path: Path) -> SealKey:
    """The key in a file. ConfigurationError if it is unreadable, no Ed25519 key, or open to others."""
    try:
        mode = path.stat().st_mode & 0o777
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the key that signs seals cannot be read from {path}: {error.strerror}") from error
    if mode & 0o077:
        raise ConfigurationError(f"{path} can be read by others (mode {mode:o}); run: chmod 600 {path}")
    try:
        key = load_pem_private_key(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigurationError(f"{path} holds no private key in PEM form without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError(f"{path} holds a key that is not Ed25519")
    return SealKey(key)


def _key_id(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
