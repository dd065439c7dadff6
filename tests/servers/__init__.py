"""The servers the tests talk to: found running, started in private, or missed with a reason."""

from tests.servers.discovery import Found, Missing, find
from tests.servers.kind import Kind, NoAnswer
from tests.servers.kinds import KINDS
from tests.servers.private import CannotStart, Private, start
from tests.servers.run import Run

__all__ = ["KINDS", "CannotStart", "Found", "Kind", "Missing", "NoAnswer", "Private", "Run", "find", "start"]
