"""The process as a picture: SVG from the BPMN file's own coordinates, each element coloured by its state."""

from __future__ import annotations

from html import escape
from textwrap import wrap
from typing import Any

from umavez_systems.processos.engine import MODEL, Definition

BPMNDI = "{http://www.omg.org/spec/BPMN/20100524/DI}"
DC = "{http://www.omg.org/spec/DD/20100524/DC}"
DI = "{http://www.omg.org/spec/DD/20100524/DI}"
MARGIN = 40.0
WORDS = {
    "COMPLETED": "feito",
    "STARTED": "em curso",
    "READY": "pronto",
    "WAITING": "esperando",
    "CANCELLED": "cancelado",
    "ERROR": "erro",
}

Box = tuple[float, float, float, float]


def drawing(definition: Definition, tasks: dict[str, str], records: dict[str, str]) -> str:
    """The SVG of a definition. `tasks`: states by element; `records`: a line to write under a task."""
    root = definition.root
    elements = {element.get("id"): element for element in root.iter() if element.get("id")}
    boxes = {shape.get("bpmnElement"): _box(shape) for shape in root.iter(f"{BPMNDI}BPMNShape")}
    edges = [_edge(edge, elements) for edge in root.iter(f"{BPMNDI}BPMNEdge")]
    shapes = [
        _shape(elements[name], box, tasks.get(name, ""), records.get(name, ""))
        for name, box in boxes.items()
        if name in elements
    ]
    right = max((x + width for x, _, width, _ in boxes.values()), default=0.0) + MARGIN
    bottom = max((y + height for _, y, _, height in boxes.values()), default=0.0) + MARGIN + 10
    return (
        f'<svg viewBox="0 0 {right:g} {bottom:g}" role="img" aria-label="{escape(definition.name)}">'
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0L10 5L0 10z"/></marker></defs>'
        f"{''.join(edges)}{''.join(shapes)}</svg>"
    )


def _box(shape: Any) -> Box:
    bounds = shape.find(f"{DC}Bounds")
    x, y, width, height = (float(bounds.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, width, height


def _edge(edge: Any, elements: dict[str, Any]) -> str:
    points = [(float(point.get("x")), float(point.get("y"))) for point in edge.iter(f"{DI}waypoint")]
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    flow = elements.get(edge.get("bpmnElement"))
    name = "" if flow is None else flow.get("name") or ""
    label = ""
    if name and len(points) > 1:
        (x1, y1), (x2, y2) = points[0], points[1]
        label = _text(name, (x1 + x2) / 2 + (12 if x1 == x2 else 0), (y1 + y2) / 2 - (6 if y1 == y2 else 0), "small")
    return f'<polyline class="flow" points="{path}" marker-end="url(#arrow)"/>{label}'


def _shape(element: Any, box: Box, state: str, record: str) -> str:
    kind = element.tag.removeprefix(MODEL)
    x, y, width, height = box
    name = element.get("name") or element.get("id")
    middle = x + width / 2
    title = f"<title>{escape(name)}: {WORDS.get(state, 'não alcançado')}</title>"
    opening = f'<g class="{escape(kind)} {escape(state.lower() or "future")}">{title}'
    if kind.endswith("Task"):
        body = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="9"/>'
        lines = wrap(name, 18)
        body += "".join(_text(line, middle, y + 24 + 15 * row) for row, line in enumerate(lines))
        body += _text(WORDS.get(state, ""), middle, y + 26 + 15 * len(lines), "state")
        # Above the box: at its lower edge a boundary event may sit.
        body += _text(record, middle, y - 7, "small")
    elif kind.endswith("Gateway"):
        half = y + height / 2
        body = f'<path d="M{middle:g} {y:g}L{x + width:g} {half:g}L{middle:g} {y + height:g}L{x:g} {half:g}z"/>'
        body += _text(name, middle, y - 8)
    else:
        half = y + height / 2
        body = f'<circle cx="{middle:g}" cy="{half:g}" r="{width / 2:g}"/>{_sign(element, middle, half)}'
        beside = kind == "boundaryEvent"
        body += _text(name, middle + (40 if beside else 0), y + height + (0 if beside else 16))
    return f"{opening}{body}</g>"


def _sign(element: Any, x: float, y: float) -> str:
    """What is inside an event's circle: hands of a clock, or the flash of an error."""
    if element.find(f"{MODEL}timerEventDefinition") is not None:
        return f'<path class="sign" d="M{x:g} {y - 9:g}V{y:g}H{x + 7:g}"/>'
    if element.find(f"{MODEL}errorEventDefinition") is not None:
        return (
            f'<path class="sign" d="M{x - 8:g} {y + 8:g}L{x - 3:g} {y - 6:g}L{x + 3:g} {y + 5:g}L{x + 8:g} {y - 8:g}"/>'
        )
    return ""


def _text(content: str, x: float, y: float, kind: str = "name") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(content)}</text>' if content else ""
