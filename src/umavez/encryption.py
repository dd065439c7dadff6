"""SealedCodec: results encrypted at rest, with keys that can be rotated. Needs umavez[seal].

AES-256-GCM. The record's own digest is authenticated with the text, so a row copied over another
row does not open. Set UMAVEZ_SEAL_KEYS to `name:base64key`, newest first, separated by commas: the
first seals, all of them open. Without a key of that name a stored result is refused, never run again.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any

from umavez.core.encoding.codec import Codec, JsonCodec
from umavez.core.key import Key
from umavez.errors import ConfigurationError, NotStorable, needs

with needs(__name__, "umavez[seal]"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "UMAVEZ_SEAL_KEYS"
NONCE_BYTES = 12
KEY_BYTES = 32


class SealedCodec:
    """Encrypts what another codec writes. Texts written before sealing began are still read as they are."""

    def __init__(self, keys: Mapping[str, bytes], codec: Codec | None = None) -> None:
        if not keys:
            raise ConfigurationError(f"Sealing needs at least one key; set {VARIABLE} or pass keys=.")
        for name, key in keys.items():
            if len(key) != KEY_BYTES or not name:
                raise ConfigurationError(f"The sealing key {name!r} must have a name and {KEY_BYTES} bytes.")
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}
        self._newest = next(iter(keys))
        self._codec: Codec = JsonCodec() if codec is None else codec

    def __repr__(self) -> str:
        return f"SealedCodec(keys={list(self._ciphers)})"

    @classmethod
    def from_environment(cls, codec: Codec | None = None) -> SealedCodec:
        """The codec whose keys stand in UMAVEZ_SEAL_KEYS. Raises ConfigurationError when they cannot be used."""
        keys: dict[str, bytes] = {}
        for place, entry in enumerate(filter(None, os.environ.get(VARIABLE, "").split(",")), 1):
            name, _, text = entry.strip().partition(":")
            try:
                keys[name] = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                keys[name] = b""
            if not name or len(keys[name]) != KEY_BYTES:
                # By its place: of an entry without a colon, what stands where the name does is the key itself.
                raise ConfigurationError(
                    f"{VARIABLE}: entry {place} is no name:key with {KEY_BYTES} bytes in base64; correct it."
                ) from None
        return cls(keys, codec)

    def encode(self, value: Any, key: Key) -> str:
        """The sealed JSON text of `value`."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = self._ciphers[self._newest].encrypt(nonce, self._codec.encode(value, key).encode(), key.digest)
        return json.dumps({"$sealed": [self._newest, base64.b64encode(nonce + sealed).decode()]}, separators=(",", ":"))

    def decode(self, text: str, key: Key) -> Any:
        """The value that was sealed. Raises NotStorable when no key opens it or it was changed."""
        if not text.startswith('{"$sealed":'):
            return self._codec.decode(text, key)
        name, content = json.loads(text)["$sealed"]
        if name not in self._ciphers:
            raise NotStorable(f"The stored result was sealed with the key {name!r}; add it to {VARIABLE}.")
        try:
            raw = base64.b64decode(content)
            opened = self._ciphers[name].decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], key.digest)
        except (InvalidTag, ValueError) as error:
            raise NotStorable("The stored result does not open: it was changed or moved to another key.") from error
        return self._codec.decode(opened.decode(), key)


def new_key() -> str:
    """A fresh sealing key as it is written into UMAVEZ_SEAL_KEYS, after its name and a colon."""
    return base64.b64encode(AESGCM.generate_key(KEY_BYTES * 8)).decode()
