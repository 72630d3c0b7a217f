"""The command `doctor`: problems of an installation and of a federation, and their remedies.

| module | looks at |
|---|---|
| `installation` | versions, required and optional packages, limits of the process, the temporary folder |
| `federation_folder` | a federation in a folder: its catalogue, its files, whom it follows |
| `disk` | the file systems of a folder: their kinds, and how long their space lasts |
| `stores` | the stores of its `storage.toml` |
| `federation_server` | a federation at a server: certificate, version, distance, state |
| `users`, `tokens` | rights, locks, waits and open snapshots; the token that is sent |

All looks are cheap: names, sizes, and rows of the catalogue. No page is read, and nothing is changed.
"""

from .command import arguments, run

__all__ = ["arguments", "run"]
