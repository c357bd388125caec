"""What the models of one Triton server tell about cancelled requests, for `probe_cancelled` to report.

Each model runs in a process of its own; what they have in common is their parent, so the records lie in a folder named
after it: one file a cancelled request, gone when the probe is unloaded.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any


def folder() -> Path:
    return Path(tempfile.gettempdir(), f"speedinfer-cancelled-{os.getppid()}")


def record(model: str, request_id: str, sent: int) -> None:
    """`sent`: responses sent before the cancel was seen."""
    folder().mkdir(exist_ok=True)
    fresh = folder() / f".{uuid.uuid4()}"
    fresh.write_text(json.dumps({"model": model, "request_id": request_id, "sent": sent}))
    fresh.rename(fresh.with_name(f"{fresh.name[1:]}.json"))


def recorded(model: str) -> list[dict[str, Any]]:
    records = (json.loads(file.read_text()) for file in folder().glob("*.json"))
    return [entry for entry in records if entry["model"] == model]


def forget() -> None:
    shutil.rmtree(folder(), ignore_errors=True)
