"""The ASGI shell: what a client of a keyed endpoint sees, and how often the app runs."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.conftest import bench
from umavez import CannotTell, ConfigurationError, Happened, NotDeclared, NotHappened, SchemaOutdated, StoreUnavailable
from umavez.concurrency.aside import AsyncAside
from umavez.engine.insistence import not_at_all
from umavez.http import ANONYMOUS, Problem, Route, answer_with
from umavez.http.asgi.capture import Capture
from umavez.http.contract.problem import KEY_MISSING
from umavez.http.contract.route import contract
from umavez.stores.memory import AsyncMemoryStore


def awaited(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))  # type: ignore[arg-type]

    return run


async def until(condition: Callable[[], object]) -> None:
    """Let the other tasks run until they have come so far."""
    deadline = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0)


def kind_of(response: httpx.Response) -> str:
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == response.status_code
    assert {"type", "title", "detail", "retryable"} <= document.keys()
    return str(document["type"].rpartition(":")[2])


@awaited
async def test_a_repeat_gets_the_first_answer_and_runs_nothing() -> None:
    async with bench(unknown="rerun") as b:
        first, again = await b.post(json={"a": 1}), await b.post(json={"a": 1})
        assert (first.status_code, first.json()) == (201, {"run": 1}) == (again.status_code, again.json())
        assert "idempotent-replayed" not in first.headers
        assert again.headers["idempotent-replayed"] == "true"
        assert first.headers["cache-control"] == again.headers["cache-control"] == "no-store"
        assert b.shop.runs == 1


@awaited
async def test_quoted_and_bare_forms_name_one_operation() -> None:
    async with bench(unknown="rerun") as b:
        await b.post("abc")
        assert (await b.post('"abc"')).headers["idempotent-replayed"] == "true"
        assert b.shop.runs == 1


@awaited
async def test_another_body_under_the_key_is_refused() -> None:
    async with bench(unknown="rerun") as b:
        await b.post(json={"a": 1})
        refused = await b.post(json={"a": 2})
        assert (refused.status_code, kind_of(refused)) == (422, "key-reused")
        assert b.shop.runs == 1


@awaited
async def test_a_lenient_route_replays_whatever_the_body() -> None:
    async with bench(unknown="rerun", mismatch="replay") as b:
        await b.post(json={"a": 1})
        assert (await b.post(json={"a": 2})).json() == {"run": 1}


@awaited
async def test_even_a_lenient_route_never_shows_another_resource() -> None:
    async with bench(
        unknown="rerun", mismatch="replay", routes=[Route("POST", "/o/{id}/pay", unknown="rerun", mismatch="replay")]
    ) as b:
        for path in ("/o/1/pay", "/o/2/pay", "/x", "/y"):
            assert "idempotent-replayed" not in (await b.post(path=path)).headers
        assert b.shop.runs == 4


@awaited
async def test_principals_with_the_same_key_do_not_meet() -> None:
    async with bench(unknown="rerun") as b:
        answers = [(await b.post(user=user)).json()["run"] for user in ("ana", "bob", "ana", "bob")]
        assert answers == [1, 2, 1, 2]


@awaited
async def test_who_is_not_identified_goes_to_the_app_and_the_answer_says_so() -> None:
    async with bench(unknown="rerun") as b:
        b.shop.status = 401
        answer = await b.post(user=None)
        assert answer.status_code == 401
        assert answer.headers["idempotency-unprotected"] == "no-principal"


@awaited
async def test_anonymous_is_a_word_that_must_be_said() -> None:
    async with bench(unknown="rerun", principal=ANONYMOUS) as b:
        assert (await b.post(user=None)).json() == (await b.post(user=None)).json()
    with pytest.raises(TypeError):
        async with bench(unknown="rerun") as b:
            from umavez.http.asgi import Idempotency

            Idempotency(b.shop, once=b.once, unknown="rerun")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError):
        async with bench(unknown="rerun", principal="ana"):
            pass


@awaited
async def test_what_an_unknown_outcome_means_must_be_said() -> None:
    with pytest.raises(NotDeclared):
        async with bench():
            pass
    with pytest.raises(NotDeclared):
        async with bench(required=True):
            pass


@awaited
async def test_a_missing_key_is_refused_where_required_and_unkeyed_elsewhere() -> None:
    async with bench(unknown="rerun", routes=[Route("POST", "/pay", unknown="hold", required=True)]) as b:
        refused = await b.post(None, "/pay")
        assert (refused.status_code, kind_of(refused)) == (400, "key-missing")
        assert (await b.post(None)).json() == {"run": 1}
        assert (await b.post(None)).json() == {"run": 2}


@awaited
async def test_repeated_and_malformed_keys_are_refused() -> None:
    async with bench(unknown="rerun") as b:
        twice = await b.post("a", headers=[("Idempotency-Key", "a")])
        assert (twice.status_code, kind_of(twice)) == (400, "key-repeated")
        assert kind_of(await b.post("a b")) == "key-invalid"
        assert b.shop.runs == 0


@awaited
async def test_a_repeat_while_the_first_runs_is_told_to_come_back() -> None:
    async with bench(unknown="rerun") as b:
        gate = asyncio.Event()
        b.shop.before = gate.wait
        first = asyncio.create_task(b.post())
        await until(lambda: b.shop.runs)
        busy = await b.post()
        assert (busy.status_code, kind_of(busy), busy.headers["retry-after"]) == (409, "in-progress", "1")
        assert busy.json()["retryable"] is True
        gate.set()
        assert (await first).status_code == 201


@awaited
async def test_a_repeat_may_wait_for_the_first_instead() -> None:
    async with bench(unknown="rerun", wait=5) as b:
        gate = asyncio.Event()
        b.shop.before = gate.wait
        several = [asyncio.create_task(b.post()) for _ in range(5)]
        await until(lambda: b.shop.runs)
        gate.set()
        assert {(await one).json()["run"] for one in several} == {1}


@pytest.mark.parametrize("status", [200, 204, 301, 400, 403, 404, 422])
@awaited
async def test_final_statuses_are_replayed(status: int) -> None:
    async with bench(unknown="hold") as b:
        b.shop.status = status
        b.shop.chunks = [] if status == 204 else None
        assert (await b.post()).status_code == status
        again = await b.post()
        assert (again.status_code, b.shop.runs) == (status, 1)


@pytest.mark.parametrize("status", [408, 409, 425, 429])
@awaited
async def test_try_again_statuses_leave_the_key_free(status: int) -> None:
    async with bench(unknown="hold") as b:
        b.shop.status = status
        for _ in range(6):
            assert (await b.post()).status_code == status
        b.shop.status = 201
        assert (await b.post()).status_code == 201
        assert b.shop.runs == 7


@awaited
async def test_a_server_error_frees_the_key_where_a_rerun_is_harmless() -> None:
    async with bench(unknown="rerun") as b:
        b.shop.status = 503
        assert (await b.post()).status_code == 503
        b.shop.status = 201
        assert (await b.post()).json() == {"run": 2}


@awaited
async def test_a_server_error_is_held_where_a_human_decides() -> None:
    async with bench(unknown="hold") as b:
        b.shop.status = 500
        assert (await b.post()).status_code == 500
        held = await b.post()
        assert (held.status_code, kind_of(held), held.json()["retryable"]) == (409, "outcome-unknown", False)
        assert b.shop.runs == 1


@awaited
async def test_the_far_side_is_asked_about_a_server_error() -> None:
    answers: list[Any] = [CannotTell("down"), NotHappened()]

    async def ask(question: Any) -> Any:
        return answers.pop(0) if answers else Happened(answer_with(201, {"charge": "c1"}, {"Location": "/c/1"}))

    async with bench(unknown=ask) as b:
        b.shop.status = 502
        await b.post()
        assert kind_of(await b.post()) == "outcome-unknown"
        assert (await b.post()).status_code == 502
        adopted = await b.post()
        assert (adopted.status_code, adopted.json(), adopted.headers["location"]) == (201, {"charge": "c1"}, "/c/1")
        assert b.shop.runs == 2


@awaited
async def test_routes_choose_what_is_final() -> None:
    async with bench(unknown="rerun", final={503}, not_final={404}) as b:
        b.shop.status = 404
        await b.post("k1")
        await b.post("k1")
        b.shop.status = 503
        await b.post("k2")
        await b.post("k2")
        assert b.shop.runs == 3


@awaited
async def test_an_error_of_the_app_reaches_the_server_and_follows_unknown() -> None:
    async with bench(unknown="hold") as b:
        b.shop.error = RuntimeError("boom")
        with pytest.raises(RuntimeError, match="boom"):
            await b.post()
        assert kind_of(await b.post()) == "outcome-unknown"


@awaited
async def test_only_allowed_headers_are_replayed() -> None:
    async with bench(unknown="rerun", keep_headers=["X-Receipt"]) as b:
        secret = [b"Set-Cookie", b"Authorization", b"WWW-Authenticate", b"Date", b"Connection", b"X-Other", b"Server"]
        useful = [b"Location", b"ETag", b"Last-Modified", b"Link", b"Content-Language", b"X-Receipt"]
        b.shop.headers = [(name, b"v") for name in secret + useful]
        first, again = await b.post(), await b.post()
        assert all(name.decode() in first.headers for name in secret + useful)
        assert {name for name in first.headers if name in again.headers} >= {name.decode().lower() for name in useful}
        assert not [name for name in secret if name.decode() in again.headers]
    with pytest.raises(ConfigurationError):
        Route("POST", "/", unknown="rerun", keep_headers=["set-cookie"])


@awaited
async def test_binary_answers_are_replayed_byte_for_byte() -> None:
    async with bench(unknown="rerun") as b:
        b.shop.chunks = [bytes(range(256)), b"\xff\x00"]
        assert (await b.post()).content == (await b.post()).content == bytes(range(256)) + b"\xff\x00"


@awaited
async def test_an_answer_in_many_pieces_is_not_copied_for_each() -> None:
    """A megabyte in pieces of five bytes, joined anew for each, held the loop for seconds."""
    async with bench(unknown="rerun") as b:
        run = Capture(b.shop, b.app.exchange, contract(), {}, b"", *[lambda: None] * 2, eager=False)  # type: ignore[arg-type,list-item]  # none is called
        assert run._gathered(b"a") == b"a"
        assert run._gathered(b"b") is run._gathered(b"c")
        b.shop.chunks = [b"xxxxx"] * 10_000
        assert [(await b.post()).content for _ in range(2)] == [b"xxxxx" * 10_000] * 2


@awaited
async def test_a_body_of_any_bytes_like_kind_is_kept() -> None:
    async with bench(unknown="hold") as b:
        b.shop.chunks = [memoryview(b"seen"), bytearray(b" and kept")]  # type: ignore[list-item]  # as Starlette sends
        assert [(await b.post()).content for _ in range(2)] == [b"seen and kept"] * 2


@awaited
async def test_an_answer_above_the_limit_goes_out_once_and_is_gone_afterwards() -> None:
    async with bench(unknown="rerun", max_response=10) as b:
        for key, size, kept in (("k1", 10, True), ("k2", 11, False)):
            b.shop.chunks = [b"x" * (size - 5), b"y" * 5]
            runs = b.shop.runs
            assert len((await b.post(key)).content) == size
            again = await b.post(key)
            assert b.shop.runs == runs + 1
            assert again.status_code == (201 if kept else 410)
        assert kind_of(again) == "response-not-kept"


@awaited
async def test_a_stream_goes_out_as_it_comes_and_does_not_run_again() -> None:
    async with bench(unknown="rerun") as b:
        b.shop.headers = [(b"content-type", b"text/event-stream")]
        b.shop.chunks = [b"data: 1\n\n", b"data: 2\n\n"]
        assert (await b.post()).content == b"data: 1\n\ndata: 2\n\n"
        assert kind_of(await b.post()) == "response-not-kept"
        assert b.shop.runs == 1


@awaited
async def test_a_stream_cut_off_halfway_does_not_run_again() -> None:
    async with bench(unknown="rerun", stream=True) as b:

        async def broken(scope: Any, receive: Any, send: Any) -> None:
            b.shop.runs += 1
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise RuntimeError("cut")

        b.app.app = broken
        with pytest.raises(RuntimeError):
            await b.post()
        assert kind_of(await b.post()) == "response-not-kept"
        assert b.shop.runs == 1


@awaited
async def test_bodies_above_the_limit_are_refused_declared_or_not() -> None:
    async def chunks() -> Any:
        for _ in range(3):
            yield b"x" * 50

    async with bench(unknown="rerun", max_request=100) as b:
        for content in (b"x" * 101, chunks()):
            refused = await b.post(content=content)
            assert (refused.status_code, kind_of(refused)) == (413, "body-too-large")
        assert b.shop.runs == 0
        assert (await b.post(content=b"x" * 100)).status_code == 201


@awaited
async def test_a_large_upload_reaches_the_app_whole_and_is_told_apart() -> None:
    async def upload(mark: bytes) -> Any:
        for number in range(20):
            yield mark * 1000 + b"%d" % number

    async with bench(unknown="rerun", memory=5000) as b:
        await b.post(content=upload(b"a"))
        assert b.shop.bodies[0] == b"".join([b"a" * 1000 + b"%d" % number for number in range(20)])
        assert (await b.post(content=upload(b"a"))).headers["idempotent-replayed"] == "true"
        assert (await b.post(content=upload(b"b"))).status_code == 422


@awaited
async def test_too_many_requests_of_one_principal_are_turned_away() -> None:
    async with bench(unknown="rerun", in_flight=2) as b:
        gate = asyncio.Event()
        b.shop.before = gate.wait
        running = [asyncio.create_task(b.post(f"k{number}")) for number in range(2)]
        await until(lambda: b.shop.runs >= 2)
        refused = await b.post("k3")
        assert (refused.status_code, kind_of(refused)) == (429, "too-many-in-flight")
        b.shop.before = None
        assert (await b.post("k3", user="bob")).status_code == 201
        gate.set()
        await asyncio.gather(*running)
        assert (await b.post("k3")).status_code == 201


class Away(AsyncMemoryStore):
    """A store that can be switched off."""

    away = False
    settles = True
    why: Exception = StoreUnavailable("The store is away.")

    async def swap(self, expected: str | None, draft: Any) -> Any:
        if self.away or (not self.settles and draft.status.value != "PENDING"):
            raise self.why
        return await super().swap(expected, draft)


@awaited
async def test_without_the_store_nothing_runs() -> None:
    store = Away()
    async with bench(store, unknown="rerun") as b:
        store.away = True
        refused = await b.post()
        assert (refused.status_code, kind_of(refused), refused.json()["retryable"]) == (503, "store-unavailable", True)
        assert b.shop.runs == 0


@awaited
async def test_a_failure_of_the_store_is_one_line_in_the_log_and_missing_tables_are_not_retryable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Away()
    async with bench(store, unknown="rerun") as b:
        store.away = True
        await b.post()
        store.why = SchemaOutdated("No tables.")
        refused = await b.post()

    assert (refused.status_code, kind_of(refused), refused.json()["retryable"]) == (503, "tables-missing", False)
    assert "umavez migrate" in refused.json()["detail"]
    assert "retry-after" not in refused.headers
    lines = [record for record in caplog.records if record.name == "umavez.http"]
    assert [line.levelname for line in lines] == ["WARNING", "ERROR"]
    assert all("key digest" in line.getMessage() and "refused" in line.getMessage() for line in lines)


@awaited
async def test_a_route_may_run_without_the_store_and_says_so() -> None:
    store = Away()
    async with bench(store, unknown="rerun", outage="open") as b:
        store.away = True
        answer = await b.post(json={"a": 1})
        assert (answer.status_code, answer.headers["idempotency-unprotected"]) == (201, "store-outage")
        assert b.shop.bodies == [b'{"a":1}']


@awaited
async def test_an_outcome_that_cannot_be_recorded_is_still_told_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umavez._async.admission.AsyncAdmission.__init__.__defaults__", (not_at_all, AsyncAside))
    store = Away()
    async with bench(store, unknown="hold") as b:
        store.settles = False
        answer = await b.post()
        assert (answer.status_code, answer.headers["idempotency-unprotected"]) == (201, "not-recorded")
        assert kind_of(await b.post()) == "in-progress"
        assert b.shop.runs == 1


@awaited
async def test_a_caller_that_goes_away_leaves_the_work_running() -> None:
    async with bench(unknown="hold") as b:
        gate = asyncio.Event()
        b.shop.before = gate.wait
        caller = asyncio.create_task(b.post())
        await until(lambda: b.shop.runs)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        gate.set()
        await until(lambda: not b.app._detached.working)
        again = await b.post()
        assert (again.json(), again.headers["idempotent-replayed"]) == ({"run": 1}, "true")


@awaited
async def test_the_app_does_not_see_the_client_leave() -> None:
    async with bench(unknown="hold") as b:
        seen: list[str] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            watch = asyncio.create_task(receive())
            await asyncio.sleep(0.01)
            seen.append("left" if watch.done() else "there")
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            seen.append((await watch)["type"])

        b.app.app = app
        messages = iter([{"type": "http.request", "body": b""}, {"type": "http.disconnect"}])
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [(b"idempotency-key", b"k"), (b"x-user", b"a")],
        }

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            pass

        await b.app(scope, receive, send)
        assert seen == ["there", "http.disconnect"]


@awaited
async def test_work_after_the_answer_delays_nobody() -> None:
    async with bench(unknown="hold") as b:
        gate = asyncio.Event()
        b.shop.after = gate.wait
        first = asyncio.create_task(b.post())
        await until(lambda: b.shop.runs)
        await asyncio.sleep(0.01)
        assert (await b.post()).headers["idempotent-replayed"] == "true"
        gate.set()
        await first


@awaited
async def test_an_error_after_the_answer_does_not_unsettle_it() -> None:
    async def fail() -> None:
        raise RuntimeError("afterwards")

    async with bench(unknown="rerun") as b:
        b.shop.after = fail
        assert (await b.post(raises=False)).status_code == 201
        assert (await b.post()).json() == {"run": 1}


@awaited
async def test_a_slow_attempt_that_was_overtaken_is_told_so(tmp_path: Path) -> None:
    async with bench(f"sqlite:///{tmp_path}/o.db", unknown="rerun", lease=0.05, heartbeat=False) as b:
        gate = asyncio.Event()
        b.shop.before = gate.wait
        slow = asyncio.create_task(b.post())
        await until(lambda: b.shop.runs)
        await asyncio.sleep(0.06)
        b.shop.before = None
        assert (await b.post()).json() == {"run": 2}
        gate.set()
        assert kind_of(await slow) == "overtaken"
        assert (await b.post()).json() == {"run": 2}


@awaited
async def test_a_stream_whose_claim_was_lost_is_answered_once(tmp_path: Path) -> None:
    async with bench(f"sqlite:///{tmp_path}/o.db", unknown="rerun", lease=0.05, heartbeat=False, stream=True) as b:
        gate = asyncio.Event()
        b.shop.before = gate.wait
        slow = asyncio.create_task(b.post())
        await until(lambda: b.shop.runs)
        await asyncio.sleep(0.06)
        b.shop.before = None
        assert (await b.post()).json() == {"run": 2}
        gate.set()
        assert kind_of(await slow) == "overtaken"


@awaited
async def test_an_error_that_the_app_raises_is_its_own_even_if_it_looks_like_ours() -> None:
    async with bench(unknown="rerun") as b:
        b.shop.error = Problem(KEY_MISSING)
        with pytest.raises(Problem):
            await b.post()


@awaited
async def test_the_app_sees_one_task_from_its_first_line_to_its_last() -> None:
    async with bench(unknown="rerun") as b:
        seen: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append(asyncio.current_task())
            await asyncio.sleep(0)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            seen.append(asyncio.current_task())

        b.app.app = app
        await b.post()
        assert seen[0] is seen[1] is not asyncio.current_task()


@awaited
async def test_the_entity_is_shown_as_it_is_now() -> None:
    orders = {"/orders/1": b'{"paid": false}'}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        body = orders.get(scope["path"], b"") if scope["method"] == "GET" else b'{"paid": false}'
        status = 201 if scope["method"] == "POST" else 200 if body else 404
        headers = [(b"content-type", b"application/json"), (b"location", b"/orders/1")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async with bench(unknown="rerun", replay="entity") as b:
        b.app.app = app
        assert (await b.post()).json() == {"paid": False}
        orders["/orders/1"] = b'{"paid": true}'
        again = await b.post()
        assert (again.status_code, again.json(), again.headers["location"]) == (201, {"paid": True}, "/orders/1")
        assert again.headers["idempotent-replayed"] == "true"
        orders.clear()
        assert (await b.post()).status_code == 404


@awaited
async def test_a_status_query_tells_where_a_key_stands() -> None:
    async with bench(unknown="hold") as b:

        async def state(user: str | None = "ana", **asked: str) -> httpx.Response:
            params = asked or {"method": "POST", "path": "/orders"}
            return await b.ask("GET", "/.well-known/idempotency/status", key="k1", user=user, params=params)

        assert (await state()).json() == {"state": "absent", "retryable": True}
        b.shop.status = 429
        await b.post()
        assert (await state()).json()["state"] == "failed"
        gate = asyncio.Event()
        b.shop.before, b.shop.status = gate.wait, 201
        running = asyncio.create_task(b.post())
        await until(lambda: b.shop.runs >= 2)
        assert (await state()).json()["state"] == "running"
        gate.set()
        await running
        done = (await state()).json()
        assert (done["state"], done["response_status"], done["attempts"]) == ("finished", 201, 2)
        assert (await state("bob")).json()["state"] == "absent"
        assert (await state(None)).status_code == 401
        assert (await state(method="POST")).status_code == 400
        crowded = await state(**{"method": "POST", "path": "/orders"} | {f"x{number}": "" for number in range(19)})
        assert (crowded.status_code, kind_of(crowded)) == (400, "status-query-invalid")
        b.shop.status = 500
        await b.post("k2")
        status = await b.ask(
            "GET", "/.well-known/idempotency/status", key="k2", params={"method": "POST", "path": "/orders"}
        )
        assert status.json()["state"] == "unknown"


@awaited
async def test_the_policy_is_published_for_machines() -> None:
    async with bench(unknown="hold", keep=60, routes=[Route("PUT", "/o/{id}", unknown="rerun", required=True)]) as b:
        policy = (await b.ask("GET", "/.well-known/idempotency")).json()
        assert policy["header"] == "Idempotency-Key"
        assert [(route["method"], route["path"], route["required"]) for route in policy["routes"]] == [
            ("PUT", "/o/{id}", True),
            ("POST", "*", False),
            ("PATCH", "*", False),
        ]
        assert {problem["status"] for problem in policy["problems"]} >= {400, 409, 410, 413, 422, 429, 503}


@awaited
async def test_with_a_secret_the_store_never_holds_the_clients_key() -> None:
    async with bench(unknown="rerun", secret="s" * 32) as b:
        await b.post("visible-key")
        assert (await b.post("visible-key")).headers["idempotent-replayed"] == "true"
        (record,) = await b.once.find(every_scope=True)
        assert "visible-key" not in repr(record)
    with pytest.raises(ConfigurationError):
        async with bench(unknown="rerun", secret="short"):
            pass


@awaited
async def test_other_methods_and_protocols_pass_untouched() -> None:
    async with bench(unknown="rerun") as b:
        await b.ask("GET", "/orders", key="k1")
        await b.ask("DELETE", "/orders", key="k1")
        await b.ask("DELETE", "/orders", key="k1")
        assert b.shop.runs == 3


@awaited
async def test_fifty_at_once_run_once(tmp_path: Path) -> None:
    for store in ("memory:", f"sqlite:///{tmp_path}/many.db"):
        async with bench(store, unknown="hold", wait=20) as b:
            answers = await asyncio.gather(*[b.post("same") for _ in range(50)])
            assert {answer.json()["run"] for answer in answers} == {1}
            assert b.shop.runs == 1


@awaited
async def test_no_principal_is_too_strange_to_be_kept_apart() -> None:
    strange = ["a" * 300, "a" * 299 + "b", "nul\0", "nul", "\ud800", "caf\u00e9", "a/b"]
    names = iter(strange * 2)
    async with bench(unknown="rerun", principal=lambda _: next(names)) as b:
        answers = [(await b.post()).json()["run"] for _ in strange * 2]
        assert answers == [1, 2, 3, 4, 5, 6, 7] * 2


@awaited
async def test_a_principal_may_be_awaited_and_an_empty_one_is_nobody() -> None:
    async def who(scope: Any) -> str:
        return "" if scope["path"] == "/nobody" else "ana"

    async with bench(unknown="rerun", principal=who) as b:
        await b.post()
        assert (await b.post()).headers["idempotent-replayed"] == "true"
        assert (await b.post(path="/nobody")).headers["idempotency-unprotected"] == "no-principal"


@awaited
async def test_litestar_runs_once_too() -> None:
    import litestar

    runs: list[int] = []

    @litestar.post("/orders")
    async def order() -> dict[str, int]:
        runs.append(1)
        return {"run": len(runs)}

    async with bench(unknown="rerun") as b:
        b.app.app = litestar.Litestar([order], openapi_config=None)
        first, again = await b.post(json={"item": "x"}), await b.post(json={"item": "x"})
        assert (first.status_code, first.json()) == (201, {"run": 1}) == (again.status_code, again.json())
        assert again.headers["idempotent-replayed"] == "true"


@awaited
async def test_starlette_streams_uploads_and_background_tasks_behave() -> None:
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.responses import PlainTextResponse, StreamingResponse
    from starlette.routing import Route as StarletteRoute

    done: list[str] = []

    async def plain(request: Any) -> Any:
        return PlainTextResponse(await request.body(), background=BackgroundTask(lambda: done.append("after")))

    async def streamed(request: Any) -> Any:
        done.append("streamed")
        return StreamingResponse(iter([b"a", b"b"]), media_type="text/plain")

    routes = [StarletteRoute("/plain", plain, methods=["POST"]), StarletteRoute("/s", streamed, methods=["POST"])]
    async with bench(unknown="hold") as b:
        b.app.app = Starlette(routes=routes)
        for _ in range(2):
            assert (await b.post(path="/plain", content=b"body")).content == b"body"
            assert (await b.post(path="/s")).content == b"ab"
        assert done == ["after", "streamed"]


@awaited
async def test_a_hundred_principals_with_the_same_keys_never_meet() -> None:
    async with bench(unknown="hold", secret="s" * 32) as b:
        first = [(await b.post(f"k{key}", user=f"u{user}")).json()["run"] for user in range(100) for key in range(5)]
        again = [(await b.post(f"k{key}", user=f"u{user}")).json()["run"] for user in range(100) for key in range(5)]
        assert first == again == list(range(1, 501))
