"""Proofs: records of a job's reads, by which they can be repeated, or are found to be gone.

A proof names each series by the commits that made it, each with its random identifier. In a copy of the
federation that went on by itself, the same numbers belong to other commits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._exceptions import CorruptError, InvalidError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from .jobs import Job
    from .series import Series

__all__ = ["check_proof", "proof_of", "verify_job"]

FORMAT_VERSION = 1


def proof_of(job: Job, series: list[Series]) -> dict[str, Any]:
    """Return the versions of some series of a job, as JSON."""
    tag = job.global_tag
    proof = {
        "format_version": FORMAT_VERSION,
        "federation": job.federation.name,
        "federation_uuid": job.federation.uuid,
        "global_tag": tag and tag["name"],
        "global_tag_state": tag and tag["state"],
        "csn": job.csn,
        "resolved_at": job._handle.resolved_at,
        "series": {each.path: each.version_name for each in sorted(series, key=lambda each: each.path)},
    }
    return {**proof, "sha256": _hash_of(proof)}


def check_proof(proof: Mapping[str, Any], federation_uuid: str) -> None:
    """Refuse a proof that was changed, or that is of another federation."""
    values = {name: value for name, value in proof.items() if name != "sha256"}
    version = values.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise UnsupportedError(f"the proof has version {version}; this release reads {FORMAT_VERSION}")
    if version != FORMAT_VERSION or proof.get("sha256") != _hash_of(values):
        raise CorruptError("the proof was changed after a job wrote it: its SHA-256 does not match")
    if values["federation_uuid"] != federation_uuid:
        raise InvalidError(
            f"the proof is of the federation {values['federation']!r} ({values['federation_uuid']}), "
            f"not of this one ({federation_uuid})"
        )


def verify_job(job: Job, proof: Mapping[str, Any]) -> None:
    """Refuse a job that would read other versions than those of a proof."""
    for path, version in proof["series"].items():
        found = job[path].version_name
        if found != version:
            raise NotFoundError(
                f"series {path} as of commit {proof['resolved_at']} differs from the proof: its version is "
                f"{found}, not {version}; this federation has diverged from the one that was read"
            )


def _hash_of(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
