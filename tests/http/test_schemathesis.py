"""Schemathesis over the example app: whatever its OpenAPI document allows (and some that it does not), never a 5xx."""

from __future__ import annotations

from pathlib import Path

import pytest
import schemathesis

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_no_generated_request_makes_the_app_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import not_a_server_error

    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    from tests.http import apps

    monkeypatch.setattr(apps, "PAUSE", 0)
    schema = schemathesis.openapi.from_asgi("/openapi.json", apps.fastapi_app())
    seen = set()
    for result in schema.get_all_operations():
        operation = result.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
        )
        def sends(case: object) -> None:
            response = case.call()  # type: ignore[attr-defined]
            seen.add(response.status_code)
            case.validate_response(response, checks=[not_a_server_error])  # type: ignore[attr-defined]

        sends()
    assert 201 in seen
    assert not [status for status in seen if status >= 500]
