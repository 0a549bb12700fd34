"""Messages between a supervisor and its child: a length, then JSON; no code ever travels."""

import array
import json
import socket
import struct
from typing import Any

Message = dict[str, Any]
MAX_BYTES = 32 << 20


class Channel:
    """The child's end. Blocking; one message at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, message: Message) -> None:
        self._sock.sendall(encode(message))

    def receive(self) -> Message | None:
        """The next message, None once the supervisor has gone."""
        head = self._exactly(4)
        if head is None:
            return None
        body = self._exactly(struct.unpack("<I", head)[0])
        return None if body is None else json.loads(body)

    def _exactly(self, count: int) -> bytes | None:
        out = bytearray()
        while len(out) < count:
            piece = self._sock.recv(count - len(out))
            if not piece:
                return None
            out += piece
        return bytes(out)


def encode(message: Message) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack("<I", len(body)) + body


class Decoder:
    """The supervisor's end: takes bytes as they come, and trusts none of them."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Message | None:
        """A whole message, if there is one. Raises ValueError for what no honest child sends."""
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack_from("<I", self._buffer)
        if length > MAX_BYTES:
            raise ValueError(f"a message of {length} bytes")
        if len(self._buffer) < 4 + length:
            return None
        body = bytes(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        try:
            message = json.loads(body)
        except RecursionError as error:
            raise ValueError("a message nested too deeply") from error
        if not isinstance(message, dict):
            raise ValueError("a message that is no object")
        return message


def send_with_descriptors(sock: socket.socket, message: Message, descriptors: list[int]) -> None:
    """One datagram with open files attached."""
    rights = array.array("i", descriptors)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
    sock.sendmsg([json.dumps(message).encode()], ancillary)


def receive_with_descriptors(
    sock: socket.socket, limit: int = 65536
) -> tuple[Message | None, list[int]]:
    """The counterpart of `send_with_descriptors`; (None, []) at the end."""
    data, ancillary, _, _ = sock.recvmsg(limit, socket.CMSG_SPACE(16 * 4))
    rights = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            rights.frombytes(payload[: len(payload) - len(payload) % rights.itemsize])
    return (json.loads(data) if data else None), list(rights)
