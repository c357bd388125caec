"""Operators' mutations of keys: make, revoke, rotate. Pure. Billing sees hashes only."""

import re
from dataclasses import replace
from typing import Any

from google.protobuf.message import Message
from speedinfer.billing.v1 import key_pb2 as pb

from services.billing import messages
from services.billing.books import Books
from services.billing.key import Key, Status
from services.billing.limits import Limits
from services.billing.operations.account import MAX_NAME_CHARS, amount, existing
from services.billing.operations.mutation import Mutation, invalid, not_found
from services.billing.store.port import Names

MAX_MODELS = 1_000
MAX_GRACE_MS = 90 * 86_400_000
_KEY_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


class CreateKey(Mutation):
    """One item of CreateKeysRequest."""

    kind = "create_key"
    answer_type = pb.KeyResult

    def needs(self) -> Names:
        """See Mutation."""
        return Names(accounts={self.item.account_id}, keys={self.item.key_id})

    def perform(self, books: Books) -> Message:
        """See Mutation."""
        account = existing(books, self.item.account_id)
        if len(self.item.name) > MAX_NAME_CHARS:
            raise invalid("name", f"a name has at most {MAX_NAME_CHARS} characters")
        limits = _limits(self.item.limits)
        _check_new(books, self.item.key_id, self.item.key_sha256, "key_id", "key_sha256")
        key = Key(
            self.item.key_id, account.account_id, self.item.name, bytes(self.item.key_sha256), limits, books.now_ms
        )
        books.add_key(key)
        return self.done(key=messages.key(key, books.now_ms))


class RevokeKey(Mutation):
    """One item of RevokeKeysRequest. A key that is revoked stays so, since when it was."""

    kind = "revoke_key"
    answer_type = pb.KeyResult

    def needs(self) -> Names:
        """See Mutation."""
        return Names(keys={self.item.key_id})

    def perform(self, books: Books) -> Message:
        """See Mutation."""
        key = _existing(books, self.item.key_id)
        if key.revoked_at_ms is None:
            key.revoked_at_ms = books.now_ms
            books.change_key(key)
        return self.done(key=messages.key(key, books.now_ms))


class RotateKey(Mutation):
    """One item of RotateKeysRequest."""

    kind = "rotate_key"
    answer_type = pb.KeyResult

    def needs(self) -> Names:
        """See Mutation."""
        return Names(keys={self.item.key_id, self.item.new_key_id})

    def perform(self, books: Books) -> Message:
        """See Mutation."""
        old = _existing(books, self.item.key_id)
        if old.status(books.now_ms) is not Status.ACTIVE:
            raise invalid("key_id", "the key is revoked or expired; make a new one")
        if not 0 <= self.item.grace_ms <= MAX_GRACE_MS:
            raise invalid("grace_ms", "a grace of at most 90 days is expected")
        _check_new(books, self.item.new_key_id, self.item.new_key_sha256, "new_key_id", "new_key_sha256")
        successor = Key(
            self.item.new_key_id,
            old.account_id,
            old.name,
            bytes(self.item.new_key_sha256),
            old.limits,
            books.now_ms,
            replaces_key_id=old.key_id,
        )
        end_ms = books.now_ms + self.item.grace_ms
        if old.limits.expires_at_ms is None or end_ms < old.limits.expires_at_ms:
            old.limits = replace(old.limits, expires_at_ms=end_ms)
            books.change_key(old)
        books.add_key(successor)
        return self.done(key=messages.key(successor, books.now_ms))


def _existing(books: Books, key_id: str) -> Key:
    key = books.key(key_id)
    if key is None:
        raise not_found("key_id", f"there is no key {key_id}")
    return key


def _check_new(books: Books, key_id: str, sha256: bytes, id_field: str, hash_field: str) -> None:
    if not _KEY_ID.fullmatch(key_id):
        raise invalid(id_field, "a key id has 1 to 64 letters, digits, '-' or '_'")
    if books.key(key_id) is not None:
        raise invalid(id_field, f"the key {key_id} exists already")
    if len(sha256) != 32:
        raise invalid(hash_field, "a SHA-256 has 32 bytes")


def _limits(message: Any) -> Limits:
    counts: dict[str, int | None] = {}
    for name in ("requests_per_minute", "tokens_per_minute", "concurrency"):
        counts[name] = getattr(message, name) if message.HasField(name) else None
        if (counts[name] or 0) < 0:
            raise invalid(f"limits.{name}", "a limit cannot be negative")
    spends: dict[str, int | None] = {}
    for name in ("daily_spend", "monthly_spend"):
        spends[name] = amount(getattr(message, name), f"limits.{name}") if message.HasField(name) else None
        if (spends[name] or 0) < 0:
            raise invalid(f"limits.{name}", "a limit cannot be negative")
    if len(message.models) > MAX_MODELS or not all(message.models):
        raise invalid("limits.models", f"at most {MAX_MODELS} names, none of them empty, are expected")
    expires_at_ms = messages.moment_ms(message.expires_at) if message.HasField("expires_at") else None
    if message.HasField("expires_at") and expires_at_ms is None:
        raise invalid("limits.expires_at", "this is no moment since 1970")
    return Limits(
        **counts,
        models=tuple(message.models),
        expires_at_ms=expires_at_ms,
        daily_spend_nanos=spends["daily_spend"],
        monthly_spend_nanos=spends["monthly_spend"],
    )
