"""What every service's process has in common, seen in a process that runs."""

import subprocess
import sys

# Imported as a composition root imports its app: before `run`.
SERVICE = """
import asyncio, gc
from services.common import process

async def main(stop):
    looked_through = any(each is process.run for each in gc.get_objects())
    print(gc.isenabled(), gc.get_freeze_count() > 0, looked_through)

raise SystemExit(process.run("test", "warning", main))
"""


def test_what_was_imported_is_not_looked_through_for_garbage() -> None:
    ran = subprocess.run([sys.executable, "-c", SERVICE], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["True", "True", "False"]
