"""The clients of the crowd, in a process of their own.

`python -m tests.chaos.crowd_clients '{plan}'` makes the calls at once and writes what each saw to the plan's `out`."""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos import caller
from tests.chaos.caller import Manner
from tests.chaos.history import Call

# New connections at once; a listener's backlog is no part of this test.
OPENING = 100


async def run(plan: dict[str, Any]) -> list[Call]:
    """All calls, by number."""
    over = asyncio.Event()
    opening = asyncio.Semaphore(OPENING)

    async def one(index: int) -> Call:
        # A client that stops reading looks at its connection again when all others are done.
        stalled = index < plan["stalled"]
        call = Call(plan["first"] + index, plan["account_id"])
        manner = Manner(stalls_after=1, stalls_until=over) if stalled else Manner()
        return await caller.make(plan["address"], plan["key"], call, manner, opening=opening)

    tasks = [asyncio.create_task(one(index)) for index in range(plan["count"])]
    await asyncio.gather(*tasks[plan["stalled"] :])
    over.set()
    return await asyncio.gather(*tasks)


def main() -> None:
    """Make the calls that the plan names."""
    plan = json.loads(sys.argv[1])
    calls = asyncio.run(run(plan))
    Path(plan["out"]).write_text(json.dumps([asdict(call) | {"ending": call.ending.name} for call in calls]))


if __name__ == "__main__":
    main()
