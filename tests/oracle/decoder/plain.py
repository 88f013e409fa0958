"""Bytes, hashes and seals, used by all other files here."""
import hashlib
import json
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from nacl import bindings
from nacl.exceptions import CryptoError

RANGE = 4 << 20


class Differs(Exception):
    """A difference from the pages or the expectations."""


class Unreadable(Differs):
    """A file beside the run, written by hand or by a tool, is invalid."""


def need(ok, text):
    """Raises Differs with the text unless ok."""
    if not ok:
        raise Differs(text)


def read_text(path):
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as why:
        raise Unreadable(f"{path}: no text: {why}") from None


def read_json(path, form):
    """The JSON value of a file, which must have this form: a type; {name: form} for an object with
    at least these members; [form] for a list; {str: form} for an object with any names."""
    try:
        value = json.loads(read_text(path))
    except ValueError as why:
        raise Unreadable(f"{path}: no JSON: {why}") from None
    check_form(value, form, str(path))
    return value


def check_form(value, form, name):
    """Raises Unreadable unless a JSON value has the form. An int is not negative."""
    kind = form if isinstance(form, type) else type(form)
    good = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
    if not good or kind is int and value < 0:
        raise Unreadable(f"{name}: {json.dumps(value)[:60]} where {said(kind)} is expected")
    if isinstance(form, list):
        for at, item in enumerate(value):
            check_form(item, form[0], f"{name}[{at}]")
    elif isinstance(form, dict):
        for key, below in form.items():
            for found in value if key is str else [key]:
                if found not in value:
                    raise Unreadable(f"{name}: lacks {found}")
                check_form(value[found], below, f"{name}.{found}")


def said(kind):
    """JSON's word for a type."""
    return {dict: "an object", list: "a list", str: "a string", int: "a count"}[kind]


def keep(_what, _where, data):
    """The hook of a plain verification, which changes nothing; tamper.py has one that does."""
    return data


def digest_of(*parts, key=b""):
    """H of the joined parts: BLAKE2b with 32 bytes of output, keyed where a key is given."""
    state = hashlib.blake2b(digest_size=32, key=key)
    for part in parts:
        state.update(part)
    return state.digest()


def range_digests(data):
    """The joined H of each range of 4 MiB of the data."""
    return b"".join(digest_of(data[at:at + RANGE]) for at in range(0, len(data), RANGE))


def crc_table():
    """The byte table of the reflected CRC-32C (Castagnoli)."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82f63b78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    """CRC-32C of the data."""
    crc = 0xffffffff
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xffffffff


class Cursor:
    """Reads fields one after another and refuses to read over the end."""

    def __init__(self, data, name):
        self.data, self.name, self.at = data, name, 0

    def take(self, size):
        """The next bytes."""
        need(self.at + size <= len(self.data), f"{self.name}: ends at byte {len(self.data)}, "
             f"{size} bytes are expected at {self.at}")
        self.at += size
        return self.data[self.at - size:self.at]

    def read(self, form):
        """The next fields in struct's format; a single one as a plain value."""
        values = struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))
        return values[0] if len(values) == 1 else values

    def array(self, count):
        """A tuple of count u64."""
        return struct.unpack(f"<{count}Q", self.take(8 * count))

    def more(self):
        """Whether bytes are left."""
        return self.at < len(self.data)

    def end(self):
        """Refuses bytes that are left over."""
        need(self.at == len(self.data), f"{self.name}: {len(self.data) - self.at} bytes left over")


def unseal(key, cipher, nonce, sealed, head, name):
    """Opens ciphertext and tag with a subkey."""
    need(cipher in (1, 2), f"{name}: unknown cipher {cipher}")
    try:
        if cipher == 1:
            return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(sealed, head, nonce, key)
        return AESGCM(key).decrypt(nonce[:12], sealed, head)
    except (CryptoError, InvalidTag):
        raise Differs(f"{name}: the seal does not open") from None
