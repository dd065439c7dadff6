"""MariaDB with several hosts, and as a node of Galera: tables are made, fences rise, doctor says what is not safe."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers import CannotStart, Run
from tests.servers.kind import Launch, Place
from tests.servers.mariadb_server import MariaDB
from tests.servers.private import free_port, start
from umavez import ConfigurationError, Once
from umavez.cli.doctor.findings import Level
from umavez.cli.doctor.mariadb import examine
from umavez.migration import migrate
from umavez.stores.mariadb.url import address_of

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")


class Galera(MariaDB):
    """A cluster of one node: what is asked of a node is asked of it too."""

    def prepare(self, place: Place) -> Launch:
        launch = super().prepare(place)
        listening = f"gmcast.listen_addr=tcp://127.0.0.1:{free_port()};ist.recv_addr=127.0.0.1:{free_port()}"
        more = [
            "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}",
            "--wsrep-cluster-address=gcomm://",
            "--wsrep-node-address=127.0.0.1",
            f"--wsrep-provider-options={listening}",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        ]
        return Launch([*launch.command, *more], launch.url)


@pytest.mark.mariadb
def test_a_node_of_galera_gets_its_tables_and_doctor_says_what_is_safe_there(server_run: Run) -> None:
    kind = Galera()
    programs = kind.locate()
    if programs is None or not PROVIDER.exists():
        pytest.skip("a node of Galera needs MariaDB's programs and galera (apt install galera-4)")
    try:
        server = start(kind, programs, server_run.owner)
    except CannotStart as error:
        pytest.skip(f"a node of Galera cannot be started: {error}")
    try:
        with kind.lend(server.url, "loja", private=True) as url:
            migrate(url)
            with Once(url, scope="loja") as once:
                for key in ("a", "b", "c"):
                    once.run("pay", key=key, call=lambda: 1, unknown="rerun")
                fences = [record.fence for record in once.find(operation="pay")]
            told = {finding.setting: finding for finding in examine(url).findings}
    finally:
        server.stop()
    assert fences == sorted(set(fences))
    assert told["wsrep_on"].level is Level.DANGER
    assert "keys are safe" in told["wsrep_on"].advice
    assert "one node" in told["wsrep_on"].advice


@pytest.mark.mariadb
@pytest.mark.parametrize("scheme", ["mariadb", "mysql"])
def test_the_first_of_several_hosts_that_answers_is_taken(scheme: str, mariadb_url: str) -> None:
    address = address_of(mariadb_url)
    several = f"{scheme}://{address.user}@127.0.0.1:1,{address.host}:{address.port}/{address.database}"
    with Once(several, scope=f"{scheme} hosts") as once:
        once.migrate()
        assert once.run("pay", key="a", call=lambda: 1, unknown="rerun").value == 1


def test_every_host_of_a_url_is_read_in_the_order_of_the_url() -> None:
    address = address_of("mariadb://ana:s%40e@a:1,b,c:3/loja?timeout=9")

    assert [(one.host, one.port) for one in address.each()] == [("a", 1), ("b", 3306), ("c", 3)]
    assert {(one.user, one.password, one.database) for one in address.each()} == {("ana", "s@e", "loja")}
    assert address.arguments()["connect_timeout"] == 2
    assert address_of("mariadb://a/loja").arguments()["connect_timeout"] == 10


@pytest.mark.parametrize("hosts", ["a,", ",a", "a,,b", "a,b:port", ",".join(["a"] * 17)])
def test_a_list_of_hosts_that_cannot_be_read_is_refused(hosts: str) -> None:
    with pytest.raises(ConfigurationError):
        address_of(f"mariadb://{hosts}/loja")
