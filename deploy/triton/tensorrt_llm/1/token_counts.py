"""The token counts of one answer, from the engine's token ids. Pure; imported by model.py.

The LLM API tells all ids so far with each step; Triton's clients expect what each response adds. Invariant: the counts
taken are never negative and add up to the largest number of ids seen, also where a step adds several (speculative
decoding), none, or takes ids back (as the engine does with a stop word's when it is told to leave the word out).
"""

from __future__ import annotations

from collections.abc import Sized


class TokenCounts:
    """`take` once for each response."""

    def __init__(self) -> None:
        self.total = 0

    def take(self, token_ids: Sized | None) -> int:
        """Tokens that this response adds. An engine that keeps no ids (None) cannot be counted, which is a TypeError."""
        if token_ids is None:
            raise TypeError("the engine gave no token ids")
        fresh = max(0, len(token_ids) - self.total)
        self.total += fresh
        return fresh
