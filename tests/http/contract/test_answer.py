"""What is stored of an answer. Stored answers outlive releases, so their layout is held here value by value."""

from __future__ import annotations

import pytest

from umavez import NotStorable
from umavez.http.contract.answer import KEPT_HEADERS, Answer, Form, answer_with, kept, restored

ALLOWED = frozenset((b"content-type",))
HEADERS = [(b"content-type", b"text/plain"), (b"set-cookie", b"secret")]


@pytest.mark.parametrize(
    ("body", "form", "stored"),
    [
        ("é".encode(), Form.TEXT, [1, 201, "content-type: text/plain", "é", 0]),
        (b"\xff\xfe", Form.TEXT, [1, 201, "content-type: text/plain", "//4=", 1]),
        (b"whole", Form.STREAMED, [1, 201, "content-type: text/plain", "", 2]),
        (b"whole", Form.BY_REFERENCE, [1, 201, "content-type: text/plain", "", 3]),
    ],
)
def test_a_stored_answer_has_this_layout(body: bytes, form: Form, stored: list[object]) -> None:
    value = kept(Answer(201, HEADERS, body), ALLOWED, form)

    assert value == stored
    assert type(value) is list
    assert type(value[-1]) is int
    assert restored(value) == Answer(201, HEADERS[:1], body if form is Form.TEXT else b"")


@pytest.mark.parametrize("mark", [b"\n", b"\r\n", b"\r"])
def test_a_header_that_holds_a_line_break_comes_back_as_no_other(mark: bytes) -> None:
    """An app that puts a stranger's text there must not hand out the stranger's cookie when it is asked again."""
    broken = (b"location", b"/o/1" + mark + b"set-cookie: session=evil")
    whole = (b"etag", b'"1"')
    answer = Answer(201, [broken, whole], b"")
    assert restored(kept(answer, KEPT_HEADERS)).headers == [whole]
    with pytest.raises(NotStorable, match="without line breaks"):
        answer_with(201, {}, {"Location": broken[1].decode()})


def test_an_answer_made_by_hand_has_the_same_layout() -> None:
    assert answer_with(200, {"a": 1}) == [1, 200, "content-type: application/json", '{"a": 1}', 0]
