"""How many files and sockets a process may have open. `process.py` raises the bound when a service starts.

Many systems start programs with a soft bound of 1,024, kept low only for the sake of select(), which nothing here uses; an
edge with a thousand streams needs more. What the operator allows at most, the hard bound, stays as it is.
"""

import contextlib
import resource

# More is never needed (`max_streams` is far below); some systems allow a billion, and others refuse what is unlimited.
WANTED = 1_048_576


def allow_many() -> int:
    """Raise the soft bound as far as the hard one lets it; answers what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Whatever stands in the way: a service with few files is better than none.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
