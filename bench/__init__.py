"""Measurements. `python -m bench` lists and runs them; each prints a table and keeps JSON under bench/results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def is_quick(words: Sequence[str], about: str | None) -> bool:
    """Whether a measurement that knows no other word was asked to be --quick. Helps, and refuses what is not known."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    return bool(parser.parse_args(words).quick)
