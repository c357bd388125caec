"""A real OpenAI-compatible worker: llama.cpp's own HTTP server with SmolLM2-135M-Instruct.

    .venv-demo/bin/python demo/llama_worker.py --port 18001 --alias acme/model-1 --alias demo/llama --parallel 4

Prints one line `READY http://...` on stdout when it serves; exits 0 on SIGTERM, SIGINT and when its parent dies.

Names, as tried with llama.cpp's server in xllamacpp 2026.10:
- `/v1/models` lists **one** model whatever the number of aliases: `data[0].id` is the alias that sorts first, and
  `data[0].aliases` has them all. A gateway that checks `id` finds only the first.
- the `model` of a request is not looked at: any name, or none, is served; answers always say the first alias.
So the registration maps every further public name to that first one:
`"model_map": {"demo/llama": "acme/model-1"}`, and the gateway puts the public name back into the answers.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from demo.lifeline import end_with_parent
from demo.smollm import default_threads, llama_params


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="llama.cpp's OpenAI-compatible server with SmolLM2-135M-Instruct")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--alias", action="append", required=True, help="a model name to serve; may be repeated")
    parser.add_argument("--parallel", type=int, default=4, help="sequences computed at once; further requests wait")
    parser.add_argument("--context-tokens", type=int, default=4096, help="per sequence; the model can do 8192")
    parser.add_argument("--threads", type=int, default=default_threads(), help="default: half of the cores")
    return parser.parse_args(argv)


def main() -> None:
    args = arguments()
    endings = {signal.SIGTERM, signal.SIGINT}
    # Blocked before llama.cpp starts its threads, which inherit the mask: the signal then waits for sigwait below and
    # never lands in the middle of somebody's computation.
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    end_with_parent()

    began = time.monotonic()
    import xllamacpp  # 100 MB of library: after the signals are set

    params = llama_params(
        parallel=args.parallel,
        threads=args.threads,
        context_tokens=args.context_tokens,
        host=args.host,
        port=args.port,
    )
    params.model_alias = set(args.alias)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        sys.exit(f"llama.cpp did not start on {args.host}:{args.port} (is the port taken?): {error}")
    print(f"READY {server.listening_address} after {time.monotonic() - began:.1f} s", flush=True)

    signal.sigwait(endings)
    # Not by way of the server's destructor: it waits for running streams, and there is no state to put in order. The
    # kernel closes the sockets; a client in the middle of a stream sees it cut short, which is the truth.
    os._exit(0)


if __name__ == "__main__":
    main()
