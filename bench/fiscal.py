"""What safety costs a fiscal document: against nfelib and signxml alone, and against a client without any safety.

    python -m bench fiscal [--quick]

Emissions per second on PostgreSQL against the simulator: ours (number, claim, proof, budget), and a client without any
safety. That one shares nothing with ours, or what ours does slowly would be counted as the client's: it is what a
person writes with nfelib, signxml, httpx and lxml at their best, bindings that are there already, one TLS connection
that is kept, no schema looked at, the answer parsed and its code and protocol read. Then the processor time to build,
sign and validate one NF-e, ours and by nfelib and signxml, in turn.

On two quiet cores: medians of four runs of N = 6 × 160 0.69, 0.67, 0.64 and 0.68 (rounds 0.59 to 0.81; 231 against 338
a second in the first), a worker's processor time 4.3 against 4.0 ms. Before decision 0024 they were 0.50, 0.52, 0.59
and 0.49, and 5.0 against 3.2 ms. Building, signing, validating: 0.43 × bare (N = 200).
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

import httpx
from lxml import etree
from nfelib.nfe.bindings.v4_0.nfe_v4_00 import Nfe
from signxml.algorithms import CanonicalizationMethod, DigestAlgorithm, SignatureConstructionMethod, SignatureMethod
from signxml.signer import XMLSigner
from xsdata.formats.dataclass.context import XmlContext
from xsdata.formats.dataclass.parsers import XmlParser
from xsdata.formats.dataclass.serializers import TreeSerializer

from bench import is_quick
from chaos.fiscal_worker import WHERE, order
from chaos.messaging import lent_store
from tests.servers import Run
from umavez import Once
from umavez_systems.database import open_database
from umavez_systems.fiscal.assembly import DEMO_DATA, SENHA_DEMO, Sistema
from umavez_systems.fiscal.cases import Caller
from umavez_systems.fiscal.domain import Destinatario, Item, Pagamento, Pedido, Tipo
from umavez_systems.fiscal.ports import Numerado
from umavez_systems.fiscal.rules.deadlines import BRASILIA
from umavez_systems.fiscal.rules.identifiers import sortear_cnf
from umavez_systems.fiscal.simulador import keeper
from umavez_systems.fiscal.simulador.certificates import Cartorio
from umavez_systems.fiscal.wire import schemas
from umavez_systems.fiscal.wire.addresses import Enderecos
from umavez_systems.fiscal.wire.certificate import Certificado
from umavez_systems.fiscal.wire.nfe import NS, Emitente, chave_de
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


EMITTER = Emitente(CNPJ, "Loja Demonstracao Ltda", DEMO_DATA["ie"], "SP", WHERE)
WSDL = "http://www.portalfiscal.inf.br/nfe/wsdl/NFeAutorizacao4"
ENVELOPE = (
    b'<soap12:Envelope xmlns:soap12="http://www.w3.org/2003/05/soap-envelope"><soap12:Body>'
    b'<nfeDadosMsg xmlns="' + WSDL.encode() + b'"><enviNFe xmlns="' + NS.encode() + b'" versao="4.00">'
    b"<idLote>%d</idLote><indSinc>1</indSinc>%s</enviNFe></nfeDadosMsg></soap12:Body></soap12:Envelope>"
)
CONTEXT = XmlContext()
WRITER = TreeSerializer(context=CONTEXT)


def bare_note(note: Any, cert: Certificado, numerado: Numerado) -> bytes:
    """One note as nfelib and signxml make it at best: objects that are there already, written and signed."""
    chave = chave_de(EMITTER, numerado)
    note.infNFe.Id = f"NFe{chave}"
    about = note.infNFe.ide
    about.serie, about.nNF, about.cNF, about.cDV = str(chave.serie), str(chave.nnf), chave.cnf, chave.dv
    about.dhEmi = numerado.emissao
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
    return xml


def valid_bare_note(note: Any, cert: Certificado, numerado: Numerado) -> None:
    """The same, looked at by the official schema."""
    assert not schemas.faults("nfe", etree.fromstring(bare_note(note, cert, numerado)))


def template(cert: Certificado) -> Any:
    """The bindings' objects of a note, to be numbered anew for each."""
    offline = Sefaz(EMITTER, cert, Enderecos("SP", "2"), Correio(cert.tls()))
    unsigned = etree.fromstring(offline.montar(numbered(1)).xml)
    offline.close()
    unsigned.remove(unsigned[-1])
    return XmlParser(context=CONTEXT).from_string(etree.tostring(unsigned).decode(), Nfe)


def numbered(number: int, serie: int = 1) -> Numerado:
    """An order with its number."""
    item = Item("1", "Caneta", "96081000", "5102", "UN", Decimal(2), Decimal("1.50"))
    buyer = Destinatario("Maria Souza", cpf="52998224725", endereco=WHERE)
    wanted = Pedido(Tipo.NFE, "demo", serie, (item,), (Pagamento("01", Decimal("3.00")),), buyer)
    now = datetime.now(BRASILIA).isoformat(timespec="seconds")
    return Numerado(wanted, number, sortear_cnf(number), now, "1")


def building(access: Sefaz, cert: Certificado, rounds: int) -> float:
    """Processor time of ours over bare, by medians of interleaved calls."""
    made = template(cert)
    ours: list[float] = []
    bare: list[float] = []
    for number in range(1, rounds + 1):
        note = numbered(number)
        for times, work in (
            (ours, lambda n=note: access.montar(n)),
            (bare, lambda n=note: valid_bare_note(made, cert, n)),
        ):
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
        """Our way to the authority, to build with."""
        post = Correio(self.cert.tls(self.sim.ca_pem))
        return Sefaz(EMITTER, self.cert, Enderecos("SP", "2", lambda: self.sim.servicos), post)


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
    made, cert = template(place.cert), place.cert
    client = httpx.Client(verify=cert.tls(place.sim.ca_pem), trust_env=False)
    address = Enderecos("SP", "2", lambda: place.sim.servicos).servico("autorizacao", "55", "1")
    headers = {"Content-Type": f'application/soap+xml; charset=utf-8; action="{WSDL}/nfeAutorizacaoLote"'}

    def emit(number: int) -> None:
        note = bare_note(made, cert, numbered(number, 900 + slot))
        answer = client.post(address, content=ENVELOPE % (number, note), headers=headers)
        inside = etree.fromstring(answer.content).find(f".//{{{NS}}}infProt")
        assert (inside.findtext(f"{{{NS}}}cStat"), inside.findtext(f"{{{NS}}}nProt") is None) == ("100", False)

    return emit


def labour(subject: Any, place: Place, slot: int, numbers: range, barrier: Any, spent: Any) -> None:
    """One worker: warm, then all together."""
    emit = subject(place, slot)
    emit(numbers.start)
    barrier.wait(60)
    began = time.process_time()
    for number in numbers[1:]:
        emit(number)
    with spent.get_lock():
        spent.value += time.process_time() - began
    barrier.wait(300)


class Speed(NamedTuple):
    """Emissions per second of all workers, and a worker's processor time for one in milliseconds."""

    per_second: float
    processor: float


def speed(subject: Any, place: Place, count: int, first: int) -> Speed:
    """How WORKERS processes do together."""
    context = multiprocessing.get_context("fork")
    barrier, spent = context.Barrier(WORKERS + 1), context.Value("d", 0.0)
    each = count // WORKERS
    about = (range(first, first + each + 1), barrier, spent)
    workers = [context.Process(target=labour, args=(subject, place, slot, *about)) for slot in range(WORKERS)]
    for worker in workers:
        worker.start()
    barrier.wait(60)
    began = time.perf_counter()
    barrier.wait(300)
    took = time.perf_counter() - began
    for worker in workers:
        worker.join(30)
    return Speed(each * WORKERS / took, spent.value * 1000 / (each * WORKERS))


def emitting(place: Place, rounds: int, count: int) -> float:
    """Emissions per second of ours over bare: the median of the rounds, in each of which both have their turn."""
    found: dict[str, list[Speed]] = {"ours": [], "bare": []}
    for turn in range(rounds):
        for name, subject in (("ours", ours), ("bare", bare))[:: 1 if turn % 2 else -1]:
            found[name].append(speed(subject, place, count, 1 + turn * (count + 1)))
    mine, theirs = (statistics.median(one.per_second for one in found[name]) for name in ("ours", "bare"))
    ratios = [one.per_second / other.per_second for one, other in zip(found["ours"], found["bare"], strict=True)]
    print(f"emissions by {WORKERS} workers: ours {mine:.1f}/s, bare {theirs:.1f}/s (N = {rounds} × {count})")
    print("ours over bare in each round:", ", ".join(f"{ratio:.2f}" for ratio in ratios))
    spent = (statistics.median(one.processor for one in found[name]) for name in ("ours", "bare"))
    print("a worker's processor time for one: ours {:.2f} ms, bare {:.2f} ms".format(*spent))
    return statistics.median(ratios)


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
    quick = is_quick(words, __doc__)
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
