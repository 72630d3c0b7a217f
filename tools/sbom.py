"""Writes the bill of materials of a release, in CycloneDX.

It has the crates that the wheel is built from, which maturin lists in the wheel, the packages with which the
wheel was tried, and the JavaScript that it brings.

python tools/sbom.py WHEEL PYTHON OUTPUT

PYTHON is the interpreter of an environment that has nothing but the wheel and what it requires.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

THREE = Path(__file__).parent.parent / "python/femtobarn/display/three/README.md"
LISTING = (
    "import importlib.metadata as m, json; print(json.dumps("
    "[[d.name, d.version, d.metadata.get('License-Expression')] for d in m.distributions()]))"
)


def main(wheel: str, python: str, output: str) -> None:
    """Write the file."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (
            name
            for name in archive.namelist()
            if name.endswith(".dist-info/sboms/femtobarn-python.cyclonedx.json")
        )
        bill: dict[str, Any] = json.loads(archive.read(name))
    told = subprocess.run([python, "-c", LISTING], check=True, capture_output=True, text=True).stdout
    packages = [component("pypi", *package) for package in sorted(json.loads(told))]
    version = re.findall(r"npm registry, version ([\d.]+)", THREE.read_text())[0]
    bill["components"] += [*packages, component("npm", "three", version, "MIT")]
    Path(output).write_text(json.dumps(bill, indent=1) + "\n")


def component(kind: str, name: str, version: str, license_: str | None) -> dict[str, Any]:
    """A library as CycloneDX describes it."""
    url = f"pkg:{kind}/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"
    described = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
    return described | ({"licenses": [{"expression": license_}]} if license_ else {})


if __name__ == "__main__":
    main(*sys.argv[1:])
