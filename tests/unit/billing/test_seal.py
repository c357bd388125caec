"""Seals: their text, their succession, their export, and the key that signs them."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.billing import seal_checks, seal_export, seal_key
from services.billing.chain import NO_PRICES
from services.billing.seal import NONE_BEFORE, Head, Seal, Statement, Unsealed, next_statement, read, sealed
from services.common.errors import ConfigurationError

HASH = bytes(range(32))


def statement(number: int = 1, previous: bytes = NONE_BEFORE, last_entry: int = 4) -> Statement:
    heads = (Head("acct_a", 3, HASH), Head("acct_b", 1, HASH[::-1]))
    return Statement(number, 1_800, previous, 0, last_entry, 0, NO_PRICES, heads)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> seal_key.SealKey:
    return seal_key.load_or_make(tmp_path_factory.mktemp("key") / "below" / "seal_key")


def signed(key: seal_key.SealKey, one: Statement) -> Seal:
    return sealed(one, key.sign(one.encoded()), key.key_id)


def three(key: seal_key.SealKey) -> list[Seal]:
    made: list[Seal] = []
    for number in (1, 2, 3):
        made.append(signed(key, statement(number, made[-1].sha256 if made else NONE_BEFORE, number)))
    return made


def test_a_statement_is_a_text_that_reads_back() -> None:
    zeros = "0" * 64
    assert statement().encoded().decode() == (
        f"speedinfer seal 1\nnumber 1\nat-ms 1800\nprevious {zeros}\nunchained-up-to 0\nlast-entry 4\nprices 0 {zeros}\n"
        f"accounts 2\nacct_a 3 {HASH.hex()}\nacct_b 1 {HASH[::-1].hex()}\n"
    )
    assert read(statement().encoded()) == statement()
    assert read(replace(statement(), heads=()).encoded()).heads == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("speedinfer seal 1", "speedinfer seal 2"),
        ("number 1", "number 01"),
        ("number 1", "nummer 1"),
        ("at-ms 1800", "at-ms"),
        ("at-ms 1800", "at-ms +1800"),
        ("accounts 2", "accounts 3"),
        ("acct_a 3", "acct_a  3"),
        (HASH.hex(), HASH.hex().upper()),
        (HASH.hex() + "\n", HASH.hex() + " more\n"),
        ("\nacct_b", "\n\nacct_b"),
    ],
)
def test_another_text_is_no_statement(old: str, new: str) -> None:
    text = statement().encoded().decode()
    assert old in text
    with pytest.raises(ValueError):
        read(text.replace(old, new, 1).encode())


@pytest.mark.parametrize("cut", [0, 1, 18, 60, -1])
def test_a_part_of_a_statement_is_none(cut: int) -> None:
    with pytest.raises(ValueError):
        read(statement().encoded()[:cut])


def test_where_nothing_has_changed_nothing_is_sealed(key: seal_key.SealKey) -> None:
    first = signed(key, statement())
    assert next_statement(Unsealed(None, 0, [], 0, []), 5) is None
    assert next_statement(Unsealed(first, 0, [], 4, []), 5) is None
    following = next_statement(Unsealed(first, 0, [Head("b", 2, HASH), Head("a", 2, HASH)], 9, []), 5)
    assert following == Statement(2, 5, first.sha256, 0, 9, 0, NO_PRICES, (Head("a", 2, HASH), Head("b", 2, HASH)))


def test_an_export_is_read_back_and_compared(key: seal_key.SealKey) -> None:
    verify = seal_key.read_public(key.public_pem.encode()).verify
    made = three(key)
    lines = [seal_export.line(one) for one in made]
    assert list(seal_export.seals(lines)) == made
    for exported in (made, made[:2], made[1:], made[2:]):
        assert list(seal_checks.compare(exported, made, verify)) == []
    found = list(seal_checks.compare(made, [made[0], made[2]], verify))
    assert [problem.partition(",")[0] for problem in found] == ["seal 2: was exported"]
    found = list(seal_checks.compare([made[0], made[2]], made, verify))
    assert found == ["exported seal 2: is missing"]
    forged = replace(made[1], signature=made[0].signature)
    found = list(seal_checks.compare([made[0], forged, made[2]], made, verify))
    assert found == [f"exported seal 2: its signature is not that of key {key.key_id}"]
    # Each is genuine, but the third does not follow this second one.
    another = signed(key, replace(statement(2, made[0].sha256, 2), sealed_at_ms=9))
    found = list(seal_checks.compare([made[0], another, made[2]], [made[0], another, made[2]], verify))
    assert [problem.partition(" with")[0] for problem in found] == ["exported seal 3: follows a seal"]
    backwards = signed(key, statement(2, made[0].sha256, 0))
    found = list(seal_checks.compare([made[0], backwards], [made[0], backwards], verify))
    assert found == ["exported seal 2: covers entries up to 0, an earlier one up to 1"]


@pytest.mark.parametrize("line", ["text", "{}", "[]", "7", '{"seal":1,"statement":"x","signature":"","key_id":""}'])
def test_a_line_that_is_no_seal_is_named(line: str, key: seal_key.SealKey) -> None:
    lines = [seal_export.line(signed(key, statement())), "\n", line]
    with pytest.raises(ValueError, match="line 3"):
        list(seal_export.seals(lines))


def test_a_key_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    path = tmp_path / "seal_key"
    made = seal_key.load_or_make(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert seal_key.load_or_make(path).key_id == made.key_id
    assert [one.name for one in tmp_path.iterdir()] == ["seal_key"]
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        seal_key.load(path)
    path.chmod(0o600)
    path.write_text(made.public_pem)
    with pytest.raises(ConfigurationError, match="no private key"):
        seal_key.load(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        seal_key.load(tmp_path / "nothing")


def test_several_public_keys_prove_seals_of_each(tmp_path: Path, key: seal_key.SealKey) -> None:
    later = seal_key.load_or_make(tmp_path / "later")
    both = seal_key.read_public((key.public_pem + later.public_pem).encode())
    text = statement().encoded()
    assert both.verify(key.key_id, text, key.sign(text)) == ""
    assert both.verify(later.key_id, text, later.sign(text)) == ""
    assert "is not that of key" in both.verify(key.key_id, text, later.sign(text))
    assert "is not that of key" in both.verify(key.key_id, text + b"x", key.sign(text))
    one = seal_key.read_public(key.public_pem.encode())
    assert f"(known: {key.key_id})" in one.verify(later.key_id, text, later.sign(text))
    for wrong in (b"", b"text", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"):
        with pytest.raises(ValueError):
            seal_key.read_public(wrong)
