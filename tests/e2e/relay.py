"""A TCP relay on loopback. When cut, it still accepts connections and bytes, but forwards none."""
import contextlib
import socket
import threading


class Relay:
    def __init__(self, port):
        self.to = ("127.0.0.1", port)
        self.door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.door.getsockname()[1]}"
        self.passes, self.open = True, set()
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.door.accept()[0]
            except OSError:
                return  # closed
            threading.Thread(target=self.begin, args=(near,), daemon=True).start()

    def begin(self, near):
        """Forwards one connection in both directions, until one of them ends."""
        with self.lock:
            self.open.add(near)
            passes = self.passes
        try:
            if not passes:
                while near.recv(65536):
                    pass
                return
            with socket.create_connection(self.to) as far:
                with self.lock:
                    self.open.add(far)
                back = threading.Thread(target=self.carry, args=(far, near), daemon=True)
                back.start()
                self.carry(near, far)
                back.join()
        except OSError:
            pass  # the destination is down
        finally:
            near.close()

    def carry(self, source, to):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.passes:
                    to.sendall(data)
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        self.passes = False

    def mend(self):
        """New connections pass. Earlier ones are closed: their dropped bytes cannot be
        recovered."""
        with self.lock:
            self.passes = True
            was, self.open = self.open, set()
        for end in was:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.door.close()
        self.mend()
