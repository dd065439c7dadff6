"""Storage: uploaded files in a folder, or in any S3-compatible store; both hold a file whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from umavez import ConfigurationError
from umavez_systems.mailing.ports import Storage


def open_storage(where: str) -> Storage:
    """The storage that `where` names: a folder, file:///folder or s3://bucket/prefix. Raises ValueError."""
    if where.startswith("s3://"):
        try:
            from umavez_systems.mailing.ingest.storage_s3 import S3Storage  # noqa: PLC0415  # needs boto3, only for S3
        except ModuleNotFoundError as missing:
            raise ConfigurationError(
                f"UMAVEZ_STORAGE needs {missing.name}, which is not installed; run: pip install 'umavez[s3]'."
            ) from missing
        return S3Storage(where)
    if "://" in where and not where.startswith("file://"):
        raise ValueError("UMAVEZ_STORAGE must be a folder or s3://bucket/prefix")
    return FolderStorage(Path(unquote(where.removeprefix("file://"))))


class FolderStorage:
    """Files of one folder, which several hosts may share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    def keep(self, path: Path, name: str) -> str:
        """See Storage.keep."""
        self._folder.mkdir(parents=True, exist_ok=True)
        target = self._folder / name
        try:
            path.replace(target)
        except OSError:  # the spool stands on another file system
            _copy(path, target)
            path.unlink()
        _sync(self._folder)
        return target.as_uri()

    def read(self, url: str, offset: int) -> AbstractContextManager[BinaryIO]:
        """See Storage.read."""
        stream = self._path(url).open("rb")
        stream.seek(offset)
        return stream

    def remove(self, url: str) -> None:
        """See Storage.remove."""
        self._path(url).unlink(missing_ok=True)

    def names(self) -> Iterator[tuple[str, float]]:
        """See Storage.names."""
        for path in self._folder.glob("*"):
            with suppress(FileNotFoundError):  # another process sweeps, too
                if path.is_file():
                    yield path.as_uri(), time.time() - path.stat().st_mtime

    def _path(self, url: str) -> Path:
        """The file behind `url`, by its name in this folder: the folder may have moved since."""
        return self._folder / Path(unquote(url)).name


def _copy(path: Path, target: Path) -> None:
    half = target.with_suffix(".part")
    with path.open("rb") as source, half.open("wb") as sink:
        while block := source.read(1 << 20):
            sink.write(block)
        sink.flush()
        os.fsync(sink.fileno())
    half.replace(target)


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
