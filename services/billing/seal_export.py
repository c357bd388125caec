"""Exported seals: a file of one JSON object a line, each a whole seal. Pure; the command imports it.

The statement stands in it as the text that was signed, so that whoever has the public key can check a line with any tool.
"""

from collections.abc import Iterable, Iterator

import orjson

from services.billing.seal import Seal, read, sealed


def line(seal: Seal) -> str:
    """A seal as a line."""
    text = {
        "seal": seal.number,
        "key_id": seal.key_id,
        "signature": seal.signature.hex(),
        "statement": seal.statement.decode(),
    }
    return orjson.dumps(text).decode() + "\n"


def seals(lines: Iterable[str | bytes]) -> Iterator[Seal]:
    """The seals of a file. ValueError names the line that is none."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            value = orjson.loads(text)
            statement = read(value["statement"].encode())
            yield sealed(statement, bytes.fromhex(value["signature"]), str(value["key_id"]))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number} is no seal ({error})") from error
