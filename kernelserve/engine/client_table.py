"""Who is connected to the engine."""

from __future__ import annotations

from dataclasses import dataclass

from kernelserve.process_identity import is_process_alive
from kernelserve.protocol import ClientHello

__all__ = ["Client", "ClientTable"]


@dataclass(frozen=True, slots=True)
class Client:
    """One connected client. `identity` is its name on the ROUTER socket."""

    index: int
    identity: bytes
    address: str
    pid: int
    pid_start_time: float


class ClientTable:
    """Clients by index and by socket identity.

    Only the input thread changes it. `indices` is replaced as a whole, so any thread may read it. An index is never
    used twice: a late output of a client that is gone reaches nobody else.
    """

    def __init__(self) -> None:
        self._clients: dict[int, Client] = {}
        self._by_identity: dict[bytes, Client] = {}
        self._next_index = 0
        self.indices: tuple[int, ...] = ()

    def add(self, identity: bytes, hello: ClientHello) -> Client:
        """Register a client and give it an index."""
        client = Client(
            self._next_index, identity, hello.output_address, hello.pid, hello.pid_start_time
        )
        self._next_index += 1
        self._clients[client.index] = client
        self._by_identity[identity] = client
        self.indices = tuple(self._clients)
        return client

    def remove(self, index: int) -> Client | None:
        """Forget a client. Returns it, None if it was not there."""
        client = self._clients.pop(index, None)
        if client is not None:
            del self._by_identity[client.identity]
            self.indices = tuple(self._clients)
        return client

    def by_identity(self, identity: bytes) -> Client | None:
        """Return the client that speaks with this identity."""
        return self._by_identity.get(identity)

    def find_gone(self) -> list[Client]:
        """Return the clients whose process has ended without a word."""
        return [
            client
            for client in self._clients.values()
            if not is_process_alive(client.pid, client.pid_start_time)
        ]
