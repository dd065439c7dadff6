"""Storage: lists may stand elsewhere."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.umavez_systems.mailing.far import Far, upload, work
from umavez_systems.mailing.ingest.sweeping import stored_name
from umavez_systems.settings import Settings
from umavez_systems.web import Carrier


@pytest.mark.slow
def test_lists_may_stand_in_an_s3_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Path) -> None:
    import shutil

    import boto3

    from umavez_systems.mailing.ingest.storage import open_storage

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with _s3(tmp_path) as address:
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1")
        client.create_bucket(Bucket="listas")
        where = f"s3://listas/um?endpoint={address}"
        shutil.copy(prepared, tmp_path / "s3.db")
        carrier = Carrier(Settings(database=f"sqlite:///{tmp_path}/s3.db", storage=where))
        mailing = upload(carrier, b"email\na@b.com\nb@b.com\n")
        far = Far()
        work(carrier, mailing, far)
        assert far.times() == {"a@b.com": 1, "b@b.com": 1}
        upload(carrier, b"email\na@b.com\nb@b.com\n")  # the same again leaves no second object
        storage = open_storage(where)
        client.put_object(Bucket="listas", Key="um2/outra.csv", Body=b"x")  # somebody else's
        names = [name for name, _ in storage.names()]
        assert names == [f"s3://listas/um/{stored_name(mailing, carrier.mailing.cases.database)}"]
        with storage.read(names[0], 14) as stream:
            assert stream.read(100) == b"b@b.com\n"
        with storage.read(names[0], 22) as stream:
            assert stream.read(100) == b""
        storage.remove(names[0])
        with pytest.raises(FileNotFoundError):
            storage.read(names[0], 0)
        carrier.close()
        # A store that does not give is no store without the list: whoever asks may try again.
        closed = open_storage(f"s3://outra/um?endpoint={address}")
        for ask in (lambda: closed.read(names[0], 0), lambda: list(closed.names()), lambda: closed.remove(names[0])):
            with pytest.raises(OSError, match="S3 store did not") as found:
                ask()
            assert not isinstance(found.value, FileNotFoundError)


def _s3(folder: Path) -> Any:
    """A real S3 API on a free port, in a process of its own: its libraries warn about things that are not ours."""
    import contextlib
    import socket

    @contextlib.contextmanager
    def serving() -> Any:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        words = [sys.executable, "-W", "ignore", "-m", "moto.server", "-p", str(port)]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder) as process:
            try:
                for _ in range(600):
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                        break
                    time.sleep(0.1)
                yield f"http://127.0.0.1:{port}"
            finally:
                process.kill()
                process.wait()

    return serving()
