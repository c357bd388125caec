"""The search for canaries finds what it must, where it must, and does not tell what it found."""

import base64
import contextlib
import sqlite3
from pathlib import Path

import pytest

from services.common.apikey import make_key
from tests.fakes.canary_words import ANSWER, PROMPT
from tests.harness.canaries import A_PROMPT, ADMIN_TOKEN, AN_ANSWER, CREDENTIAL, IDEMPOTENCY_KEY, KEY, Canaries
from tests.harness.remains import Remains

WORKERS_KEY = "worker-key-0123456789"


@pytest.fixture
def known() -> Canaries:
    known = Canaries()
    known.add(CREDENTIAL, WORKERS_KEY)
    known.add(IDEMPOTENCY_KEY, "idempotency-0123456789")
    return known


@pytest.fixture
def remains(tmp_path: Path) -> Remains:
    (tmp_path / "data" / "router").mkdir(parents=True)
    return Remains(tmp_path, tmp_path / "data")


def test_nothing_is_found_where_nothing_is(known: Canaries) -> None:
    key, presented = make_key()
    known.add_key(key)
    text = f'{{"key_id": "{presented.key_id}", "id": "0193c0de-7a11-7000-8000-0123456789ab"}} sk-si-{"0" * 50}'
    assert list(known.find(text.encode())) == []


@pytest.mark.parametrize("shown", [slice(None), slice(6, None), slice(0, 36), slice(20, 36)])
def test_any_part_of_a_keys_secret_is_found(known: Canaries, shown: slice) -> None:
    key, _ = make_key()
    known.add_key(key)
    hits = list(known.find(b"logged: " + key[shown].encode()))
    assert {hit.kind for hit in hits} == {KEY}


def test_a_key_that_nobody_entered_is_known_by_its_checksum(known: Canaries) -> None:
    key, _ = make_key()
    assert [hit.kind for hit in known.find(f"Bearer {key}".encode())] == [KEY]


@pytest.mark.parametrize("shift", range(3))
def test_a_word_is_found_in_base_64(known: Canaries, shift: int) -> None:
    coded = base64.b64encode(b"x" * shift + PROMPT.encode() + b" and more")
    assert [hit.kind for hit in known.find(coded)] == [A_PROMPT]


def test_a_leak_is_told_by_file_offset_and_kind_alone(known: Canaries, remains: Remains) -> None:
    log = remains.folder / "edge.log"
    log.write_text(f"line\n{ANSWER}\n")
    remains.seen["router's metrics"] = f'requests{{model="{PROMPT}"}} 1'.encode()
    assert list(remains.leaks(known)) == [f"router's metrics, offset 16: {A_PROMPT}", f"{log}, offset 5: {AN_ANSWER}"]


def test_a_secret_may_be_where_it_belongs_if_nobody_else_can_read_it(known: Canaries, remains: Remains) -> None:
    registry, token = remains.data_dir / "router" / "registry.json", remains.data_dir / "admin_token"
    registry.write_text(WORKERS_KEY)
    token.write_text("sat-0123456789abcdef\n")
    for path in (registry, token):
        path.chmod(0o600)
    assert list(remains.leaks(known)) == []
    registry.chmod(0o640)
    (remains.folder / "router.log").write_text(f"sat-0123456789abcdef {WORKERS_KEY}")
    leaks = list(remains.leaks(known))
    assert [leak.rsplit(": ", 1)[1] for leak in leaks] == [
        f"{CREDENTIAL}, which others may read",
        CREDENTIAL,
        ADMIN_TOKEN,
    ]


def test_the_ledgers_columns_are_searched_each_by_its_name(known: Canaries, remains: Remains) -> None:
    path = remains.data_dir / "billing.db"
    with contextlib.closing(sqlite3.connect(path)) as ledger, ledger:
        ledger.execute("CREATE TABLE reservation (idempotency_key TEXT, cause TEXT, asked BLOB)")
        ledger.execute(
            "INSERT INTO reservation VALUES ('idempotency-0123456789', 'idempotency-0123456789', ?)", [PROMPT.encode()]
        )
    path.chmod(0o600)
    leaks = list(remains.leaks(known))
    assert f"{path}, reservation.cause: {IDEMPOTENCY_KEY}" in leaks
    assert f"{path}, reservation.asked: {A_PROMPT}" in leaks
    assert not any("reservation.idempotency_key" in leak for leak in leaks)
