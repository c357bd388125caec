"""Words that stand in the prompts and in the answers of most tests, and must be found in nothing that the product leaves.

`tests/harness/canaries.py` searches for them. They occur nowhere else, in particular not in code, whose lines tracebacks show.
"""

PROMPT = "-".join(("kestrel", "umbra", "prompt"))
# A part of every frame's id, which is relayed as the worker wrote it: whatever shows a frame shows this.
ANSWER = "-".join(("osprey", "quartz", "answer"))
