"""Entry of the workers that the sandbox tests start: does what the message says."""

import ctypes
import os
import socket
import threading
import time


def main(channel):
    message = channel.receive()
    action = message["do"]
    try:
        answer = ACTIONS[action](message)
    except BaseException as error:
        channel.send({"error": type(error).__name__})
        return 0
    channel.send({"answer": answer})
    return message.get("exit_code", 0)


def _fork(_):
    if os.fork() == 0:
        os._exit(0)


def _threads(message):
    for _ in range(message["count"]):
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
    time.sleep(30)


def _spin(_):
    while True:
        pass


def _sleep(_):
    time.sleep(30)


def _touch(message):
    with open(message["path"], "w") as file:
        file.write("x")


def _read(message):
    with open(message["path"]) as file:
        return file.read(100)


def _fill(_):
    for number in range(1000):
        with open(f"waste_{number}", "wb") as file:
            file.write(bytes(8 << 20))


ACTIONS = {
    "hello": lambda message: os.getcwd(),
    "environment": lambda message: dict(os.environ),
    "fork": _fork,
    "exec": lambda message: os.execv("/bin/true", ["true"]),
    "socket": lambda message: socket.socket().close(),
    "kill": lambda message: os.kill(message["pid"], 0),
    "ptrace": lambda message: ctypes.CDLL(None).ptrace(16, message["pid"], 0, 0),
    "touch": _touch,
    "read": _read,
    "unlink": lambda message: os.unlink(message["path"]),
    "allocate": lambda message: len(bytearray(message["mib"] << 20)),
    "threads": _threads,
    "spin": _spin,
    "sleep": _sleep,
    "fill": _fill,
    "print": lambda message: print("x" * message["count"], flush=True),
    "exit": lambda message: os._exit(message["exit_code"]),
    "open_many": lambda message: len([os.open("/dev/null", 0) for _ in range(message["count"])]),
}
