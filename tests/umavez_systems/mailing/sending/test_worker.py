"""The worker: the seed's lock, each mail once, doubts that are never guessed, and people who interrupt."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.umavez_systems.mailing.conftest import query
from tests.umavez_systems.mailing.far import Far, age, held, ingested, states, status_of, upload, work
from umavez import ClaimLost
from umavez.messaging import Poison
from umavez_systems.mailing.domain import ATTEMPTS, Capability, Doubt, Entry, Plan, plan_for
from umavez_systems.mailing.ports import Answer, Fate, Mail, Proof
from umavez_systems.mailing.sending.groups import Result, settle
from umavez_systems.mailing.sending.holding import Holding
from umavez_systems.mailing.sending.limiter import Limiter
from umavez_systems.mailing.sending.sender import Sender, result_of
from umavez_systems.problems import Problem
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


class TestProcessingLockIdempotency:
    """The seed's third group."""

    def test_should_prevent_concurrent_processing(self, carrier: Carrier) -> None:
        """S2.07."""
        mailing = upload(carrier, b"email\na@b.com\n")

        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda _: carrier.mailing.holdings.acquire(mailing), range(2)))

        assert len([result for result in results if result is not None]) == 1
        assert status_of(carrier, mailing) == "PROCESSING"


class TestCrashRecoveryIdempotency:
    """The seed's fourth group."""

    def test_should_recover_stale_locks_without_duplication(self, carrier: Carrier, settings: Settings) -> None:
        """S2.11."""
        mailing = upload(carrier, b"email\na@b.com\n")
        query(settings, "DELETE FROM umavez_outbox")
        query(settings, "UPDATE mailings SET status = 'PROCESSING'")
        age(settings)

        assert carrier.mailing.holdings.recover() == [mailing]

        assert query(settings, "SELECT status, last_attempt FROM mailings") == [("PENDING", None)]
        waiting = query(settings, "SELECT body FROM umavez_outbox WHERE state = 'WAITING'")
        assert [json.loads(body)["mailingId"] for (body,) in waiting] == [mailing]
        assert carrier.mailing.holdings.recover() == []


def test_s2_08_an_overtaken_worker_writes_nothing(carrier: Carrier, settings: Settings) -> None:
    mailing, late = ingested(carrier, b"email\na@b.com\nb@b.com\n")
    group = late.turn([], 1, "x")
    age(settings)
    holding = held(carrier, mailing)
    assert holding.epoch == late.epoch + 1
    results = [Result(group.entries[0]["id"], Entry.SENT, "250")]
    for write in (
        late.renew,
        lambda: late.turn(results, 0, "x"),
        late.leave,
        lambda: late.fail("x"),
        lambda: late.decide({group.entries[0]["id"]: Entry.SENT}, "x"),
        lambda: late.suppress(["a@b.com"], "bounce"),
    ):
        with pytest.raises(ClaimLost):
            write()
    assert states(settings) == {"UNKNOWN": 1, "PENDING": 1}


def test_s2_10_every_answer_has_its_state_and_every_attempt_the_same_bytes(
    carrier: Carrier, settings: Settings
) -> None:
    mailing = upload(
        carrier, b"email,nome\nok@b.com,Ana\nlater@b.com,B\nno@b.com,C\nunknown@b.com,D\n", texto="Oi {{ nome }}"
    )
    far = Far(
        later=Answer(Fate.LATER, "451 later"),
        no=Answer(Fate.REFUSED, "550 5.1.1 no such user", hard=True),
        unknown=Answer(Fate.UNKNOWN, "no answer"),
    )
    work(carrier, mailing, far)
    assert states(settings) == {"SENT": 1, "PENDING": 1, "FAILED": 1, "UNKNOWN": 1}
    assert status_of(carrier, mailing) == "QUEUED"  # later@ waits for its moment, with a message that does too
    assert query(settings, "SELECT email, motivo FROM mailing_suppressions") == [("no@b.com", "bounce")]
    later = query(settings, "SELECT count(*) FROM umavez_outbox WHERE due_at > created_at + 10000")
    assert later == [(1,)]
    first = next(mail for mail in far.mails if mail.recipient == "later@b.com")
    # As if the first attempt had been long ago: its Date must be the second one's, too.
    query(settings, "UPDATE mailing_entries SET depois_de = 0, data = 1700000000000 WHERE email = 'later@b.com'")
    far.fates["later"] = Answer(Fate.ACCEPTED, "250", "q1")
    work(carrier, mailing, far)
    assert states(settings) == {"SENT": 2, "FAILED": 1, "UNKNOWN": 1}
    row = carrier.mailing.cases.mailing("local", mailing)
    assert (row["status"], row["desconhecidos"]) == ("PAUSED", 1)
    assert "desconhecido" in row["motivo"]
    second = far.mails[-1]
    assert b"Date: Tue, 14 Nov 2023 22:13:20 +0000\r\n" in second.content
    assert _without_date(first.content) == _without_date(second.content)


def test_s2_10_workers_that_die_one_after_the_other_do_not_use_up_the_attempts_of_the_same_few(
    carrier: Carrier, settings: Settings
) -> None:
    """With their mails at the front again, each death would be theirs; at the tenth they would stay UNKNOWN."""
    many = 4 * (ATTEMPTS + 2)
    mailing, _ = ingested(
        carrier, b"email\n" + b"".join(b"u%03d@b.com\n" % one for one in range(many)), duvida="reenviar"
    )
    for _ in range(ATTEMPTS + 2):
        age(settings)
        dying = held(carrier, mailing)
        asyncio.run(sender_of(carrier, dying)._settle_doubts())
        assert len(dying.turn([], 4, "smtp").entries) == 4
    age(settings)
    far = Far()
    work(carrier, mailing, far)
    assert status_of(carrier, mailing) == "SENT"
    assert len(far.mails) == many
    assert query(settings, "SELECT max(attempts) FROM mailing_entries") == [(2,)]


@pytest.mark.parametrize(
    ("doubt", "times", "end"), [("segurar", 1, "PAUSED"), ("reenviar", 2, "SENT"), ("perguntar", 1, "SENT")]
)
def test_s2_10_after_a_crash_the_policy_decides(
    carrier: Carrier, settings: Settings, doubt: str, times: int, end: str
) -> None:
    mailing = upload(carrier, b"email\nx@b.com\ny@b.com\n", duvida=doubt)
    far = Far(Capability("smtp", tells=doubt == "perguntar"), y=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        work(carrier, mailing, far)  # both were handed over, then everything stops
    assert states(settings) == {"SENDING": 2}
    age(settings)
    far.fates.clear()
    carrier.mailing.holdings.recover()
    work(carrier, mailing, far)
    assert far.times() == {"x@b.com": times, "y@b.com": times}
    assert status_of(carrier, mailing) == end
    assert states(settings) == ({"UNKNOWN": 2} if doubt == "segurar" else {"SENT": 2})


def sender_of(carrier: Carrier, holding: Holding) -> Sender:
    async def proof() -> None:
        """It is ours."""

    limiter = Limiter(carrier.database, carrier.settings.mailing_rate)
    return Sender(holding, Far(), limiter, asyncio.to_thread, carrier.settings, proof)


def _without_date(content: bytes) -> bytes:
    return re.sub(rb"Date: [^\r]*\r\n", b"", content)


def test_a_result_of_another_epoch_is_not_kept(carrier: Carrier) -> None:
    _, holding = ingested(carrier, b"email\na@b.com\n")
    entry = holding.turn([], 1, "x").entries[0]["id"]
    with carrier.database.transaction() as connection:
        result = [Result(entry, Entry.SENT, "250")]
        assert settle(connection, carrier.mailing.cases.dialect, result, holding.epoch + 1) == 0
        assert settle(connection, carrier.mailing.cases.dialect, result, holding.epoch) == 1


@pytest.mark.parametrize("keyed", [True, False])
def test_what_is_sent_again_by_itself_waits_before_that(carrier: Carrier, settings: Settings, keyed: bool) -> None:
    """A far side that is down for a minute must not cost a mail all of its attempts in a second."""
    mailing = upload(carrier, b"email\nx@b.com\ny@b.com\n", duvida="segurar" if keyed else "reenviar")
    far = Far(Capability("http", keyed=keyed, window=86_400.0), x=Answer(Fate.UNKNOWN, "503"))
    for _ in range(3):
        work(carrier, mailing, far)
    assert far.times() == {"x@b.com": 1, "y@b.com": 1}
    assert (states(settings), status_of(carrier, mailing)) == ({"SENT": 1, "PENDING": 1}, "QUEUED")
    assert query(settings, "SELECT count(*) FROM umavez_outbox WHERE due_at > created_at + 10000") == [(3,)]
    query(settings, "UPDATE mailing_entries SET depois_de = 0 WHERE email = 'x@b.com'")
    far.fates.clear()
    work(carrier, mailing, far)
    assert (far.times()["x@b.com"], status_of(carrier, mailing)) == (2, "SENT")


def test_who_has_a_mail_in_doubt_sent_again_need_not_wait(carrier: Carrier) -> None:
    mailing = upload(carrier, b"email\nx@b.com\n")
    far = Far(x=Answer(Fate.UNKNOWN, "?"))
    work(carrier, mailing, far)
    (entry,) = carrier.mailing.cases.entries("local", mailing, "UNKNOWN", "", 10)
    carrier.mailing.cases.resolve("local", mailing, entry["id"], "reenviar", "ana", "perguntei")
    far.fates.clear()
    work(carrier, mailing, far)
    assert (far.times()["x@b.com"], status_of(carrier, mailing)) == (2, "SENT")


def test_past_a_providers_window_nothing_is_sent_by_itself() -> None:
    keyed = Capability("http", keyed=True, window=100.0)
    for doubt in Doubt:
        assert plan_for(doubt, keyed, 10) is Plan.SEND
        assert plan_for(doubt, keyed, 95) is Plan.HOLD
    assert plan_for(Doubt.REENVIAR, Capability("smtp"), 10**9) is Plan.SEND
    # Another was handed the mail: neither this one's keys nor its answers say anything about it.
    for doubt, plan in ((Doubt.SEGURAR, Plan.HOLD), (Doubt.PERGUNTAR, Plan.HOLD), (Doubt.REENVIAR, Plan.SEND)):
        assert plan_for(doubt, keyed, 10, tried_by="smtp") is plan
        assert plan_for(doubt, Capability("sink", tells=True), 10, tried_by="smtp") is plan
    assert plan_for(Doubt.PERGUNTAR, Capability("smtp"), 1) is Plan.HOLD


def test_a_provider_is_not_believed_about_what_another_was_handed(carrier: Carrier, settings: Settings) -> None:
    mailing = upload(carrier, b"email\na@b.com\n", duvida="perguntar")
    work(carrier, mailing, Far(a=Answer(Fate.UNKNOWN, "?")))
    carrier.mailing.cases.resume("local", mailing, "ana")
    other = Far(Capability("sink", tells=True))  # it would say that it never saw this mail, and be right
    work(carrier, mailing, other)
    assert (other.mails, states(settings), status_of(carrier, mailing)) == ([], {"UNKNOWN": 1}, "PAUSED")


def test_later_is_an_attempt_and_slow_down_is_none_for_a_day() -> None:
    first = {"id": "e", "attempts": 1, "data": 0, "agora": 0}
    assert result_of(first, Answer(Fate.LATER, "450")) == Result("e", Entry.PENDING, "450", due_in=30.0)
    assert result_of({**first, "attempts": ATTEMPTS}, Answer(Fate.LATER, "450")).status is Entry.FAILED
    busy = Answer(Fate.LATER, "421", slow=True)
    assert not result_of({**first, "attempts": ATTEMPTS}, busy).counts
    late = {**first, "attempts": ATTEMPTS, "agora": 25 * 3_600_000}
    assert result_of(late, busy).status is Entry.FAILED


@pytest.mark.parametrize("rate", [0.0, 50.0])
def test_a_rest_that_a_far_side_asks_for_keeps_nobody_from_pausing(
    carrier: Carrier, settings: Settings, rate: float
) -> None:
    carrier.settings.mailing_rate, carrier.settings.mailing_lock_seconds = rate, 1.0
    mailing = upload(carrier, b"email\na@b.com\nb@b.com\n")
    busy = Answer(Fate.LATER, "429", slow=True, rest=3600.0)
    began = time.monotonic()
    work(carrier, mailing, Far(a=busy, b=busy))
    assert time.monotonic() - began < 30
    assert status_of(carrier, mailing) == "QUEUED"
    assert carrier.mailing.cases.pause("local", mailing, "ana")["status"] == "PAUSED"


def test_a_rate_of_less_than_one_mail_in_a_slice_sends_one_after_the_other(carrier: Carrier) -> None:
    """A moment that a slice is too short for must be there for the next one."""
    carrier.settings.mailing_rate, carrier.settings.mailing_lock_seconds = 0.5, 1.0
    mailing = upload(carrier, b"email\na@b.com\nb@b.com\nc@b.com\n")
    far = Far()
    for _ in range(12):
        work(carrier, mailing, far)
        if status_of(carrier, mailing) == "SENT":
            break
    assert (status_of(carrier, mailing), len(far.mails)) == ("SENT", 3)


def test_two_halves_are_one_group_and_both_stop_when_one_is_overtaken(carrier: Carrier, settings: Settings) -> None:
    carrier.settings.mailing_group = 4
    mailing = upload(carrier, b"email\n" + b"".join(b"u%d@b.com\n" % number for number in range(20)))
    most = 0

    class Overtaken(Far):
        async def send(self, mails: Sequence[Mail], proof: Proof) -> list[Answer]:
            nonlocal most
            most = max(most, states(settings).get("SENDING", 0))
            if len(self.mails) >= 8:
                age(settings)
                held(carrier, mailing)
                await asyncio.sleep(0.3)  # the other half comes back, and finds that the mailing is another's
            answers = []
            for mail in mails:
                await proof()
                self.mails.append(mail)
                answers.append(Answer(Fate.ACCEPTED, "250"))
                await asyncio.sleep(0)
            return answers

    far = Overtaken()
    work(carrier, mailing, far)
    assert most == 4  # never more than a group in doubt
    assert max(far.times().values()) == 1
    assert len(far.mails) <= 12


def test_people_decide_about_doubts_once_and_the_last_one_ends_the_mailing(
    carrier: Carrier, settings: Settings
) -> None:
    mailing = upload(carrier, b"email\na@b.com\nb@b.com\nc@b.com\n")
    far = Far(**{name: Answer(Fate.UNKNOWN, "?") for name in "abc"})
    work(carrier, mailing, far)
    cases = carrier.mailing.cases
    ids = {row["email"]: row["id"] for row in cases.entries("local", mailing, "UNKNOWN", "", 10)}
    assert cases.resolve("local", mailing, ids["a@b.com"], "enviado", "ana", "vi na caixa")["status"] == "SENT"
    with pytest.raises(Problem):
        cases.resolve("local", mailing, ids["a@b.com"], "reenviar", "ana", "de novo")
    cases.resolve("local", mailing, ids["b@b.com"], "reenviar", "ana", "não chegou")
    assert status_of(carrier, mailing) == "QUEUED"
    far.fates.clear()
    work(carrier, mailing, far)
    assert status_of(carrier, mailing) == "PAUSED"
    cases.resolve("local", mailing, ids["c@b.com"], "falhou", "ana", "desisto")
    assert status_of(carrier, mailing) == "SENT"
    assert far.times() == {"a@b.com": 1, "b@b.com": 2, "c@b.com": 1}
    history = [(one["evento"], one["por"], one["motivo"]) for one in cases.history("local", mailing)]
    assert ("resolver:enviado", "ana", "vi na caixa") in history


def test_s2_09_an_unreachable_provider_fails_the_mailing_and_costs_no_attempt(
    carrier: Carrier, settings: Settings
) -> None:
    mailing = upload(carrier, b"email\na@b.com\n")
    with pytest.raises(Exception, match="ninguém"):
        work(carrier, mailing, Far(a=Answer(Fate.UNREACHED, "ninguém atende")))
    row = carrier.mailing.cases.mailing("local", mailing)
    assert (row["status"], row["motivo"], row["pendentes"]) == ("FAILED", "ninguém atende", 1)
    assert query(settings, "SELECT attempts, status FROM mailing_entries") == [(0, "PENDING")]
    work(carrier, mailing, Far())
    assert status_of(carrier, mailing) == "SENT"


def test_s2_09_a_message_that_names_nothing_is_poison_and_a_locked_mailing_is_skipped(carrier: Carrier) -> None:
    with pytest.raises(Poison):
        work(carrier, "nada", Far())
    mailing = upload(carrier, b"email\na@b.com\n")
    held(carrier, mailing)
    far = Far()
    work(carrier, mailing, far)
    assert far.mails == []


def test_pause_resume_cancel_and_resend(carrier: Carrier, settings: Settings) -> None:
    cases = carrier.mailing.cases
    mailing = upload(carrier, b"email\na@b.com\nb@b.com\n")
    cases.pause("local", mailing, "ana")
    far = Far(b=Answer(Fate.REFUSED, "554 no"))
    work(carrier, mailing, far)
    assert (far.mails, status_of(carrier, mailing)) == ([], "PAUSED")
    cases.resume("local", mailing, "ana")
    holding = held(carrier, mailing)
    assert cases.pause("local", mailing, "ana")["pedido"] == "pausar"  # a worker has it: it is asked
    assert status_of(carrier, mailing) == "PROCESSING"
    holding.leave()
    assert status_of(carrier, mailing) == "PAUSED"
    cases.resume("local", mailing, "ana")
    work(carrier, mailing, far)
    assert (status_of(carrier, mailing), states(settings)) == ("SENT", {"SENT": 1, "FAILED": 1})
    failed = cases.entries("local", mailing, "FAILED", "", 10)[0]["id"]
    sent = cases.entries("local", mailing, "SENT", "", 10)[0]["id"]
    with pytest.raises(Problem):
        cases.resend("local", mailing, "ana", [sent])
    assert cases.resend("local", mailing, "ana", [failed])[1] == 1
    far.fates.clear()
    work(carrier, mailing, far)
    assert (status_of(carrier, mailing), far.times()) == ("SENT", {"a@b.com": 1, "b@b.com": 2})
    with pytest.raises(Problem):
        cases.cancel("local", mailing, "ana")
    other = upload(carrier, b"email\na@b.com\n", name="b.csv")
    assert cases.cancel("local", other, "ana")["status"] == "CANCELLED"
    work(carrier, other, far)
    assert far.times()["a@b.com"] == 1


def test_suppression_is_honoured_at_the_last_moment(carrier: Carrier, settings: Settings) -> None:
    _, holding = ingested(carrier, b"email\na@b.com\nb@b.com\n")
    holding.suppress(["a@b.com"], "descadastro")
    assert [entry["email"] for entry in holding.turn([], 10, "x").entries] == ["b@b.com"]
    assert states(settings) == {"SUPPRESSED": 1, "SENDING": 1}


def test_a_frozen_worker_sends_nothing_more_when_it_wakes(carrier: Carrier, settings: Settings) -> None:
    mailing = upload(carrier, b"email\n" + b"".join(b"u%d@b.com\n" % number for number in range(5)))

    class Frozen(Far):
        async def send(self, mails: Sequence[Mail], proof: Proof) -> list[Answer]:
            answers = []
            for mail in mails:
                await proof()
                self.mails.append(mail)
                answers.append(Answer(Fate.ACCEPTED, "250"))
                age(settings)
                held(carrier, mailing)
                await asyncio.sleep(0.3)  # longer than half of the lock
            return answers

    carrier.settings.mailing_lock_seconds = 0.4
    far = Frozen()
    work(carrier, mailing, far)
    assert len(far.mails) == 1
    assert states(settings) == {"UNKNOWN": 5}
