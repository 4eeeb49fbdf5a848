"""Ranges of text, as the goldens have them."""

import itertools


def byte_spans(text, spans):
    """Ranges of characters as ranges of bytes."""
    at = [0, *itertools.accumulate(len(c.encode()) for c in text)]
    return [(at[a], at[b]) for a, b in spans]


def show_spans(spans):
    return " ".join(f"{a}-{b}" for a, b in spans)
