"""Listen on an address and serve a memory until it is stopped."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from holdfast.core.errors import HoldfastError
from holdfast.serving.application import OPEN_PATHS, Routes, application
from holdfast.serving.guard import Connection, Guard
from holdfast.serving.idle import IdleConsolidation

if TYPE_CHECKING:
    from holdfast.serving.served_memory import ServedMemory  # which loads torch


_CONNECTIONS = 1024
_GRACE = 1  # seconds that requests get to end once the server is stopped
_LOCAL = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Address:
    """A bound socket, and how it is reached. names: hosts by which this machine may address it."""

    listener: socket.socket
    url: str
    is_local: bool
    names: frozenset[str] = frozenset(_LOCAL)


def bind(host: str, port: int) -> Address:
    """Bind a TCP socket; port 0 takes a free one. Raises HoldfastError if it cannot be bound."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, place = addresses[0]
        # Connections that arrive before the server runs wait here.
        listener = socket.create_server(place[:2], family=family, backlog=_CONNECTIONS)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HoldfastError(
            f"{host} port {port}: cannot be listened on ({reason}); choose another with --host "
            "and --port"
        ) from None
    ip, used_port = listener.getsockname()[:2]
    interface = ipaddress.ip_address(ip.partition("%")[0])
    # Not every browser opens the address of all interfaces.
    url_host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(ip, host)
    names = {*_LOCAL, ip, host.lower().rstrip(".")}
    url_host = f"[{url_host}]" if ":" in url_host else url_host
    url = f"http://{url_host}:{used_port}"
    return Address(listener, url, interface.is_loopback, frozenset(names))


def host_name(given: str) -> str:
    """A name given to ``--allow-host``, normalised; HoldfastError if it is no host's name."""
    name = given.strip().lower().rstrip(".")
    if not name or any(symbol in "/:@ ?#*" for symbol in name) or not name.isascii():
        raise HoldfastError(
            f"--allow-host: {given!r:.80} is no name of a host; give it without scheme and port, "
            "like memory.example.org"
        )
    return name


def key_for(address: Address, given: str | None, *, proxied: bool = False) -> str | None:
    """The key that clients need: the given one, or a new one if others can reach the server."""
    if given is not None and not (given.isascii() and given.isprintable() and given.strip()):
        raise HoldfastError("HOLDFAST_API_KEY: holds no key; use printable ASCII, or unset it")
    if given is not None:
        return given.strip()
    return None if address.is_local and not proxied else secrets.token_urlsafe(24)


def serve(
    service: ServedMemory,
    address: Address,
    announce: Callable[[], None] = lambda: None,
    *,
    name: str,
    key: str | None,
    teach: bool,
    idle: IdleConsolidation | None = None,
    proxied: Collection[str] = (),
) -> None:
    """Serve until SIGINT or SIGTERM, which is raised again at the end.

    announce: called before the first request; name, teach, idle: as for :func:`application`; key,
    proxied: as for :class:`Guard`.
    """
    served = application(service, name, teach=teach, idle=idle)
    routes: Routes = served.state.routes
    guarded = Guard(
        served,
        key=key,
        hosts={*address.names, *proxied} if address.is_local else None,
        proxied=proxied,
        open_paths=OPEN_PATHS,
    )
    config = uvicorn.Config(
        guarded,
        http=Connection,
        ws="none",
        lifespan="on",
        log_level="warning",
        use_colors=False,
        access_log=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE,
    )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            routes.end()  # all who wait for an answer get an error
            await super().shutdown(sockets)

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            super().handle_exit(sig, frame)
            self.force_exit = False  # a second Ctrl-C cuts nothing off: the end takes two seconds

    server = Server(config)
    try:
        # Signals are captured from here on, not only once the server runs: an exception that a
        # signal raises during an import may be swallowed there.
        with server.capture_signals():
            announce()
            server.run(sockets=[address.listener])
    finally:
        if routes.is_stuck:  # the model's step, which writes nothing, would keep it alive
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
