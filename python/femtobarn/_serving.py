"""A server in this process: federations and plain folders over ``root://``, gRPC and HTTP on one port."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ._femtobarn import ServerHandle

__all__ = ["Server", "serve"]


def serve(
    *folders: str | os.PathLike[str],
    port: int | None = None,
    address: str | None = None,
    anonymous: Literal["nothing", "read", "all"] | None = None,
    read_only: bool = False,
    config: str | os.PathLike[str] | None = None,
) -> Server:
    """Serve folders until the server is stopped; use it in a ``with`` block.

    Parameters
    ----------
    folders
        Folders of federations, served as such, and of plain files. Each is served under its own name;
        ``(folder, name)`` as ``"folder=/name"`` gives it another.
    port
        Port to listen on, 1094 if neither given here nor in `config`; 0 takes any free one.
    address
        Address to listen on, by default all of the machine's.
    anonymous
        What clients may do who do not say who they are: ``"read"`` unless `config` says otherwise.
    read_only
        Nobody may change anything.
    config
        TOML file with what else is wanted; ``femtobarn serve --print-config`` prints one.

    Raises
    ------
    InvalidError
        If something in `config` is wrong, or nothing is to be served.
    StorageError
        If a folder or the port cannot be used.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fb.serve(fed.path, port=0, address="127.0.0.1") as server:
    ...     server.url("/lhc.fed") == f"root://127.0.0.1:{server.port}//lhc.fed"
    True
    """
    text = Path(config).read_text() if config is not None else ""
    pairs = [_folder_and_name(os.fspath(folder)) for folder in folders]
    return Server(ServerHandle.start(text, pairs, port, address, anonymous, read_only), config)


def _folder_and_name(text: str) -> tuple[str, str]:
    folder, _, name = text.partition("=/")
    return folder, f"/{name}" if name else ""


class Server:
    """A server that is running in threads of this process."""

    def __init__(self, handle: ServerHandle, config: str | os.PathLike[str] | None = None) -> None:
        self._handle = handle
        self._config = config

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return self._handle.port

    @property
    def exports(self) -> list[str]:
        """Names that paths begin with."""
        return self._handle.exports

    def url(self, path: str = "/", *, host: str = "127.0.0.1") -> str:
        """Return the ``root://`` address of a path, for clients on this machine unless `host` is given."""
        return f"root://{host}:{self.port}/{path}"

    def status(self) -> dict[str, Any]:
        """Return what it is doing: totals, sessions, files, locks."""
        status: dict[str, Any] = json.loads(self._handle.status())
        return status

    def reload(self) -> None:
        """Read the configuration file, certificates and keys of tokens' issuers again.

        Certificates, keys and the log's level are taken from them; the log says what was. Other settings
        take a restart.

        Raises
        ------
        InvalidError
            If something is wrong, as the log says, too; for that the old stays in force.
        ClosedError
            If the server was stopped.
        OSError
            If the configuration file cannot be read.
        """
        self._handle.reload(Path(self._config).read_text() if self._config is not None else "")

    def stop(self) -> None:
        """Stop taking sessions, let the running ones finish, and end."""
        self._handle.stop()

    def __enter__(self) -> Server:
        """Return the server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    def __repr__(self) -> str:
        """Show what is served and where."""
        return f"<femtobarn server of {', '.join(self.exports)} on port {self.port}>"
