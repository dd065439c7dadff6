"""Sending: groups of mails: intents committed, mails handed over, results committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from umavez import ClaimLost
from umavez_systems.database import Row
from umavez_systems.mailing.domain import ATTEMPTS, BUSY_SECONDS, Doubt, Entry, Plan, pause_after, plan_for
from umavez_systems.mailing.ingest.dialect import Dialect
from umavez_systems.mailing.letters.composing import Composer
from umavez_systems.mailing.letters.signing import signer_of
from umavez_systems.mailing.letters.templates import Letter, Unrenderable
from umavez_systems.mailing.ports import Answer, Fate, Mail, Proof, Provider
from umavez_systems.mailing.sending.groups import Group, Result
from umavez_systems.mailing.sending.holding import Holding
from umavez_systems.mailing.sending.limiter import Limiter
from umavez_systems.settings import Settings

PAGE = 500
LANES = 2
"""Halves of a group that are on their way at once. Together they are one group: what a crash leaves in doubt."""
Run = Callable[..., Awaitable[Any]]


class Unreachable(Exception):
    """Nobody takes mails at the moment; the mailing is tried again later."""


class Sender:
    """Sends the mails of a mailing that is held."""

    def __init__(
        self, holding: Holding, provider: Provider, limiter: Limiter, run: Run, settings: Settings, proof: Proof
    ) -> None:
        self._holding = holding
        self._provider = provider
        self._limiter = limiter
        self._run = run
        self._proof = proof
        self._turning = asyncio.Lock()
        self._halted = False
        self._lost: ClaimLost | None = None
        self._size = limiter.size(settings.mailing_group)
        row = holding.row
        letter = Letter(row["assunto"], row["texto"], row["html"])
        names = Dialect.of(row["dialeto"]).variables
        self._composer = Composer(
            holding.id,
            row["remetente"],
            letter,
            names,
            settings.public_url,
            signer_of(settings.mailing_dkim),
            row["principal"],
        )

    async def send(self, until: float, stop: asyncio.Event) -> bool:
        """Send until the time is over; True when what is left has to wait for its moment.

        By halves of a group in turn: while one is handed over, the other's results and next intents are committed.
        """
        await self._settle_doubts()
        self._halted = False
        lanes = min(LANES, self._size)
        ends = await asyncio.gather(*(self._lane(until, stop) for _ in range(lanes)), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        if not all(ends):
            return False
        # Doubts of this very slice may be settled now; what they set free waits for the next one.
        await self._settle_doubts()
        return True

    async def _lane(self, until: float, stop: asyncio.Event) -> bool:
        """Take, send and settle until nothing is left for it (True), or the time is over, or the other lane failed."""
        many = max(1, self._size // LANES)
        results: list[Result] = []
        try:
            while True:
                over = self._halted or not await self._rest(many, stop, until)
                over = over or self._halted or stop.is_set()
                async with self._turning:
                    group = await self._run(
                        self._holding.turn, results, 0 if over else many, self._provider.capability.name
                    )
                results = []
                if over or group.wish is not None:
                    return False
                if group.entries:
                    results = await self._sent(group)
                elif not group.suppressed:
                    return True
        except BaseException as error:
            self._halted = True
            self._lost = error if isinstance(error, ClaimLost) else self._lost
            raise

    async def _still_ours(self) -> None:
        """Raise ClaimLost if the mailing is another's, as far as either lane knows."""
        if self._lost is not None:
            raise self._lost
        await self._proof()

    async def _rest(self, many: int, stop: asyncio.Event, until: float) -> bool:
        """Wait for the moment of the next mails; False where it does not come before the time is over.

        Whoever waits longer holds the mailing, and hears nobody who wants it paused, for as long as a far side says.
        """
        if (within := until - time.monotonic()) <= 0:
            return False
        left = await self._run(self._limiter.reserve, many, within)
        if left > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, within)):
                    await stop.wait()
        return bool(left <= within)

    async def _sent(self, group: Group) -> list[Result]:
        results, mails = self._composed(group.entries)
        answers = await self._provider.send(mails, self._still_ours) if mails else []
        if any(answer.slow for answer in answers):
            await self._run(self._limiter.slow_down, max(answer.rest for answer in answers))
        tried = {entry["id"]: entry for entry in group.entries}
        results += [result_of(tried[mail.entry], answer) for mail, answer in zip(mails, answers, strict=True)]
        await self._suppress(mails, answers)
        if answers and all(answer.fate is Fate.UNREACHED for answer in answers):
            async with self._turning:
                await self._run(self._holding.turn, results, 0, self._provider.capability.name)
            raise Unreachable(answers[0].text)
        return results

    def _composed(self, entries: list[Row]) -> tuple[list[Result], list[Mail]]:
        """The mails of a group, and the results of those that cannot be written."""
        failed: list[Result] = []
        mails: list[Mail] = []
        for entry in entries:
            try:
                mails.append(self._composer.compose(entry))
            except Unrenderable as error:
                failed.append(Result(entry["id"], Entry.FAILED, str(error)))
        return failed, mails

    async def _suppress(self, mails: list[Mail], answers: list[Answer]) -> None:
        gone = [mail.recipient for mail, answer in zip(mails, answers, strict=True) if answer.hard]
        if gone:
            await self._run(self._holding.suppress, gone, "bounce")

    async def _settle_doubts(self) -> None:
        """Decide about mails of which nobody knows, as far as the mailing's policy and the provider allow."""
        doubt, provider = Doubt(self._holding.row["duvida"]), self._provider.capability
        if plan_for(doubt, provider, 0.0) is Plan.HOLD:
            return
        after = ""
        while page := await self._run(self._holding.doubts, after, PAGE):
            after = page[-1]["id"]
            decided: dict[str, Entry] = {}
            for row in page:
                plan = plan_for(doubt, provider, float(row["idade"]), tried_by=row["provedor"])
                found = await self._decided(row, plan)
                if found is not None:
                    decided[row["id"]] = found
            if decided:
                await self._run(self._holding.decide, decided, f"política {doubt}, provedor {provider.name}")

    async def _decided(self, row: Row, plan: Plan) -> Entry | None:
        if plan is Plan.HOLD or row["attempts"] >= ATTEMPTS:
            return None
        if plan is Plan.SEND:
            return Entry.PENDING
        told = await self._provider.ask(row["message_id"], row["external_id"])
        if told is None:
            return None
        return Entry.SENT if told else Entry.PENDING


def result_of(entry: Row, answer: Answer) -> Result:
    """What an answer makes of an entry, which knows how often it was tried, and since when."""
    number, attempts = entry["id"], entry["attempts"]
    since = (entry["agora"] - entry["data"]) / 1000
    match answer.fate:
        case Fate.ACCEPTED:
            return Result(number, Entry.SENT, answer.text, answer.external_id)
        case Fate.UNKNOWN:
            # For whatever sends it again by itself: a far side that is down would else use up every attempt at once.
            return Result(number, Entry.UNKNOWN, answer.text, answer.external_id, due_in=pause_after(attempts))
        case Fate.UNREACHED:
            return Result(number, Entry.PENDING, answer.text, counts=False)
        case Fate.LATER if answer.slow and since < BUSY_SECONDS:
            return Result(number, Entry.PENDING, answer.text, due_in=pause_after(attempts), counts=False)
        case Fate.LATER if attempts < ATTEMPTS:
            return Result(number, Entry.PENDING, answer.text, due_in=pause_after(attempts))
        case _:
            return Result(number, Entry.FAILED, answer.text)
