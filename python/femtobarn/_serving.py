"""A server in this process: federations and folders of files over ``root://``, gRPC and HTTP on one port."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ._exceptions import InvalidError, path_text
from ._femtobarn import ServerHandle

__all__ = ["Server", "serve"]


def serve(
    *folders: str | os.PathLike[str],
    cache_of: str | None = None,
    cache_bytes: int | None = None,
    redirect_to: Sequence[str] = (),
    redirect_caches: Sequence[str] = (),
    port: int | None = None,
    address: str | None = None,
    tls_off: bool = False,
    anonymous: Literal["nothing", "read", "write", "all"] | None = None,
    read_only: bool = False,
    config: str | os.PathLike[str] | None = None,
    site: str | None = None,
    url: str | None = None,
) -> Server:
    """Serve folders, or redirect to other servers, until the server is stopped; use it in a ``with`` block.

    Parameters
    ----------
    folders
        Folders of federations, and of other files. Each is served under its own name, or under another that
        is given as ``"folder=/name"``.
    cache_of
        ``root://`` URL of another server's files: they are served, read-only, under the path of the URL, and
        the bytes that are read are kept in the given folder. Of several folders, on a disk each, every file
        is kept in one, and those whose disk fails are used no more.
    cache_bytes
        Bytes kept in each folder, by default four fifths of its file system; files closed longest ago leave.
    redirect_to
        ``root://`` URLs of servers with the same path; clients are redirected to one that has their file.
    redirect_caches
        ``root://`` URLs of caches of these servers, with the same path, for files that many clients read.
    port
        Port to listen on, 1094 if it is given neither here nor in `config`; 0 means any free port.
    address
        Address to listen on: by default all, with a certificate in `config` or `tls_off`; else 127.0.0.1.
    tls_off
        Whether to serve other machines in the clear, without a certificate.
    anonymous
        Rights of clients without credentials, ``"read"`` by default; ``"all"`` is to `promote` copies, too.
    read_only
        Whether to refuse all changes.
    config
        TOML file with all other settings; ``femtobarn serve --print-config`` prints one.
    site
        Name of this server among several of one federation, whose catalogue is in PostgreSQL.
    url
        URL by which clients and other servers reach this one, ``"root://host:port"``; by default its address.

    Raises
    ------
    InvalidError
        If a setting is invalid, nothing is to be served, or other machines without certificate and `tls_off`.
    StorageError
        If a folder cannot be read, or the port is taken.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fb.serve(fed.path, port=0, address="127.0.0.1") as server:
    ...     server.url("/lhc.fed") == f"root://127.0.0.1:{server.port}//lhc.fed"
    True
    """
    _allow_as_many_files_as_possible()
    pairs, cache = _folders(folders, cache_of, cache_bytes)
    to, caches = _as_list(redirect_to), _as_list(redirect_caches)
    at, rights, place = (port, address, tls_off), (anonymous, read_only), _place(site, url)
    text = _text_of(config)
    return Server(ServerHandle.start(text, pairs, cache, to, caches, *at, *rights, place), config)


def _text_of(config: str | os.PathLike[str] | None) -> str:
    return Path(path_text(config)).read_text() if config is not None else ""


def _allow_as_many_files_as_possible() -> None:
    """Let the process have as many open files as it may: a connection is one, and shells allow 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _folders(
    folders: Sequence[str | os.PathLike[str]], cache_of: str | None, cache_bytes: int | None
) -> tuple[list[tuple[str, str]], tuple[str, int | None] | None]:
    """Return folders with their names, and the origin if they are a cache."""
    pairs = [_folder_and_name(os.fspath(folder)) for folder in folders]
    if cache_bytes is not None and cache_of is None:
        raise InvalidError("cache_bytes needs cache_of")
    if cache_of is not None and any(name for _, name in pairs[1:]):
        raise InvalidError("the folders of a cache are served under one name: give it to the first")
    return pairs, None if cache_of is None else (cache_of, cache_bytes)


def _place(site: str | None, url: str | None) -> tuple[str, str | None] | None:
    """Return the name of a server among several, and its URL."""
    if url is not None and site is None:
        raise InvalidError("url needs site, the name of the server among several")
    return None if site is None else (site, url)


def _as_list(urls: Sequence[str]) -> Sequence[str]:
    return [urls] if isinstance(urls, str) else urls


def _folder_and_name(text: str) -> tuple[str, str]:
    folder, _, name = text.partition("=/")
    return folder, f"/{name}" if name else ""


class Server:
    """A server that runs in threads of this process."""

    def __init__(self, handle: ServerHandle, config: str | os.PathLike[str] | None = None) -> None:
        self._handle = handle
        self._config = config

    @property
    def address(self) -> str:
        """Address that the server listens on; ``"0.0.0.0"`` stands for all addresses of the machine."""
        return self._handle.address

    @property
    def port(self) -> int:
        """Port that the server listens on."""
        return self._handle.port

    @property
    def exports(self) -> list[str]:
        """The served names, with which paths begin."""
        return self._handle.exports

    def url(self, path: str = "/", *, host: str = "127.0.0.1") -> str:
        """Return the ``root://`` address of a path, for clients on this machine unless `host` is given."""
        return f"root://{host}:{self.port}/{path}"

    def status(self) -> dict[str, Any]:
        """Return the state of the server: totals, sessions, files, locks."""
        status: dict[str, Any] = json.loads(self._handle.status())
        return status

    def reload(self) -> None:
        """Read the configuration file, certificates and keys of token issuers again.

        Certificates, keys and the log level take effect, and the log lists the changes. Other settings need a
        restart.

        Raises
        ------
        InvalidError
            If a setting is invalid, which is also logged; its old value stays in force.
        ClosedError
            If the server was stopped.
        OSError
            If the configuration file cannot be read.
        """
        self._handle.reload(Path(self._config).read_text() if self._config is not None else "")

    def stop(self) -> None:
        """Refuse new sessions, let the running ones finish, and stop."""
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
        """Stop the server."""
        self.stop()

    def __repr__(self) -> str:
        """Show the served names and the port."""
        return f"<femtobarn server of {', '.join(self.exports)} on port {self.port}>"
