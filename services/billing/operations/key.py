"""Operators' mutations of keys: make, revoke, rotate. Pure. Billing sees hashes only."""

import re
from dataclasses import replace

from google.protobuf.message import Message
from speedinfer.billing.v1 import key_pb2 as pb

from services.billing import messages
from services.billing.books import Books
from services.billing.key import Key, Status
from services.billing.operations.account import MAX_NAME_CHARS, existing
from services.billing.operations.allowance import read_limits
from services.billing.operations.mutation import Mutation, invalid, not_found
from services.billing.store.port import Names
from services.common.visible_text import is_name

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
        if len(self.item.name) > MAX_NAME_CHARS or not is_name(self.item.name):
            raise invalid("name", f"a name has at most {MAX_NAME_CHARS} characters, all of which can be seen")
        limits = read_limits(self.item.limits)
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
        if old.replaced_by_key_id:
            # It would hand on the end of its grace, and open a second line.
            raise invalid("key_id", f"the key was rotated already; rotate its successor {old.replaced_by_key_id}")
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
            first_key_id=old.line_id,
        )
        end_ms = books.now_ms + self.item.grace_ms
        if old.limits.expires_at_ms is None or end_ms < old.limits.expires_at_ms:
            old.limits = replace(old.limits, expires_at_ms=end_ms)
        old.replaced_by_key_id = successor.key_id
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
