"""Torch files whose pickle, archive or bytes are odd or hostile."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from random import Random
from typing import Any

from tests.fuzz import odd

GLOBALS = (
    b"os\nsystem",
    b"posix\nsystem",
    b"builtins\neval",
    b"builtins\nexec",
    b"builtins\ngetattr",
    b"subprocess\nPopen",
    b"argparse\nNamespace",
    b"numpy\n_core.multiarray._reconstruct",
    b"torch\nload",
    b"torch.hub\nload",
    b"torch.nn.modules.linear\nLinear",
    b"torch._utils\n_rebuild_tensor_v2",
    b"torch._utils\n_rebuild_qtensor",
    b"torch._utils\n_rebuild_sparse_tensor",
    b"torch._tensor\n_rebuild_from_type_v2",
    b"collections\nOrderedDict",
    b"\x1b[31m\n\xe2\x80\xae",
)
CALLED = b"c%s\n(X\x04\x00\x00\x00trueltR."
OPCODES = tuple(getattr(pickle, name) for name in dir(pickle) if name.isupper())
_BYTES = tuple(code for code in OPCODES if isinstance(code, bytes) and len(code) == 1)


def mutated(random: Random, raw: bytes) -> bytes:
    """A torch file made from a sound one."""
    if not raw.startswith(b"PK"):
        return _pickle(random, raw) if random.random() < 0.8 else odd.damaged(random, raw)
    kind = random.random()
    if kind < 0.15:
        return odd.damaged(random, raw)
    members = _members(raw)
    if kind < 0.6:
        for name in members:
            if name.endswith("data.pkl"):
                members[name] = _pickle(random, members[name])
        return _zipped(random, members, plain=True)
    if kind < 0.9:
        _odd_members(random, members)
        return _zipped(random, members, plain=random.random() < 0.5)
    return _hostile(random)


def _members(raw: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _pickle(random: Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(max(len(data) - 1, 1))
        kind = random.randrange(7)
        if kind == 0:
            data[at : at + 1] = random.choice(_BYTES)
        elif kind == 1:
            data[at:at] = random.choice(_BYTES)
        elif kind == 2:
            data[at:at] = b"c" + random.choice(GLOBALS) + b"\n"
        elif kind == 3:
            data = bytearray(odd.damaged(random, bytes(data)))
        elif kind == 4:
            data[at:at] = b"K" + bytes([random.randrange(256)])
        elif kind == 5:
            _number(random, data)
        else:
            data[-1:] = b"c" + random.choice(GLOBALS) + b"\n)R."
        if not data:
            break
    return bytes(data)


def _number(random: Random, data: bytearray) -> None:
    """Another number where one stands: sizes, offsets and strides are numbers."""
    places = [at for at in range(len(data) - 5) if data[at] in b"KMJ"]
    if not places:
        return
    at = random.choice(places)
    width = {ord("K"): 1, ord("M"): 2, ord("J"): 4}[data[at]]
    large = random.choice((0, 1, 2, 2**31 - 1, -1, -(2**31)))
    new = b"J" + struct.pack("<i", large)
    if random.random() < 0.3:
        new = b"\x8a\x08" + struct.pack("<q", random.choice((2**62, -(2**62), 2**40, 10**9)))
    data[at : at + 1 + width] = new


def _odd_members(random: Random, members: dict[str, bytes]) -> None:
    name = random.choice(list(members))
    kind = random.randrange(7)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[odd.text(random).replace("\x00", "") or "x"] = members.pop(name)
    elif kind == 2:
        members[name] = members[name][: len(members[name]) // 2]
    elif kind == 3:
        members[name] = odd.damaged(random, members[name])
    elif kind == 4:
        members[f"{name.partition('/')[0]}/byteorder"] = random.choice((b"big", b"", b"odd"))
    elif kind == 5:
        members[f"{name.partition('/')[0]}/constants.pkl"] = b""
    else:
        members[f"../../{name}"] = members[name]


def _zipped(random: Random, members: dict[str, bytes], plain: bool) -> bytes:
    stream = io.BytesIO()
    packed = zipfile.ZIP_STORED if plain else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(stream, "w", packed) as archive:
        for name, data in members.items():
            archive.writestr(_encodable(name), data)
        if not plain and random.random() < 0.5:
            archive.writestr("archive/data/bomb", bytes(2**22))
    raw = stream.getvalue()
    return odd.damaged(random, raw) if random.random() < 0.1 else raw


def _encodable(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _hostile(random: Random) -> bytes:
    """Small pickles made to be large, deep, or code."""
    kind = random.randrange(5)
    if kind == 0:
        return b"\x80\x02" + CALLED % random.choice(GLOBALS)
    if kind == 1:
        depth = random.choice((50, 1000, 30_000))
        return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."
    if kind == 2:
        return b"\x80\x04" + b"\x8d" + struct.pack("<Q", random.choice((2**31, 2**62))) + b"x."
    if kind == 3:
        return _doubling(random.choice((10, 30, 200)))
    made: Any = {"model": odd.value(random), "config": odd.value(random)}
    try:
        return pickle.dumps(made, protocol=2)
    except RecursionError:  # a value that is nested deeply
        return pickle.dumps({"model": odd.text(random)}, protocol=2)


def _doubling(times: int) -> bytes:
    """A list that holds the one before it twice: small in a file, endless when it is copied."""
    count = min(times, 250)
    steps = b"".join(b"](h%ch%ce" % (n, n) + b"q%c0" % (n + 1) for n in range(count))
    return b"\x80\x02]q\x000" + steps + b"}X\x06\x00\x00\x00configh%cs." % count
