"""Payloads: conditions that are opaque bytes, such as a file, an object of ROOT or a map.

The SHA-256 of the bytes is stored beside them and is checked whenever they are read by :func:`payload_bytes`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._exceptions import CorruptError, NotFoundError, WrongTypeError
from .._schema.annotations import link, string
from .._schema.classes import field, persistent

__all__ = ["LinkedPayload", "Payload", "payload_bytes"]

MEDIA_TYPES = {
    ".root": "application/x-root",
    ".json": "application/json",
    ".txt": "text/plain",
    ".xml": "application/xml",
    ".csv": "text/csv",
}
"""Media types by the suffix of a file."""

BINARY = "application/octet-stream"
"""The media type of bytes of which nothing is known."""

ELSEWHERE = "message/external-body"
"""The media type of payloads whose bytes are not in the federation; their name is the place of the bytes."""


@persistent
class Payload:
    """Opaque bytes with a name. Make one with :meth:`from_bytes` or :meth:`from_file`.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     maps = txn.series("tpc/map", fb.Payload, create=True)
    ...     oid = maps.put(fb.Payload.from_bytes(b"field map", name="map-1"), since=0)
    >>> found = fed.conditions()["tpc/map"].at(5)
    >>> found.name, fb.payload_bytes(found)
    ('map-1', b'field map')
    """

    data: bytes = field(description="the bytes")
    media_type: string = field(default=BINARY, description="their format, such as application/x-root")
    name: string = field(default="", description="name of the file or of the object")
    details: string = field(default="", description="what else the source says about them")
    sha256: string = field(default="", description="SHA-256 of the bytes in hexadecimal")

    @classmethod
    def from_bytes(
        cls, data: bytes, *, name: str = "", media_type: str = BINARY, details: str = ""
    ) -> Payload:
        """Return a payload with the hash of its bytes."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise WrongTypeError(f"a payload is made from bytes, not from {type(data).__name__}")
        import hashlib  # This takes longer than all of this module.

        data = bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        return cls(data=data, media_type=media_type, name=name, details=details, sha256=sha256)

    @classmethod
    def from_file(cls, path: str | Path, *, media_type: str | None = None) -> Payload:
        """Return a payload with the bytes and the name of a file. Its suffix determines the media type."""
        file = Path(path)
        chosen = media_type or MEDIA_TYPES.get(file.suffix.lower(), BINARY)
        return cls.from_bytes(file.read_bytes(), name=file.name, media_type=chosen)


@persistent
class LinkedPayload:
    """A condition whose payload is an object of its own, which other conditions link to as well."""

    payload: link[Payload] = field(description="the payload")
    source_hash: string = field(default="", description="its hash in the system that it was imported from")


def payload_bytes(condition: Any) -> bytes:
    """Return the bytes of a payload after checking them against their hash.

    Parameters
    ----------
    condition
        A :class:`Payload` as it was read, or a condition with a link to one in its field ``payload``.

    Raises
    ------
    CorruptError
        If the bytes do not have the hash that is stored with them.
    NotFoundError
        If the bytes are not in the federation, as those of payloads that clients of nopayloaddb inserted.
    """
    found = getattr(condition, "payload", condition)
    if not all(hasattr(found, name) for name in ("data", "sha256")):
        raise WrongTypeError(f"{condition!r} is neither a payload nor a condition that links to one")
    if getattr(found, "media_type", "") == ELSEWHERE:
        raise NotFoundError(
            f"the bytes of payload {found.name!r} are not in the federation: they are in a file of this "
            "name, where clients of nopayloaddb write payloads (write_dir of their configuration)"
        )
    import hashlib

    data = bytes(found.data)
    digest = hashlib.sha256(data).hexdigest()
    if digest != found.sha256:
        raise CorruptError(
            f"the payload {found.name!r} is damaged: its SHA-256 is {digest}, and "
            f"{found.sha256 or 'nothing'} "
            "is stored with it"
        )
    return data
