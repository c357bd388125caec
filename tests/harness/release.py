"""The last release, whose services run beside the tree's."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.blackbox.conftest import PreparedProduct
from tests.harness.product import NAMES
from tests.harness.upstream import Upstream

WHEEL = next((Path(__file__).parents[1] / "releases").glob("speedinfer-*.whl"))


def unpacked(folder: Path) -> Path:
    """Where the release's packages are, for a process's PYTHONPATH."""
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(folder)
    return folder


class MixedProduct(PreparedProduct):
    """A product whose services are the release's until they are named in `new`; those start, and succeed, as the tree's."""

    def __init__(self, folder: Path, upstream: Upstream, release: Path) -> None:
        super().__init__(folder, upstream, None)
        self.release = release
        self.new: set[str] = set()

    def environment_of(self, name: str) -> Mapping[str, str]:
        """See Product."""
        environment = super().environment_of(name)
        return environment if name in self.new else {**environment, "PYTHONPATH": str(self.release)}

    def is_release(self, name: str) -> bool:
        """Whether the process that serves is the release's."""
        assert name in NAMES
        return f"PYTHONPATH={self.release}\0" in Path(f"/proc/{self.pid(name)}/environ").read_text()
