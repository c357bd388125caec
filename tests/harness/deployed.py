"""A product that runs already, somewhere else: what the black-box tests are given with SPEEDINFER_DEPLOYMENT.

That names a JSON file, which whoever started the deployment has written (`describe`). Tests run on a machine of that deployment
from which clients, operators and finance come.
"""

import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from tests.harness.product import Completed, Product

VARIABLE = "SPEEDINFER_DEPLOYMENT"
OPERATOR, FINANCE = "operator", "finance"
# What finance asks for; an operator's identity may not.
_FINANCE_ASKS = ("ledger", "usage")


def describe(path: Path, url: str, authority: Path, here: str, callers: Mapping[str, Mapping[str, str]]) -> None:
    """Write the file: the public door, the CA of its certificate, the address of the machine that tests run on, and the
    settings with which an operator's and finance's commands reach the services."""
    path.write_text(json.dumps({"url": url, "authority": str(authority), "here": here, "callers": callers}))


def is_given() -> bool:
    """Whether tests are to use a deployment."""
    return VARIABLE in os.environ


class Deployed(Product):
    """It: `start` and `close` do nothing, and there are no logs, files or processes to look at."""

    def __init__(self, folder: Path) -> None:
        described = json.loads(Path(os.environ[VARIABLE]).read_text())
        self._callers: Mapping[str, Mapping[str, str]] = described["callers"]
        self._url: str = described["url"]
        self.here: str = described["here"]
        super().__init__(folder, self._callers[OPERATOR])
        self.trust = ssl.create_default_context(cafile=described["authority"])

    def __enter__(self) -> "Deployed":
        return self

    @property
    def url(self) -> str:
        """See Product."""
        return self._url

    @property
    def admin_token(self) -> str:
        """See Product."""
        return self.environment["SPEEDINFER_ADMIN_TOKEN"]

    def address(self, name: str) -> str:
        """See Product: where the caller's own sidecar stands for a service. Billing is asked for reports, so finance's does."""
        return self._callers[FINANCE]["SPEEDINFER_EDGE__BILLING_TARGET"].split(",")[0] if name == "billing" else ""

    def look(self) -> None:
        """See Product: nothing of it can be seen from here."""

    def run(self, *arguments: str, stdin: str | None = None, settings: Mapping[str, str] | None = None) -> Completed:
        """See Product."""
        return super().run(*arguments, stdin=stdin, settings={**self._settings_for(arguments), **(settings or {})})

    def command(self, *arguments: str, stdin: str | None = None, settings: Mapping[str, str] | None = None) -> object:
        """See Product."""
        return super().command(*arguments, stdin=stdin, settings={**self._settings_for(arguments), **(settings or {})})

    def _settings_for(self, arguments: tuple[str, ...]) -> Mapping[str, str]:
        return self._callers[FINANCE if arguments[0] in _FINANCE_ASKS else OPERATOR]
