"""What safety costs a fiscal document: against nfelib and signxml alone, and against a client without any safety.

    python -m bench fiscal [--quick]

First the processor time to build, sign and validate one NF-e, ours and bare, in turn. Then emissions per second on
PostgreSQL against the simulator: ours (number, claim, proof, budget), and a client that only builds, signs and sends.
Needs a PostgreSQL server (UMAVEZ_TEST_POSTGRES, or the running one).
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from lxml import etree
from nfelib.nfe.bindings.v4_0.nfe_v4_00 import Nfe
from signxml.algorithms import CanonicalizationMethod, DigestAlgorithm, SignatureConstructionMethod, SignatureMethod
from signxml.signer import XMLSigner
from xsdata.formats.dataclass.context import XmlContext
from xsdata.formats.dataclass.parsers import XmlParser
from xsdata.formats.dataclass.serializers import TreeSerializer

from chaos.fiscal_worker import WHERE, order
from chaos.messaging import lent_store
from tests.servers import Run
from umavez import Once
from umavez_systems.database import open_database
from umavez_systems.fiscal.assembly import DEMO_DATA, SENHA_DEMO, Sistema
from umavez_systems.fiscal.cases import Caller
from umavez_systems.fiscal.domain import Acao, Destinatario, Item, Pagamento, Pedido, Tipo
from umavez_systems.fiscal.ports import Ato, Numerado
from umavez_systems.fiscal.rules.deadlines import BRASILIA
from umavez_systems.fiscal.rules.identifiers import sortear_cnf
from umavez_systems.fiscal.simulador import keeper
from umavez_systems.fiscal.simulador.certificates import Cartorio
from umavez_systems.fiscal.wire import schemas
from umavez_systems.fiscal.wire.addresses import Enderecos
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.nfe import NS, Emitente
from umavez_systems.fiscal.wire.sefaz import Sefaz
from umavez_systems.fiscal.wire.soap import Correio
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

WORKERS = 4
CNPJ = "11222333000181"
MOST_CPU = 1.3
LEAST_SPEED = 0.6


class Plain(XMLSigner):
    """signxml with SHA-1 allowed and nothing else changed."""

    excise_empty_xmlns_declarations = True

    def check_deprecated_methods(self) -> None:
        """The schemas of NF-e ask for SHA-1."""


CONTEXT = XmlContext()
WRITER = TreeSerializer(context=CONTEXT)


def bare_note(note: Any, cert: Certificado, number: int) -> bytes:
    """One note as nfelib and signxml make it at best: objects that are there already, written, signed, validated."""
    note.infNFe.ide.nNF = str(number)
    tree = WRITER.render(note, ns_map={None: NS})
    root = tree.getroot() if hasattr(tree, "getroot") else tree
    signer = Plain(
        method=SignatureConstructionMethod.enveloped,
        signature_algorithm=SignatureMethod.RSA_SHA1,
        digest_algorithm=DigestAlgorithm.SHA1,
        c14n_algorithm=CanonicalizationMethod.CANONICAL_XML_1_0,
    )
    signer.namespaces = {None: "http://www.w3.org/2000/09/xmldsig#"}  # type: ignore[dict-item]  # lxml's default
    signed = signer.sign(root, key=cert.key, cert=[cert.cert], reference_uri=f"#{note.infNFe.Id}", id_attribute="Id")
    xml: bytes = etree.tostring(signed)
    assert not schemas.faults("nfe", etree.fromstring(xml))
    return xml


def numbered(number: int, serie: int = 1) -> Numerado:
    """An order with its number."""
    item = Item("1", "Caneta", "96081000", "5102", "UN", Decimal(2), Decimal("1.50"))
    buyer = Destinatario("Maria Souza", cpf="52998224725", endereco=WHERE)
    wanted = Pedido(Tipo.NFE, "demo", serie, (item,), (Pagamento("01", Decimal("3.00")),), buyer)
    now = datetime.now(BRASILIA).isoformat(timespec="seconds")
    return Numerado(wanted, number, sortear_cnf(number), now, "1")


def building(access: Sefaz, cert: Certificado, rounds: int) -> float:
    """Processor time of ours over bare, by medians of interleaved calls."""
    template = etree.fromstring(access.montar(numbered(1)).xml)
    template.remove(template[-1])
    made = XmlParser(context=CONTEXT).from_string(etree.tostring(template).decode(), Nfe)
    ours: list[float] = []
    bare: list[float] = []
    for number in range(1, rounds + 1):
        note = numbered(number)
        for times, work in ((ours, lambda n=note: access.montar(n)), (bare, lambda n=number: bare_note(made, cert, n))):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
    mine, theirs = statistics.median(ours), statistics.median(bare)
    print(
        f"build, sign, validate: processor time ours {mine * 1000:.2f} ms, bare {theirs * 1000:.2f} ms (N = {rounds})"
    )
    return mine / theirs


class Place(NamedTuple):
    """Where a worker finds everything; it opens connections of its own."""

    url: str
    folder: Path
    sim: keeper.Simulador
    cert: Certificado

    def access(self) -> Sefaz:
        """The bare client's way to the authority."""
        emitter = Emitente(CNPJ, "Loja Demonstracao Ltda", DEMO_DATA["ie"], "SP", WHERE)
        post = Correio(self.cert.tls(self.sim.ca_pem))
        return Sefaz(emitter, self.cert, Enderecos("SP", "2", lambda: self.sim.servicos), post)


def ours(place: Place, slot: int) -> Callable[[int], None]:
    """Emissions with everything; a series for each worker, as a shop has one for each till."""
    database = open_database(place.url, 1)
    system = Sistema(Once(database.store_url, scope="umavez"), database, folder=place.folder)

    def emit(number: int) -> None:
        wanted = replace(order(number, (Tipo.NFE,)), serie=1 + slot)
        made = system.fiscal.emitir(Caller("local", f"bench-{slot}-{number}"), wanted)
        assert made.row["estado"] == "AUTORIZADO"

    return emit


def bare(place: Place, slot: int) -> Callable[[int], None]:
    """Build, sign, send, read; whoever calls must know which numbers are free, and hope."""
    access = place.access()

    def emit(number: int) -> None:
        made = access.montar(numbered(number, 900 + slot))
        sent = Ato(Acao.EMITIR, made.id_idempotencia, made.xml, Tipo.NFE, "1", made.chave, made.digest)
        assert access.transmitir(sent).codigo == "100"

    return emit


def labour(subject: Any, place: Place, slot: int, numbers: range, barrier: Any) -> None:
    """One worker: warm, then all together."""
    emit = subject(place, slot)
    emit(numbers.start)
    barrier.wait(60)
    for number in numbers[1:]:
        emit(number)
    barrier.wait(300)


def speed(subject: Any, place: Place, count: int, first: int) -> float:
    """Emissions per second of WORKERS processes."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(WORKERS + 1)
    each = count // WORKERS
    numbers = range(first, first + each + 1)
    workers = [context.Process(target=labour, args=(subject, place, slot, numbers, barrier)) for slot in range(WORKERS)]
    for worker in workers:
        worker.start()
    barrier.wait(60)
    began = time.perf_counter()
    barrier.wait(300)
    took = time.perf_counter() - began
    for worker in workers:
        worker.join(30)
    return each * WORKERS / took


def emitting(place: Place, rounds: int, count: int) -> float:
    """Emissions per second of ours over bare, by medians of interleaved rounds."""
    speeds: dict[str, list[float]] = {"ours": [], "bare": []}
    for turn in range(rounds):
        for name, subject in (("ours", ours), ("bare", bare)):
            speeds[name].append(speed(subject, place, count, 1 + turn * (count + 1)))
    mine, theirs = (statistics.median(speeds[name]) for name in ("ours", "bare"))
    print(f"emissions by {WORKERS} workers: ours {mine:.1f}/s, bare {theirs:.1f}/s (N = {rounds} × {count})")
    return mine / theirs


def _demo(place: Place) -> None:
    """The demonstration organisation, before any worker needs it."""
    database = open_database(place.url, 1)
    once = Once(database.store_url, scope="umavez")
    system = Sistema(once, database, folder=place.folder)
    system.demo("local")
    for opened in (system, once, database):
        opened.close()


def main(words: list[str]) -> int:
    """Measure; 1 when a target is missed."""
    quick = "--quick" in words
    run = Run.begin()
    try:
        with tempfile.TemporaryDirectory() as name, lent_store(run, None) as url:
            return measured(Path(name), url, quick=quick)
    finally:
        run.end()


def measured(folder: Path, url: str, *, quick: bool) -> int:
    """Both measurements, and what to make of them."""
    sim = keeper.manter(folder)
    cert = Certificado.lido(Cartorio(folder / "certificados").a1(CNPJ, "Loja", SENHA_DEMO), SENHA_DEMO)
    place = Place(url, folder, sim, cert)
    prepare(Settings(database=url))
    try:
        _demo(place)
        ratio = emitting(place, 2 if quick else 6, 40 if quick else 160)
        access = place.access()
        cpu = building(access, cert, 30 if quick else 200)
        access.close()
    finally:
        keeper.parar(sim)
    print(f"processor time {cpu:.2f} × bare (at most {MOST_CPU}); speed {ratio:.2f} × bare (at least {LEAST_SPEED})")
    return int(cpu > MOST_CPU or ratio < LEAST_SPEED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
