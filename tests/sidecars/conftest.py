"""One deployment with sidecars for all tests that break nothing of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.upstream import Script, Upstream
from tests.sidecars.mesh import Mesh

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.sidecars)


@pytest.fixture(scope="session")
def served_by() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def upstream(served_by: Upstream) -> Upstream:
    """The scripted worker, playing its usual script."""
    served_by.plays(Script())
    return served_by


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory, served_by: Upstream) -> Iterator[Mesh]:
    """Three services, each behind its sidecar, and an operator's."""
    with Mesh(tmp_path_factory.mktemp("mesh"), served_by) as mesh:
        yield mesh
