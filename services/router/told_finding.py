"""What operators are told of a look at a worker: bounded, and without the secrets of its registration. Pure; the prober and the
registrar use it.

A worker may repeat in any text what it was asked with (an error over HTTP, the name of a model), so it is masked here, once,
whatever part of a check it came from. Where a worker is stays: its operators need it.
"""

from collections.abc import Iterable
from dataclasses import replace

from services.router.registration import Registration
from services.router.safe_text import SafeText
from services.router.transport.port import Finding

MAX_CHARACTERS = 4_000
# What is looked at for secrets, which become shorter.
_MAX_SEEN = 16 * MAX_CHARACTERS


def told(finding: Finding, registration: Registration) -> Finding:
    """The finding as it may be kept, logged and shown."""
    return replace(
        finding,
        detail=_masked([finding.detail], registration)[0],
        warnings=_masked(finding.warnings, registration),
        findings=_masked(finding.findings, registration),
    )


def _masked(texts: Iterable[str], registration: Registration) -> tuple[str, ...]:
    safe = SafeText(registration.secrets())
    return tuple(safe.without_known(text[:_MAX_SEEN])[:MAX_CHARACTERS] for text in texts)
