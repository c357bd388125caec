"""`speedinfer certs`: what it makes, how it replaces, what it shows, and what it says where something is wrong."""

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.cli import secret_folder
from services.cli.failure import CommandError
from services.common.certificates import Authority, make_authority
from tests.harness import command_line

ALL = ["edge", "router", "billing", "finance", "operator", "public"]


def run(folder: Path, *arguments: str, **settings: str) -> tuple[int, str, str]:
    (folder / "empty.toml").touch()
    environment = {"SPEEDINFER_CONFIG": str(folder / "empty.toml"), "SPEEDINFER_DATA_DIR": str(folder / "data")}
    return command_line.run(["certs", *arguments], None, environment | settings)


def rows(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    code, shown, errors = run(folder, *arguments, "--json")
    assert code == 0, errors
    assert "PRIVATE KEY" not in shown
    made: list[dict[str, Any]] = json.loads(shown)
    return made


def test_making_renewing_and_showing(tmp_path: Path) -> None:
    made = rows(tmp_path, "make", "--public-name", "api.example.com", "--days", "3")
    assert [row["name"] for row in made] == ALL
    assert made[0]["identity"] == "spiffe://speedinfer.internal/speedinfer/edge"
    assert made[0]["names"] == ["edge", "localhost", "127.0.0.1"]
    assert made[-1]["identity"] is None
    assert "api.example.com" in made[-1]["names"]
    # What is there stays.
    assert rows(tmp_path, "make") == []
    shown = rows(tmp_path, "show")
    assert [row["name"] for row in shown] == ["ca", *ALL]
    assert {row["state"] for row in shown} == {"good"}
    assert shown[1:] == made
    # Those that last longer are left alone, and names stay.
    assert rows(tmp_path, "renew", "--within-hours", "71") == []
    (renewed,) = rows(tmp_path, "renew", "public")
    assert renewed["serial"] != made[-1]["serial"]
    assert renewed["names"] == made[-1]["names"]
    assert [row["name"] for row in rows(tmp_path, "renew", "--within-hours", "73")] == ALL[:-1]


def test_files_are_for_their_owner_alone_and_change_as_one(tmp_path: Path) -> None:
    rows(tmp_path, "make")
    kept = tmp_path / "data" / "certificates"
    for path in kept.rglob("*"):
        if not path.is_symlink():
            assert path.stat().st_mode & 0o077 == 0, path
    edge = kept / "edge"
    # As in a Kubernetes secret volume: Envoy waits for this link's renaming.
    assert os.readlink(edge / "tls.key") == "..data/tls.key"
    before = os.readlink(edge / "..data")
    rows(tmp_path, "renew", "edge")
    assert os.readlink(edge / "..data") != before
    assert sorted(path.name for path in edge.iterdir() if not path.is_symlink()) == [os.readlink(edge / "..data")]


def test_a_make_that_fails_leaves_what_there_was(tmp_path: Path) -> None:
    secret_folder.write(tmp_path / "edge", {"tls.crt": b"one", "tls.key": b"1"})
    with pytest.raises(CommandError, match="cannot be written"):
        secret_folder.write(tmp_path / "edge", {"tls.crt": b"two", "no/where": b"2"})
    assert (tmp_path / "edge" / "tls.crt").read_bytes() == b"one"
    assert (tmp_path / "edge" / "tls.key").read_bytes() == b"1"
    assert [path.name for path in (tmp_path / "edge").glob("..*") if path.name != secret_folder.DATA] == [
        os.readlink(tmp_path / "edge" / "..data")
    ]


def test_what_is_not_good_is_shown_and_told_by_the_exit_code(tmp_path: Path) -> None:
    rows(tmp_path, "make")
    kept = tmp_path / "data" / "certificates"
    router = {name: (kept / "router" / name).read_bytes() for name in ("tls.crt", "tls.key", "ca.crt")}
    secret_folder.write(kept / "edge", router)
    code, shown, _ = run(tmp_path, "show", "--json")
    assert code == 1
    assert {row["name"]: row["state"] for row in json.loads(shown) if row["state"] != "good"} == {
        "edge": "of another identity"
    }


def test_what_another_ca_signed_is_not_good_and_who_trusts_both_is(tmp_path: Path) -> None:
    rows(tmp_path, "make")
    kept = tmp_path / "data" / "certificates"
    own = (kept / "ca" / "tls.crt").read_bytes()
    now, day = datetime.now(UTC), timedelta(days=1)
    other = Authority(make_authority("speedinfer.internal", now, day))
    stranger = other.issue("edge", ["edge"], now, day)
    secret_folder.write(kept / "edge", {"tls.crt": stranger.certificate, "tls.key": stranger.key, "ca.crt": own})
    router = {name: (kept / "router" / name).read_bytes() for name in ("tls.crt", "tls.key")}
    secret_folder.write(kept / "router", {**router, "ca.crt": other.certificate + own})
    # It trusts none that the others are of.
    billing = other.issue("billing", ["billing"], now, day)
    trust = {"tls.crt": billing.certificate, "tls.key": billing.key, "ca.crt": other.certificate}
    secret_folder.write(kept / "billing", trust)
    code, shown, _ = run(tmp_path, "show", "--json")
    assert code == 1
    states = {row["name"]: row["state"] for row in json.loads(shown) if row["state"] != "good"}
    assert states == {"edge": "of another CA", "billing": "of another CA"}


def test_renewing_leaves_anothers_public_certificate_and_a_bundle_of_authorities(tmp_path: Path) -> None:
    rows(tmp_path, "make")
    kept = tmp_path / "data" / "certificates"
    own = (kept / "ca" / "tls.crt").read_bytes()
    now, day = datetime.now(UTC), timedelta(days=1)
    other = Authority(make_authority("speedinfer.internal", now, day))
    public = other.issue_public(["api.example.com"], now, day)
    secret_folder.write(kept / "public", {"tls.crt": public.certificate, "tls.key": public.key})
    router = {name: (kept / "router" / name).read_bytes() for name in ("tls.crt", "tls.key")}
    secret_folder.write(kept / "router", {**router, "ca.crt": other.certificate + own})
    code, shown, errors = run(tmp_path, "renew", "--json")
    assert (code, [row["name"] for row in json.loads(shown)]) == (0, ALL[:-1])
    assert "public is of another CA and stays" in errors
    assert (kept / "public" / "tls.key").read_bytes() == public.key
    assert (kept / "router" / "ca.crt").read_bytes() == other.certificate + own
    # Whoever names it wants ours.
    assert [row["name"] for row in rows(tmp_path, "renew", "public")] == ["public"]


def test_a_ca_near_its_end_and_what_has_expired_are_said(tmp_path: Path) -> None:
    kept = tmp_path / "data" / "certificates"
    now = datetime.now(UTC)
    short = make_authority("speedinfer.internal", now, timedelta(days=2))
    secret_folder.write(kept / "ca", {"tls.crt": short.certificate, "tls.key": short.key})
    code, _, errors = run(tmp_path, "make")
    assert (code, "the CA ends on" in errors) == (0, True)
    # Of two days ago, for one day.
    old = Authority(make_authority("speedinfer.internal", now - timedelta(days=3), timedelta(days=9)))
    router = old.issue("router", ["router"], now - timedelta(days=2), timedelta(days=1))
    secret_folder.write(kept / "router", {"tls.crt": router.certificate, "tls.key": router.key})
    code, _, errors = run(tmp_path, "make")
    assert (code, "has expired; run `speedinfer certs renew router`" in errors) == (1, True)
    gone = make_authority("speedinfer.internal", now - timedelta(days=3), timedelta(days=2))
    secret_folder.write(kept / "ca", {"tls.crt": gone.certificate, "tls.key": gone.key})
    code, _, errors = run(tmp_path, "renew")
    assert code == 1
    assert "move it away and run `speedinfer certs make`" in " ".join(errors.split())


WRONG: list[tuple[list[str], dict[str, str], str]] = [
    (["renew", "nobody"], {}, "there is no identity 'nobody'; there are edge, router"),
    (["make", "--public-name", "a b"], {}, "'a b' is neither a DNS name nor an IP address"),
    (["renew"], {"SPEEDINFER_SIDECAR__TRUST_DOMAIN": "other.internal"}, "the CA in .* is of the trust domain"),
]


@pytest.mark.parametrize(("arguments", "settings", "said"), WRONG)
def test_what_is_wrong_is_said(tmp_path: Path, arguments: list[str], settings: dict[str, str], said: str) -> None:
    if arguments[0] == "renew":
        rows(tmp_path, "make")
    code, shown, errors = run(tmp_path, *arguments, **settings)
    assert (code, shown) == (1, "")
    assert re.search(said, errors), errors


def test_where_there_is_nothing_the_way_is_told(tmp_path: Path) -> None:
    for verb in ("show", "renew"):
        code, _, errors = run(tmp_path, verb)
        assert code == 1
        assert "run `speedinfer certs make`" in errors


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    rows(tmp_path, "make")
    key = (tmp_path / "data" / "certificates" / "ca" / "tls.key").resolve()
    key.chmod(0o644)
    code, _, errors = run(tmp_path, "renew")
    assert code == 1
    assert "can be read by others (mode 644)" in errors


@pytest.mark.parametrize("days", ["0", "91", "many"])
def test_lifetimes_have_their_bounds(tmp_path: Path, days: str) -> None:
    assert run(tmp_path, "make", "--days", days)[0] == 2
