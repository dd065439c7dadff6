"""Every fault × a crash at every write, for every act of fiscal documents, in one process and without waiting.

A schedule is: an act, how the authority fails at its first two sends and its first question, and after which of the
writes the process dies. Afterwards a new process repeats the request and reconciles. What must hold: at most one living
document per intent, no state that the authority contradicts, every number explained, no proof broken, nothing open
without a next action. A failing schedule is printed with what repeats it; the shortest comes first.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from chaos import Report, Setting, Trial
from chaos.fiscal_paper import Papel
from chaos.fiscal_paper_services import PapelNacional, PapelPaulistana
from umavez import Once, UmavezError
from umavez.stores.sqlite.store import SqliteStore, parsed
from umavez.testing.clock import ManualClock
from umavez.testing.crash import Died
from umavez.testing.faults import Tapped
from umavez_systems.database import Connection, Database, open_database
from umavez_systems.fiscal.atos.governor import Limites
from umavez_systems.fiscal.cases import Caller, Fiscal
from umavez_systems.fiscal.domain import Destinatario, Endereco, Estado, Item, Pagamento, Pedido, Servico, Tipo
from umavez_systems.fiscal.ledgers import Livros
from umavez_systems.fiscal.operations import Atos, Termos
from umavez_systems.fiscal.wire.addresses import modo_svc
from umavez_systems.problems import Problem
from umavez_systems.server import prepare
from umavez_systems.settings import Settings

T = TypeVar("T")
WHY = "Pedido desfeito pelo cliente"
SENDS = ("ok", "antes", "depois", "nada", "ocupada", "feita e ocupada", "duplicada", "tarde")
ASKS = ("ok", "muda")
ROUNDS = 12
WHERE = Endereco("Rua Um", "1", "Centro", "3550308", "Sao Paulo", "SP", "01001000")
ORDER = Pedido(
    Tipo.NFE,
    "demo",
    1,
    (Item("1", "Caneta", "96081000", "5102", "UN", Decimal(2), Decimal("1.50")),),
    (Pagamento("01", Decimal("3.00")),),
    Destinatario("Maria", cpf="52998224725", endereco=WHERE),
)


SERVICE = Pedido(
    Tipo.NFSE_ADN,
    "demo",
    1,
    (),
    (),
    Destinatario("Maria", cpf="52998224725"),
    servico=Servico("Consultoria", "010101", Decimal("100.00")),
)
ORDERS = {"sefaz": ORDER, "adn": SERVICE, "sp": replace(SERVICE, tipo=Tipo.NFSE_SP)}
PAPERS: dict[str, Callable[[], Papel]] = {"sefaz": Papel, "adn": PapelNacional, "sp": PapelPaulistana}


class Schedule(NamedTuple):
    """What is tried: `nth` is the write at which the process dies, 0 for never."""

    kind: str
    act: str
    send: str
    again: str
    ask: str
    nth: int


class Life:
    """Counts the writes of a process and ends it at one of them; the dead stay dead."""

    def __init__(self, nth: int) -> None:
        self.nth = nth
        self.writes = 0
        self.dead = False

    def tick(self) -> None:
        """One write was made, or is about to be."""
        self.writes += 1
        if self.dead or self.writes == self.nth:
            self.dead = True
            raise Died


class MortalStore(Tapped):
    """A store whose user may die before or after each call."""

    def __init__(self, store: SqliteStore, life: Life) -> None:
        super().__init__(store, 0)
        self._life = life

    def _call(self, verb: Callable[[], T]) -> T:
        self._life.tick()
        done = verb()
        self._life.tick()
        return done

    def _fault(self, verb: Callable[[], T]) -> T:
        return verb()


class MortalDatabase:
    """A database whose user may die before or after each commit."""

    def __init__(self, database: Database, life: Life) -> None:
        self._database = database
        self._life = life
        self.url, self.store_url = database.url, database.store_url

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Dies before it begins, or after it committed."""
        self._life.tick()
        with self._database.transaction() as connection:
            yield connection
        self._life.tick()

    @contextmanager
    def statements(self) -> Iterator[Connection]:
        """Statements that only read are no points to die at."""
        with self._database.statements() as connection:
            yield connection

    def close(self) -> None:
        """The real one is closed by its owner."""


class Paper:
    """Organisations with one authority on paper."""

    def __init__(self, papel: Papel) -> None:
        self._papel = papel

    def autoridade(self, org_id: str, tipo: Tipo = Tipo.NFE) -> Papel:
        """The one there is."""
        return self._papel

    def linha(self, principal: str, nome: str) -> dict[str, Any]:
        """The one organisation."""
        return {"id": "local/demo", "ambiente": "simulador"}

    apta = linha


class World:
    """One schedule's surroundings: a database with the engine's records, which join its transactions, the authority,
    and time."""

    def __init__(self, database: Database, kind: str) -> None:
        self.database = database
        self.clock = ManualClock()
        self.store = SqliteStore(*parsed(database.store_url), clock=self.clock)
        self.papel = PAPERS[kind]()
        self.order = ORDERS[kind]

    def wait(self) -> None:
        """Longer than a lease; what the authority had under way is there afterwards, where it is punctual."""
        self.clock.advance(31)
        if self.papel.pontual:
            self.papel.arrive()

    @contextmanager
    def process(self, nth: int = 0) -> Iterator[tuple[Fiscal, Livros, Life]]:
        """A process that dies at its nth write."""
        life = Life(nth)
        once = Once(MortalStore(self.store, life), scope="fiscal")
        mortal: Any = MortalDatabase(self.database, life)
        paper: Any = Paper(self.papel)
        terms = Termos(settle=0.0, first=0.0, lease=30.0, wait=0.0, quarentena=0.0, conferir=0.0)
        acts = Atos(once, mortal, paper, termos=terms, limites=Limites(por_chave=1000), sleep=lambda _: None)
        fiscal = Fiscal(mortal, paper, acts, modo_svc)
        try:
            yield fiscal, Livros(fiscal), life
        finally:
            once._admission.heartbeats.close()  # noqa: SLF001  # the store is the world's, not this process's


def acts(order: Pedido) -> dict[str, Callable[[Fiscal, Livros, str], Any]]:
    """What is asked for, by name; each may be repeated. A service invoice has no letters and no voiding."""
    local = Caller("local")

    def cancel(fiscal: Fiscal, _: Livros, document: str) -> Any:
        row = fiscal.documento("local", document)
        return fiscal.cancelar(local, document, WHY, row["versao"])

    found: dict[str, Callable[[Fiscal, Livros, str], Any]] = {
        "emitir": lambda fiscal, _livros, _id: fiscal.emitir(Caller("local", "intent"), order),
        "cancelar": cancel,
    }
    if order.tipo.de_servico:
        return found
    return found | {
        "epec": lambda fiscal, _livros, _id: fiscal.emitir(Caller("local", "intent"), replace(order, modo="epec")),
        "corrigir": lambda fiscal, _livros, document: fiscal.corrigir(local, document, "O endereco e Rua Dois, 2"),
        "inutilizar": lambda _fiscal, livros, _id: livros.inutilizar(local, "demo", Tipo.NFE, 1, 1, 1, WHY),
    }


ACTS = {kind: acts(order) for kind, order in ORDERS.items()}
FIRST = ("emitir", "epec")
"""Acts that begin with nothing; the others are about a document that is there."""


def play(world: World, schedule: Schedule) -> tuple[list[str], bool]:
    """One schedule: what it broke, in words, and whether the process lived to its end."""
    document = ""
    if schedule.act not in FIRST:
        world.papel.refuse = schedule.act == "inutilizar"
        with world.process() as (fiscal, _, _life):
            document = fiscal.emitir(Caller("local", "intent"), world.order).row["id"]
    world.papel.sends, world.papel.asks = [schedule.send, schedule.again], [schedule.ask]
    lived = _tried(world, schedule, document)
    for _ in range(2):
        world.wait()
        _tried(world, schedule._replace(nth=0), document)
    with world.process() as (_, livros, _life):
        for _ in range(ROUNDS):
            world.clock.advance(31)
            world.papel.arrive()
            if not livros.varrer():
                break
    return judge(world, schedule), lived


def _tried(world: World, schedule: Schedule, document: str) -> bool:
    with world.process(schedule.nth) as (fiscal, livros, life):
        try:
            ACTS[schedule.kind][schedule.act](fiscal, livros, document)
        except (Problem, UmavezError, Died):
            return not life.dead
        return not life.dead


def judge(world: World, schedule: Schedule) -> list[str]:
    """Every invariant that does not hold."""
    broken: list[str] = []
    with world.process() as (fiscal, livros, _life):
        rows = fiscal.documentos("local", organizacao=None, estado=None, antes=None, limite=100)
        if len(rows) != 1:
            broken.append(f"{len(rows)} documents for one intent")
        broken += _too_many(world, schedule, rows)
        for row in rows:
            broken += _contradictions(world, schedule, row)
            broken += livros.prova("local", row["id"])["falhas"]
            if row["estado"] in (Estado.TRANSMITIDO, Estado.INDETERMINADO, Estado.CANCELAMENTO_PENDENTE):
                broken.append(f"still {row['estado']} after {ROUNDS} rounds")
        for series in livros.numeracao("local"):
            if series.livro.contagem["lacuna"] or series.ultimo != len(rows):
                broken.append(f"numbers unexplained: {series.livro.contagem}")
    return broken


def _too_many(world: World, schedule: Schedule, rows: list[dict[str, Any]]) -> list[str]:
    """More than one note for an intent. São Paulo destroys one when the net delivers twice, which must be shown."""
    lost = world.papel.destroyed if isinstance(world.papel, PapelPaulistana) else []
    broken = []
    if len(world.papel.notes) > 1 + len(lost):
        broken.append(f"{len(world.papel.notes)} notes at the authority for one intent")
    if lost and (schedule.act != "emitir" or "duplicada" not in (schedule.send, schedule.again)):
        broken.append(f"{len(lost)} notes destroyed")
    if lost and any(row["incidente"] is None or any(one not in row["incidente"] for one in lost) for row in rows):
        broken.append("a destroyed note is not shown")
    return broken


EXPECTED = {
    "emitir": ("AUTORIZADO",),
    "epec": ("AUTORIZADO",),
    "corrigir": ("AUTORIZADO",),
    "cancelar": ("CANCELADO",),
    "inutilizar": ("INUTILIZADO",),
}


def _contradictions(world: World, schedule: Schedule, row: dict[str, Any]) -> list[str]:
    there = world.papel.notes.get(row["chave_acesso"])
    found = []
    if (there or "") != (row["estado"] if row["estado"] in ("AUTORIZADO", "CANCELADO") else ""):
        found.append(f"ours is {row['estado']}, the authority's is {there}")
    if row["estado"] not in EXPECTED[schedule.act]:
        found.append(f"{schedule.act} ended as {row['estado']}")
    if schedule.act == "corrigir" and len(world.papel.events) != 1:
        found.append(f"{len(world.papel.events)} letters at the authority")
    if schedule.act == "epec" and len(world.papel.events) != 1:
        found.append(f"{len(world.papel.events)} advance notices at the authority")
    if schedule.act == "inutilizar" and len(world.papel.voided) != 1:
        found.append(f"{len(world.papel.voided)} voidings at the authority")
    return found


def search(folder: Path, count: int, seed: int, advance: Callable[[int], None]) -> Report:
    """Up to `count` schedules: all of them where there are no more, a seeded choice otherwise, first of their kinds."""
    report = Report()
    template = folder / "modelo.db"
    prepare(Settings(database=f"sqlite:///{template}"))
    kinds = [(kind, *one) for kind, known in ACTS.items() for one in itertools.product(known, SENDS, SENDS, ASKS)]
    chance = random.Random(seed)
    if count < len(kinds):
        kinds = chance.sample(kinds, count)
    lengths = {kind: _length(folder, template, kind) for kind in kinds}
    schedules = [Schedule(*kind, nth) for kind in kinds for nth in range(lengths[kind] + 1)]
    report.sometimes["schedules there are"] = len(schedules)
    if count < len(schedules):
        schedules = chance.sample(schedules, count)
    for schedule in sorted(schedules, key=_bad_luck):
        broken, lived = _played(folder, template, schedule)
        report.done += 1
        report.sometimes["lived" if lived else "died"] += 1
        advance(report.done)
        for what in broken:
            report.blame(f"{schedule}: {what}")
    return report


def _bad_luck(schedule: Schedule) -> tuple[int, int]:
    """How much goes wrong in a schedule, and how late: what fails with the least is told first."""
    faults = sum(fault != "ok" for fault in (schedule.send, schedule.again, schedule.ask))
    return faults + (schedule.nth > 0), schedule.nth


def _length(folder: Path, template: Path, kind: tuple[str, ...]) -> int:
    """How many points there are to die at."""
    authority, act, *faults, ask = kind
    with _world(folder, template, authority) as world:
        document = ""
        if act not in FIRST:
            world.papel.refuse = act == "inutilizar"
            with world.process() as (fiscal, _, _life):
                document = fiscal.emitir(Caller("local", "intent"), world.order).row["id"]
        world.papel.sends, world.papel.asks = faults, [ask]
        with world.process() as (fiscal, livros, life):
            try:
                ACTS[authority][act](fiscal, livros, document)
            except (Problem, UmavezError):
                return life.writes
            return life.writes


def _played(folder: Path, template: Path, schedule: Schedule) -> tuple[list[str], bool]:
    with _world(folder, template, schedule.kind) as world:
        return play(world, schedule)


@contextmanager
def _world(folder: Path, template: Path, kind: str) -> Iterator[World]:
    path = folder / "mundo.db"
    shutil.copy(template, path)
    database = open_database(f"sqlite:///{path}", 1)
    with database.transaction() as connection:
        connection.rows(
            "INSERT INTO fiscal_organizacoes (id, principal, nome, cnpj, uf, ambiente, emitente, certificado,"
            " certificado_vence_em, criado_em)"
            " VALUES ('local/demo', 'local', 'demo', '', 'SP', 'simulador', '', '', 0, 0)"
        )
    world = World(database, kind)
    try:
        yield world
    finally:
        world.store.close()
        database.close()


def run(setting: Setting) -> Report:
    """The search, in memory where the machine has such a folder: nothing here depends on a disk."""
    memory = Path("/dev/shm")  # noqa: S108  # made unique below
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else setting.folder) as folder:
        return search(Path(folder), setting.count, setting.seed, setting.advance)


TRIALS = (
    Trial(
        "fiscal: every fault, a crash at every write",
        run,
        ("sqlite",),
        short=100,
        long=100_000,
        sometimes=("lived", "died"),
    ),
)
