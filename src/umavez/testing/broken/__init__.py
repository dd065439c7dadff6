"""Broken stores: each breaks one law on purpose. A suite that lets one pass proves nothing.

They show store authors which mistakes the laws are for; `ALL` pairs each with the law that must catch it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from umavez.clock import Clock
from umavez.stores.memory import MemoryStore
from umavez.testing.broken.counting import AddsTalliesUp, CountsByTheHour, CountsOneProcess, KeepsNumbersForEver
from umavez.testing.broken.keeping import (
    CutsPlaces,
    DropsProgress,
    ExpiresThePending,
    FindsAnyDigest,
    FindsEveryStatus,
    FindsTheNewestFirst,
    FindsTheOldAmongTheYoung,
    FindsTheSettledAsLapsed,
    KeepsOldColumns,
    KeepsRoundTimes,
    PagesByTheInstantAlone,
    PagesFromTheStart,
    ResetsTheBirth,
    SweepsTheRunning,
    SweepsTooMuch,
    UsesTheHostClock,
)
from umavez.testing.broken.naming import (
    CutsLongKeys,
    ForgetsTheFenceAtSweep,
    IgnoresCase,
    JoinsKeyParts,
    KeepsTheFenceOnTakeover,
    RaisesTheFenceAlways,
    Renaming,
    StripsBlanks,
)
from umavez.testing.broken.racing import (
    CutsStamps,
    FencesByThread,
    LocksNothing,
    SettlesInTwoWrites,
    SweepsWhatItSaw,
)
from umavez.testing.broken.telling import (
    KeepsTheEventsOfTheSwept,
    KeepsTheFirstOrigin,
    LosesTheOriginAtTheOutcome,
    MixesOriginsUp,
    TellsTheCleanPath,
    TellsWhatWasRefused,
)
from umavez.testing.broken.writing import (
    ChecksThenActs,
    HidesALostSwap,
    IgnoresTheStamp,
    InsertsWithoutALock,
    KeepsNothingAsEmpty,
    LosesEmptyOutcomes,
    RepeatsASwap,
    ResurrectsTheVanished,
    SettlesButSaysStale,
    ShowsNothingWhenStale,
)
from umavez.testing.laws import (
    claims,
    doubts,
    events,
    finding,
    keys,
    minutes,
    origins,
    outcomes,
    races,
    swaps,
    sweeping,
    times,
)
from umavez.testing.laws.law import Law

__all__ = [
    "ALL",
    "AddsTalliesUp",
    "Broken",
    "ChecksThenActs",
    "CountsByTheHour",
    "CountsOneProcess",
    "CutsLongKeys",
    "CutsPlaces",
    "CutsStamps",
    "DropsProgress",
    "ExpiresThePending",
    "FencesByThread",
    "FindsAnyDigest",
    "FindsEveryStatus",
    "FindsTheNewestFirst",
    "FindsTheOldAmongTheYoung",
    "FindsTheSettledAsLapsed",
    "ForgetsTheFenceAtSweep",
    "HidesALostSwap",
    "IgnoresCase",
    "IgnoresTheStamp",
    "InsertsWithoutALock",
    "JoinsKeyParts",
    "KeepsNothingAsEmpty",
    "KeepsNumbersForEver",
    "KeepsOldColumns",
    "KeepsRoundTimes",
    "KeepsTheEventsOfTheSwept",
    "KeepsTheFenceOnTakeover",
    "KeepsTheFirstOrigin",
    "LocksNothing",
    "LosesEmptyOutcomes",
    "LosesTheOriginAtTheOutcome",
    "MixesOriginsUp",
    "PagesByTheInstantAlone",
    "PagesFromTheStart",
    "RaisesTheFenceAlways",
    "Renaming",
    "RepeatsASwap",
    "ResetsTheBirth",
    "ResurrectsTheVanished",
    "SettlesButSaysStale",
    "SettlesInTwoWrites",
    "ShowsNothingWhenStale",
    "StripsBlanks",
    "SweepsTheRunning",
    "SweepsTooMuch",
    "SweepsWhatItSaw",
    "TellsTheCleanPath",
    "TellsWhatWasRefused",
    "UsesTheHostClock",
]


class Broken(NamedTuple):
    """A broken store and the law that must catch it."""

    store: Callable[[Clock], MemoryStore]
    law: Law


ALL: tuple[Broken, ...] = (
    Broken(IgnoresTheStamp, claims.an_overtaken_owner_changes_nothing),
    Broken(ChecksThenActs, swaps.of_rival_changes_to_one_record_exactly_one_is_done),
    Broken(InsertsWithoutALock, claims.of_rivals_for_a_free_key_exactly_one_is_granted),
    Broken(LosesEmptyOutcomes, outcomes.an_empty_outcome_is_not_an_absent_one),
    Broken(KeepsNothingAsEmpty, outcomes.an_empty_outcome_is_not_an_absent_one),
    Broken(HidesALostSwap, swaps.a_swap_that_lost_is_answered_as_lost),
    Broken(SettlesButSaysStale, swaps.a_swap_that_was_done_is_answered_as_done),
    Broken(ShowsNothingWhenStale, swaps.an_insert_where_something_stands_shows_it_and_writes_nothing),
    Broken(RepeatsASwap, swaps.a_swap_sent_twice_is_done_once_and_recognised),
    Broken(ResurrectsTheVanished, swaps.a_swap_of_a_record_that_vanished_says_so),
    Broken(ForgetsTheFenceAtSweep, sweeping.the_fence_rises_across_expiry_and_sweeping),
    Broken(KeepsTheFenceOnTakeover, claims.the_fence_rises_with_every_claim_and_only_then),
    Broken(RaisesTheFenceAlways, claims.the_fence_rises_with_every_claim_and_only_then),
    Broken(IgnoresCase, keys.keys_that_differ_differ),
    Broken(StripsBlanks, keys.keys_that_differ_differ),
    Broken(CutsLongKeys, keys.keys_that_differ_differ),
    Broken(JoinsKeyParts, keys.the_boundary_between_scope_operation_and_value_counts),
    Broken(SweepsTheRunning, sweeping.what_runs_is_never_swept),
    Broken(ExpiresThePending, sweeping.what_is_unknown_is_never_swept),
    Broken(SweepsTooMuch, sweeping.sweeping_keeps_to_its_limit),
    Broken(UsesTheHostClock, times.the_store_clock_ends_a_lease),
    Broken(ResetsTheBirth, times.created_at_stays_for_one_life_and_begins_anew_with_the_next),
    Broken(CutsPlaces, outcomes.a_place_is_kept_whole_or_refused),
    Broken(DropsProgress, doubts.whoever_takes_over_inherits_the_progress),
    Broken(KeepsOldColumns, outcomes.every_part_of_a_record_can_be_replaced),
    Broken(KeepsRoundTimes, times.lease_and_keep_count_from_the_moment_of_writing),
    Broken(FindsEveryStatus, finding.finding_keeps_to_the_status),
    Broken(FindsTheNewestFirst, finding.finding_gives_the_oldest_first_and_no_more_than_asked),
    Broken(PagesByTheInstantAlone, finding.pages_neither_miss_nor_repeat_a_record),
    Broken(PagesFromTheStart, finding.pages_neither_miss_nor_repeat_a_record),
    Broken(LocksNothing, races.of_rivals_who_come_again_and_again_one_gets_each_key),
    Broken(SweepsWhatItSaw, races.a_claim_made_during_a_sweep_survives_it),
    Broken(SettlesInTwoWrites, races.nobody_sees_half_an_outcome),
    Broken(FencesByThread, races.the_fence_rises_whoever_claims),
    Broken(CutsStamps, races.stamps_are_compared_whole),
    Broken(FindsAnyDigest, finding.finding_keeps_to_the_first_digits_of_the_digest),
    Broken(FindsTheOldAmongTheYoung, finding.finding_keeps_to_the_young),
    Broken(FindsTheSettledAsLapsed, finding.finding_tells_the_lapsed_from_the_living),
    Broken(TellsWhatWasRefused, events.a_swap_that_was_refused_leaves_no_event),
    Broken(KeepsTheEventsOfTheSwept, events.events_go_with_their_record),
    Broken(TellsTheCleanPath, events.the_clean_path_leaves_no_event),
    Broken(LosesTheOriginAtTheOutcome, origins.an_origin_is_kept_with_its_claim),
    Broken(KeepsTheFirstOrigin, origins.a_later_claim_brings_its_own_origin),
    Broken(AddsTalliesUp, minutes.a_tally_that_is_sent_again_counts_once),
    Broken(CountsOneProcess, minutes.what_several_processes_counted_is_added_up),
    Broken(CountsByTheHour, minutes.numbers_keep_to_their_span_and_their_time),
    Broken(KeepsNumbersForEver, minutes.old_numbers_go),
    Broken(MixesOriginsUp, origins.a_swap_that_was_refused_leaves_no_origin),
)
