"""Sweeping: what died on its way in goes after a day, and nothing else in the folder ever does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.umavez_systems.mailing.far import Far, upload, work
from umavez_systems.mailing.ingest.sweeping import sweep_spools, sweep_storage
from umavez_systems.mailing.ingest.uploads import spooled
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier

LIST = b"email\na@b.com\nb@b.com\n"


def aged(folder: Path) -> set[str]:
    """Let everything in a folder be old; returns the names."""
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    return {path.name for path in folder.iterdir()}


def swept(carrier: Carrier) -> int:
    return sweep_storage(carrier.mailing.cases.storage, carrier.mailing.cases.database)


def test_what_an_upload_left_that_died_before_its_commit_goes_after_a_day(
    carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(carrier, LIST)
    folder = Path(carrier.settings.storage)
    kept = {path.name for path in folder.iterdir()}
    with monkeypatch.context() as dying:
        dying.setattr(carrier.mailing.cases.storage, "remove", lambda _: None)
        upload(carrier, LIST)  # the same again, and nobody there to take its file away
    assert swept(carrier) == 0
    assert len(aged(folder)) == 2
    assert swept(carrier) == 1
    assert {path.name for path in folder.iterdir()} == kept


def test_lists_stay_when_their_folder_has_moved(carrier: Carrier, tmp_path: Path) -> None:
    mailing = upload(carrier, LIST)
    shutil.move(carrier.settings.storage, tmp_path / "elsewhere")
    settings = carrier.settings.model_copy(update={"storage": f"{tmp_path}/elsewhere"})
    with closing(Carrier(settings)) as moved:
        aged(tmp_path / "elsewhere")
        assert swept(moved) == 0
        far = Far()
        work(moved, mailing, far)
        assert far.times() == {"a@b.com": 1, "b@b.com": 1}


def test_what_is_not_ours_stays(carrier: Carrier) -> None:
    upload(carrier, LIST)
    folder = Path(carrier.settings.storage)
    (folder / "fotos").mkdir()
    (folder / "tese.csv").write_text("x")
    (folder / f"{'0' * 8}-0000-7000-8000-{'0' * 12}.csv").write_text("x")
    (folder / "umavez-notas.txt").write_text("x")
    before = aged(folder)
    assert swept(carrier) == 0
    sweep_spools(folder)
    assert aged(folder) == before


def test_two_databases_may_keep_their_lists_in_one_folder(tmp_path: Path, prepared: Path) -> None:
    with _sharing(tmp_path, prepared, "um") as one, _sharing(tmp_path, prepared, "dois") as other:
        mailing = upload(one, LIST)
        aged(tmp_path / "lists")
        assert swept(other) == 0
        far = Far()
        work(one, mailing, far)
        assert len(far.times()) == 2


@contextmanager
def _sharing(folder: Path, prepared: Path, name: str) -> Iterator[Carrier]:
    shutil.copy(prepared, folder / f"{name}.db")
    settings = Settings(database=f"sqlite:///{folder}/{name}.db", storage=f"{folder}/lists", mailing_embedded="off")
    with closing(Carrier(settings)) as carrier:
        yield carrier


def test_a_spool_whose_process_was_killed_goes_after_a_day(tmp_path: Path) -> None:
    with spooled(tmp_path) as spool:
        name = spool.path.name
        shutil.copy(spool.path, tmp_path / "saved")
    (tmp_path / "saved").rename(tmp_path / name)  # as if nobody had come to remove it
    assert sweep_spools(tmp_path) == 0
    aged(tmp_path)
    assert sweep_spools(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_spool_that_is_not_ours_to_remove_keeps_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"umavez-{name}.part").touch()
    unlink = Path.unlink

    def refused(path: Path, *, missing_ok: bool = False) -> None:
        if path.name == "umavez-b.part":
            raise PermissionError(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    assert sweep_spools(tmp_path, older=0.0) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["umavez-b.part"]
