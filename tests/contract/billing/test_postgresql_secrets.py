"""The database's password is told to nobody: not in a message, a log, a metric or an argument."""

import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from prometheus_client import generate_latest

from services.billing.store.open import foresee, open_store
from services.cli import up
from services.common.errors import ConfigurationError
from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Service, settings

pytestmark = [pytest.mark.processes, pytest.mark.real]
PASSWORD = "Winterreise-1827"


def with_password(url: str) -> str:
    return url.replace("//postgres:@", f"//postgres:{PASSWORD}@")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"postgresql://me:{PASSWORD}@127.0.0.1:1/b", "Connection refused"),
        (f"postgresql://me:{PASSWORD}@nowhere.invalid/b", "nowhere.invalid"),
        (f"postgresql://me:x@{PASSWORD}@127.0.0.1/b", "percent-encoded"),
        (f"postgresql://me:x/{PASSWORD}@127.0.0.1/b", "percent-encoded"),
        (f"postgresql://me:{PASSWORD}/x@127.0.0.1/b", "percent-encoded"),
        (f"postgresql://me:{PASSWORD}%zz@127.0.0.1/b", "percent-encoded"),
        (f"postgresql://me:x {PASSWORD}@127.0.0.1/b", "percent-encoded"),
        (f"postgresql://me:{PASSWORD}@127.0.0.1:{PASSWORD}/b", "percent-encoded"),
        (f"postgresql://127.0.0.1/b?password={PASSWORD}&nonsense=1", "percent-encoded"),
        (f"postgres:{PASSWORD}", "no URL"),
        (f"host=127.0.0.1 password={PASSWORD} dbname=b", "no URL"),
        (f"mysql://me:{PASSWORD}@127.0.0.1/b", "'mysql' databases are not known"),
    ],
)
def test_a_refused_url_is_not_repeated(postgresql: Server, url: str, said: str) -> None:
    for opening in (lambda: open_store(url, lambda: 0), lambda: foresee(url)):
        with pytest.raises(ConfigurationError, match=said) as caught:
            opening()
        chain: list[BaseException | None] = [caught.value, caught.value.__cause__]
        assert PASSWORD not in repr(chain) + str(caught.value)


async def test_no_outage_tells_the_password(
    postgresql: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    postgresql.empty()
    service = Service(tmp_path, with_password(postgresql.url))
    client = await service.start()
    account = await client.open_account("1")
    with postgresql.unreachable():
        for call in (client.open_account("1"), client.account(account)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert PASSWORD not in str(caught.value)
    await client.open_account("1")
    metrics = generate_latest(service.billing.metrics.registry).decode()
    await service.stop()
    said = capfd.readouterr()
    # Both failures are told of all the same.
    assert {"batch_not_stored", "question_not_answered"} <= set(said.out.split())
    assert PASSWORD not in said.out + said.err + metrics
    assert PASSWORD not in repr(settings(tmp_path, with_password(postgresql.url)))


def test_it_is_neither_in_arguments_nor_in_last_words(tmp_path: Path) -> None:
    url = f"postgresql://me:{PASSWORD}@127.0.0.1:1/b"
    started = up.programs(None, settings(tmp_path, url))
    assert [program.name for program in started] == ["billing", "router", "edge"]
    assert PASSWORD not in repr(started)
    pytest.importorskip("psycopg", reason="PostgreSQL's driver (psycopg) is not installed")
    ended = subprocess.run(
        [sys.executable, "-m", "services.cli.main", "billing"],
        env={**os.environ, "SPEEDINFER_BILLING__DATABASE": url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "Connection refused" in ended.stderr
    assert PASSWORD not in ended.stdout + ended.stderr
