"""Files in an S3-compatible store: s3://bucket/prefix?endpoint=http://host:port; credentials as boto3 takes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import parse_qs, urlsplit

import boto3
from boto3.exceptions import S3UploadFailedError
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError


class S3Storage:
    """Objects of one bucket under one prefix. An upload that is cut off leaves no object."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if not parts.netloc:
            raise ValueError("UMAVEZ_STORAGE needs a bucket: s3://bucket/prefix")
        query = parse_qs(parts.query)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        how = Config(connect_timeout=5, read_timeout=30, retries={"max_attempts": 5, "mode": "standard"})
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=query.get("endpoint", [None])[0],
            region_name=query.get("region", ["us-east-1"])[0],
            config=how,
        )

    def keep(self, path: Path, name: str) -> str:
        """See Storage.keep. Raises OSError when the store does not take it."""
        key = f"{self._prefix}/{name}".lstrip("/")
        with _translated("take the file"):
            self._client.upload_file(str(path), self._bucket, key)
        path.unlink()
        return f"s3://{self._bucket}/{key}"

    def read(self, url: str, offset: int) -> AbstractContextManager[BinaryIO]:
        """See Storage.read. Raises OSError when the store does not give it now: it may later."""
        try:
            with _translated("give the file"):
                found = self._client.get_object(Bucket=self._bucket, Key=self._key(url), Range=f"bytes={offset}-")
        except OSError as error:
            code = error.__cause__.response["Error"]["Code"] if isinstance(error.__cause__, ClientError) else ""
            if code in ("InvalidRange", "416"):
                return cast("AbstractContextManager[BinaryIO]", closing(_Nothing()))
            if code in ("NoSuchKey", "404"):
                raise FileNotFoundError(f"The S3 store has no {url}.") from error
            raise
        return closing(found["Body"])

    def remove(self, url: str) -> None:
        """See Storage.remove. Raises OSError."""
        with _translated("remove the file"):
            self._client.delete_object(Bucket=self._bucket, Key=self._key(url))

    def names(self) -> Iterator[tuple[str, float]]:
        """See Storage.names. Raises OSError."""
        with _translated("list its files"):
            # With its slash: listas2/ begins with listas, too, and is somebody else's.
            under = f"{self._prefix}/".lstrip("/")
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=under)
            for page in pages:
                for found in page.get("Contents", ()):
                    age = (datetime.now(UTC) - found["LastModified"]).total_seconds()
                    yield f"s3://{self._bucket}/{found['Key']}", age

    def _key(self, url: str) -> str:
        return urlsplit(url).path.lstrip("/")


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Whatever keeps a store from answering is an OSError, as with a folder."""
    try:
        yield
    except (BotoCoreError, ClientError, S3UploadFailedError) as error:
        raise OSError(f"The S3 store did not {what}: {error}") from error


class _Nothing:
    """What is read past the end."""

    def read(self, _: int = -1) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing to close."""
