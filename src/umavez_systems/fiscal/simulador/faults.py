"""Faults: what the next calls to a service meet, as they were ordered over the control API, then by seeded chance."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIPOS = ("timeout", "queda", "429", "500", "lento", "lixo", "meia", "duplicada", "proxy")
QUANDO = ("antes", "depois")
MOST = 1000


@dataclass
class Falha:
    """One order: which service, before or after processing, how it fails, how many more times, how long it holds."""

    servico: str
    quando: str
    tipo: str
    vezes: int
    segundos: float

    def shown(self) -> dict[str, Any]:
        """As the control API shows it."""
        return vars(self)


class Falhas:
    """The orders in line and the rates of chance."""

    def __init__(self, seed: int = 1, path: Path | None = None) -> None:
        self._path = path
        self._line: list[Falha] = []
        self._rates: dict[tuple[str, str], float] = {}
        self._hold = 3.0
        self._random = random.Random(seed)  # noqa: S311  # a seeded schedule must repeat
        self._lock = threading.Lock()
        self.acontecidas: dict[str, int] = {}
        if path is not None and path.exists():
            self.taxas(json.loads(path.read_text()))

    def pedir(self, order: dict[str, Any]) -> Falha:
        """Put an order in line. Raises ValueError with a sentence."""
        quando, tipo = str(order.get("quando", "antes")), str(order.get("tipo", ""))
        if quando not in QUANDO or tipo not in TIPOS:
            raise ValueError(f"quando é um de {', '.join(QUANDO)}; tipo é um de {', '.join(TIPOS)}.")
        vezes, segundos = order.get("vezes", 1), order.get("segundos", 3)
        if not isinstance(vezes, int) or not 1 <= vezes <= 1_000_000:
            raise ValueError("vezes é um número de 1 a 1000000.")
        if not isinstance(segundos, int | float) or not 0 <= segundos <= 600:
            raise ValueError("segundos é um número de 0 a 600.")
        fault = Falha(str(order.get("servico", "*"))[:40].lower(), quando, tipo, vezes, float(segundos))
        with self._lock:
            if len(self._line) >= MOST:
                raise ValueError("há falhas demais na fila; apague-as com DELETE.")
            self._line.append(fault)
        return fault

    def taxas(self, rates: dict[str, Any]) -> None:
        """Fail by chance: {"queda/antes": 0.15, …}, with "semente" and "segundos"; kept over restarts.

        Raises ValueError.
        """
        found: dict[tuple[str, str], float] = {}
        for name, rate in rates.items():
            tipo, _, quando = name.partition("/")
            if name in ("semente", "segundos"):
                continue
            if tipo not in TIPOS or quando not in QUANDO or not 0 <= float(rate) <= 1:
                raise ValueError("cada taxa é tipo/quando: número de 0 a 1.")
            found[(tipo, quando)] = float(rate)
        with self._lock:
            self._rates = found
            self._hold = min(float(rates.get("segundos", self._hold)), 600.0)
            if "semente" in rates:
                self._random.seed(int(rates["semente"]))
            if self._path is not None:
                # Without the seed: a restarted authority must not repeat the losses of its first minute.
                kept = {f"{tipo}/{quando}": rate for (tipo, quando), rate in found.items()}
                self._path.write_text(json.dumps({**kept, "segundos": self._hold}))

    def limpar(self) -> None:
        """Forget every order and rate."""
        with self._lock:
            self._line.clear()
            self._rates = {}
            if self._path is not None:
                self._path.unlink(missing_ok=True)

    def na_fila(self) -> list[dict[str, Any]]:
        """What is still to come."""
        with self._lock:
            return [dict(fault.shown()) for fault in self._line]

    def proxima(self, servico: str) -> Falha | None:
        """The fault that this call meets."""
        with self._lock:
            found = self._ordered(servico) or self._by_chance(servico)
            if found is not None:
                name = f"{found.tipo}/{found.quando}"
                self.acontecidas[name] = self.acontecidas.get(name, 0) + 1
            return found

    def _ordered(self, servico: str) -> Falha | None:
        for fault in self._line:
            if fault.servico in ("*", servico):
                fault.vezes -= 1
                if fault.vezes == 0:
                    self._line.remove(fault)
                return fault
        return None

    def _by_chance(self, servico: str) -> Falha | None:
        chance = self._random.random()
        for (tipo, quando), rate in self._rates.items():
            chance -= rate
            if chance < 0:
                return Falha(servico, quando, tipo, 1, self._hold)
        return None
