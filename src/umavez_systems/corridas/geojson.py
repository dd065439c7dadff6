"""GeoJSON: communities as they come in. What is refused is said with the feature's number and the reason."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple

import shapely
from shapely.geometry import shape

from umavez_systems.corridas.domain import invalid

MOST_FEATURES = 5_000
MOST_CORNERS = 10_000


def _list_of(items: dict[str, Any], least: int) -> dict[str, Any]:
    return {"type": "array", "minItems": least, "items": items}


def _shape(name: str, coordinates: dict[str, Any]) -> dict[str, Any]:
    properties = {"type": {"const": name}, "coordinates": coordinates}
    return {"type": "object", "required": ["type", "coordinates"], "properties": properties}


_POLYGON = _list_of(_list_of(_list_of({"type": "number"}, 2), 4), 1)
_FEATURE = {
    "type": "object",
    "required": ["type", "id", "geometry"],
    "properties": {
        "type": {"const": "Feature"},
        "id": {"type": "string", "minLength": 1, "maxLength": 60},
        "properties": {"type": "object", "properties": {"name": {"type": "string"}, "priority": {"type": "integer"}}},
        "geometry": {"anyOf": [_shape("Polygon", _POLYGON), _shape("MultiPolygon", _list_of(_POLYGON, 1))]},
    },
}
_COLLECTION = {
    "title": "Comunidades",
    "type": "object",
    "required": ["type", "features"],
    "properties": {
        "type": {"const": "FeatureCollection"},
        "features": {"type": "array", "minItems": 1, "maxItems": MOST_FEATURES, "items": _FEATURE},
    },
}
GEOJSON: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": {"schema": _COLLECTION}}}}
"""What OpenAPI says about a body with communities."""


class Community(NamedTuple):
    """A community to be kept: its id, name, priority and checked geometry."""

    id: str
    name: str
    priority: int
    geometry: dict[str, Any]

    @property
    def corners(self) -> int:
        """How many positions its rings have."""
        return sum(len(ring) for polygon in self.geometry["coordinates"] for ring in polygon)


def communities_of(data: Any) -> list[Community]:
    """The communities in a FeatureCollection or a Feature. Raises a 422 problem that names the first bad feature."""
    if isinstance(data, dict) and data.get("type") == "Feature":
        data = {"type": "FeatureCollection", "features": [data]}
    if not isinstance(data, dict) or data.get("type") != "FeatureCollection":
        raise invalid("Envie um GeoJSON FeatureCollection, com um Feature por comunidade.")
    features = data.get("features")
    if not isinstance(features, list) or not features or len(features) > MOST_FEATURES:
        raise invalid(f"features deve ser uma lista de 1 a {MOST_FEATURES} comunidades.")
    found = [_community(feature, number) for number, feature in enumerate(features, 1)]
    if len({community.id for community in found}) < len(found):
        raise invalid("Duas comunidades têm o mesmo id; cada id só pode aparecer uma vez.")
    return found


def _community(feature: Any, number: int) -> Community:
    where = f"feature {number}"
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise invalid(f"{where}: não é um Feature do GeoJSON.")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise invalid(f"{where}: properties deve ser um objeto.")
    key = feature.get("id", properties.get("id"))
    name = properties.get("name", key)
    priority = properties.get("priority", 0)
    if not isinstance(key, str) or not 0 < len(key) <= 60 or not key.isprintable():
        raise invalid(f"{where}: falta o id, um texto de 1 a 60 caracteres.")
    if not isinstance(name, str) or not 0 < len(name) <= 255 or "\0" in name:
        raise invalid(f"{where}: name deve ser um texto de 1 a 255 caracteres.")
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > 1_000_000:
        raise invalid(f"{where}: priority deve ser um número inteiro.")
    return Community(key, name, priority, _geometry(feature.get("geometry"), where))


def _geometry(geometry: Any, where: str) -> dict[str, Any]:
    if not isinstance(geometry, dict) or geometry.get("type") not in ("Polygon", "MultiPolygon"):
        raise invalid(f"{where}: geometry deve ser Polygon ou MultiPolygon.")
    coordinates = geometry.get("coordinates")
    polygons = [coordinates] if geometry["type"] == "Polygon" else coordinates
    if not isinstance(polygons, list) or not polygons:
        raise invalid(f"{where}: coordinates está vazio.")
    checked = [_polygon(polygon, where) for polygon in polygons]
    if sum(len(ring) for polygon in checked for ring in polygon) > MOST_CORNERS:
        raise invalid(f"{where}: a cerca tem mais de {MOST_CORNERS} vértices; simplifique-a.")
    kept = {"type": "MultiPolygon", "coordinates": checked}
    reason = shapely.is_valid_reason(shape(kept))
    if reason != "Valid Geometry":
        raise invalid(f"{where}: a cerca se cruza ou se sobrepõe a si mesma, perto de [{reason.partition('[')[2]}.")
    return kept


def _polygon(polygon: Any, where: str) -> list[list[list[float]]]:
    if not isinstance(polygon, list) or not polygon:
        raise invalid(f"{where}: um polígono não tem nenhum anel.")
    return [_ring(ring, where) for ring in polygon]


def _ring(ring: Any, where: str) -> list[list[float]]:
    if not isinstance(ring, list) or len(ring) < 4:
        raise invalid(f"{where}: um anel precisa de ao menos 4 posições, a última igual à primeira.")
    places = [_place(place, where) for place in ring]
    if places[0] != places[-1]:
        raise invalid(f"{where}: um anel não está fechado; a última posição deve ser igual à primeira.")
    return places


def _place(place: Any, where: str) -> list[float]:
    if not isinstance(place, list) or len(place) < 2:
        raise invalid(f"{where}: uma posição deve ser [longitude, latitude].")
    if any(isinstance(part, bool) or not isinstance(part, int | float | Decimal) for part in place[:2]):
        raise invalid(f"{where}: longitude e latitude devem ser números.")
    try:
        lng, lat = float(place[0]), float(place[1])
    except OverflowError:
        raise invalid(f"{where}: longitude e latitude devem ser números que um mapa tenha.") from None
    if not (isfinite(lng) and isfinite(lat) and -180 <= lng <= 180 and -90 <= lat <= 90):
        raise invalid(f"{where}: [{lng}, {lat}] não é [longitude, latitude]: -180 a 180 e -90 a 90.")
    return [lng, lat]
