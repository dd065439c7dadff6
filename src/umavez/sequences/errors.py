"""What can be wrong with a number."""

from __future__ import annotations

from umavez.errors import UmavezError


class SeriesUnknown(UmavezError):
    """Nobody has defined this series; a misspelt name must not start a second one at 1."""

    def __init__(self, organisation: str, series: str) -> None:
        super().__init__(f"The series {series!r} of {organisation!r} is not defined; call define() once.")
        self.organisation = organisation
        self.series = series


class NumbersExhausted(UmavezError):
    """Every number of the open ranges is given or blocked."""

    def __init__(self, organisation: str, series: str) -> None:
        super().__init__(f"The series {series!r} of {organisation!r} has no number left; open another range.")
        self.organisation = organisation
        self.series = series


class NumberVoided(UmavezError):
    """The number that belongs to this key was voided."""

    def __init__(self, organisation: str, series: str, number: int) -> None:
        super().__init__(f"Number {number} of {series!r} of {organisation!r} was voided; use a new key to get another.")
        self.organisation = organisation
        self.series = series
        self.number = number


class NumberNotGiven(UmavezError):
    """The number was never given, so there is nothing to void."""

    def __init__(self, organisation: str, series: str, number: int) -> None:
        super().__init__(f"Number {number} of {series!r} of {organisation!r} was never given; block it instead.")
        self.organisation = organisation
        self.series = series
        self.number = number


class RangeTaken(UmavezError):
    """Numbers of this range were given already; `next_number` is the first that was not."""

    def __init__(self, organisation: str, series: str, next_number: int) -> None:
        super().__init__(
            f"Numbers of this range of {series!r} of {organisation!r} are given already; begin it at {next_number}."
        )
        self.organisation = organisation
        self.series = series
        self.next_number = next_number


class RangeExists(UmavezError):
    """A range of the same kind begins at the same number; `last` is where that one ends. Ranges cannot be changed."""

    def __init__(self, organisation: str, series: str, kind: str, first: int, last: int) -> None:
        super().__init__(
            f"A range that is {kind.lower()} begins at {first} in {series!r} of {organisation!r} already;"
            " begin yours at another number."
        )
        self.organisation = organisation
        self.series = series
        self.first = first
        self.last = last
