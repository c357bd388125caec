"""Whether any worker of a model can honour a request, from the router's picture. Pure; `admission.py` imports it.

The router decides again at dispatch; looking here first refuses what cannot be done before money is touched.
"""

from collections.abc import Sequence

from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY, Worker

from services.edge.openai_errors import Problem, invalid, no_worker
from services.edge.openai_request import Need


def judge(workers: Sequence[Worker], needs: Sequence[Need], model: str) -> Problem | None:
    """None if some worker may take the request now; else why not.

    A worker that was never checked lists no features: what it can do is not known and is not held against it."""
    known = [frozenset(worker.features) for worker in workers if worker.features]
    if known and len(known) == len(workers):
        wanted = frozenset(need.feature for need in needs)
        if not any(wanted <= features for features in known):
            return _unsupported(known, needs, model)
    if not any(worker.status == WORKER_STATUS_HEALTHY for worker in workers):
        return no_worker(model)
    return None


def _unsupported(known: Sequence[frozenset[int]], needs: Sequence[Need], model: str) -> Problem:
    for need in needs:
        if not any(need.feature in features for features in known):
            if need.param:
                return invalid(f"{need.param!r} is not supported by the workers of the model {model!r}.", need.param)
            return invalid(f"The model {model!r} does not support this operation.", "model")
    # Each need is met by some worker, but all of them by none.
    params = [need.param for need in needs if need.param]
    together = ", ".join(repr(param) for param in params)
    return invalid(f"No worker of the model {model!r} supports {together} together.", params[0] if params else "model")
