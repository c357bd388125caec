"""What `speedinfer doctor` says of a ledger in PostgreSQL: it logs in, as billing would, and changes nothing."""

from contextlib import closing
from pathlib import Path

import pytest

from services.cli import doctor
from services.cli.doctor import Finding
from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import settings

pytestmark = [pytest.mark.processes, pytest.mark.real]
PASSWORD = "Winterreise-1827"


def found(url: str, data_dir: Path) -> Finding:
    [finding] = [one for one in doctor.examine(settings(data_dir, url)) if one.check == "database"]
    return finding


def test_a_server_that_lets_billing_in_is_well_and_stays_as_it_is(postgresql: Server, tmp_path: Path) -> None:
    postgresql.drop()
    assert found(postgresql.url, tmp_path).ok
    assert postgresql.do("SELECT to_regclass('account')") == [(None,)]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (("//postgres:@", f"//nobody:{PASSWORD}@"), 'role "nobody" does not exist'),
        (("/postgres?", "/nothing?"), 'database "nothing" does not exist'),
        (("postgresql://", "mysql://"), "'mysql' databases are not known"),
    ],
)
def test_one_that_it_cannot_log_in_to_is_wrong_and_its_password_not_told(
    postgresql: Server, tmp_path: Path, other: tuple[str, str], said: str
) -> None:
    finding = found(postgresql.url.replace(*other), tmp_path)
    assert not finding.ok
    assert said in finding.detail
    assert finding.remedy
    assert PASSWORD not in repr(finding)


def test_tables_that_are_not_billings_are_wrong(postgresql: Server, tmp_path: Path) -> None:
    with postgresql.database("foreign_tables") as url:
        with closing(postgresql.connect("foreign_tables")) as connection:
            connection.execute("CREATE TABLE account (name TEXT)")
        assert "tables that are not billing's" in found(url, tmp_path).detail
