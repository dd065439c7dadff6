"""What `umavez doctor` looks at in a SQLite file and the library that opens it."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from umavez.cli.doctor.findings import Examination, Finding, Level, schema_finding
from umavez.cli.options import shown
from umavez.errors import StoreUnavailable
from umavez.stores.sqlite.connection import connect
from umavez.stores.sqlite.errors import explained
from umavez.stores.sqlite.statements import SCHEMA_VERSION, VERSION
from umavez.stores.sqlite.url import parsed

PRODUCT = "SQLite"
NETWORK = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "gluster", "lustre", "beegfs", "fuse.sshfs", "fuse.s3fs", "davfs")
VOLATILE = ("tmpfs", "ramfs")
ENOUGH = 1 << 30
"""Free bytes below which a warning is due."""
_UNMADE = Finding("schema", "missing", Level.NOTE, "The file is made when it is first used, or by umavez migrate.")


def examine(url: str) -> Examination:
    """What can be seen of the file at `url` without changing it. `problem` tells when it cannot be used."""
    path = parsed(url)[0].absolute()
    folder = path.parent
    if not folder.is_dir():
        return _finished(url, None, (), f"The folder {folder} does not exist; create it or correct the URL.")
    around = (*file_system_findings(folder), disk_finding(shutil.disk_usage(folder).free))
    if not path.exists():
        findings = (_UNMADE, library_finding(sqlite3.sqlite_version_info, None), *around)
        return _finished(url, None, findings)
    try:
        schema, journal = _look(url)
    except (sqlite3.Error, StoreUnavailable) as error:
        return _finished(url, None, (), f"{path} cannot be read: {explained(error)}")
    library = library_finding(sqlite3.sqlite_version_info, journal)
    findings = (schema_finding(schema, VERSION), library, Finding("journal_mode", journal), *around)
    return _finished(url, schema, findings)


def _finished(url: str, schema: int | None, findings: tuple[Finding, ...], problem: str | None = None) -> Examination:
    return Examination(shown(url), PRODUCT, sqlite3.sqlite_version, str(schema or "missing"), findings, problem)


def _look(url: str) -> tuple[int | None, str]:
    # Read-only: a doctor must not create the file that it was asked about.
    with closing(connect(url, read_only=True)) as connection:
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'umavez_meta'").fetchone()
        if known is None:
            return None, journal
        row = connection.execute(SCHEMA_VERSION).fetchone()
        return (None if row is None else int(row[0])), journal


def races(version: tuple[int, ...]) -> bool:
    """Whether this library can corrupt a WAL database when two connections write and checkpoint at once.

    The race is in 3.7.0 to 3.51.2; 3.51.3 removed it, and so did 3.50.7 and 3.44.6 for their series.
    """
    repaired = version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
    return version >= (3, 7) and not repaired


def library_finding(version: tuple[int, ...], journal: str | None) -> Finding:
    """What the library's version means for a file with this journal mode."""
    text = ".".join(str(part) for part in version)
    if not races(version):
        return Finding("library", text)
    if journal == "wal":
        advice = (
            "umavez's own writers take turns, but any other program that writes this WAL file can damage it: "
            "upgrade SQLite to 3.51.3, or open the store with ?journal=delete."
        )
        return Finding("library", text, Level.WARNING, advice)
    advice = "Before 3.51.3 two writers can damage a WAL file: keep this journal mode, or upgrade SQLite."
    return Finding("library", text, Level.NOTE, advice)


def file_system_findings(folder: Path) -> list[Finding]:
    """Whether the file system keeps locks and data."""
    kind = file_system(folder)
    if kind is None:
        return []
    if kind.startswith(NETWORK):
        advice = (
            "Locks over a network are not to be trusted, and two hosts may both claim a key: "
            "use a local disk or a server."
        )
        return [Finding("file_system", kind, Level.DANGER, advice)]
    if kind in VOLATILE:
        return [Finding("file_system", kind, Level.WARNING, "A restart of the machine loses every record: use a disk.")]
    return [Finding("file_system", kind)]


def file_system(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The kind of file system that `folder` is on, or None where the kernel does not say."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    place = folder.resolve()
    found: tuple[int, str | None] = (-1, None)
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4]))
        # The last of equals wins, since it was mounted over the others.
        if place.is_relative_to(point) and len(point.parts) >= found[0]:
            found = (len(point.parts), after.split(" ")[0])
    return found[1]


def disk_finding(free: int) -> Finding:
    """Whether there is room for records."""
    text = f"{free / (1 << 30):.1f} GiB free"
    if free >= ENOUGH:
        return Finding("disk", text)
    return Finding("disk", text, Level.WARNING, "A full disk refuses every new operation: free some space.")
