"""Zombies: a worker frozen (SIGSTOP) past its lease wakes after another has settled; none of its writes may stand."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import batched, count
from multiprocessing.process import BaseProcess
from pathlib import Path

from chaos import STORES, Report, Setting, Trial
from chaos.engine_board import Board, History, Line, Phase, lines
from chaos.engine_swarm import PATIENCE, Job, end, spawn
from umavez import AsyncOnce, Once
from umavez.errors import ClaimLost, OperationInProgress

SCOPE = "chaos"
OPERATION = "freeze"
LEASE = 0.4
HERD = 5
POINTS = ("in the body", "before settling", "before failing", "before a checkpoint", "in a task")
OPTIONS = {"unknown": "rerun", "lease": LEASE, "max_retries": 1000}
