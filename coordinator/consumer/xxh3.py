"""XXH3, 64 bits, without a seed: the hash by which Kafka notices that the topics of a group have changed.

The length of the input chooses one of six ways; long inputs are read in stripes of 64 bytes, each into eight lanes.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_MASK: Final = (1 << 64) - 1
_MASK_32: Final = (1 << 32) - 1
_PRIME_32: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME_64: Final = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_PRIME_MX1: Final = 0x165667919E3779F9
_PRIME_MX2: Final = 0x9FB21C651E98DF25
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES: Final = 64
_SECRET_STEP_BYTES: Final = 8  # by which the secret moves from stripe to stripe
_STRIPES_OF_BLOCK: Final = (len(_SECRET) - _STRIPE_BYTES) // _SECRET_STEP_BYTES
_START: Final = (_PRIME_32[2], *_PRIME_64[:4], _PRIME_32[1], _PRIME_64[4], _PRIME_32[0])
_MEDIUM_MAX: Final = 240
_MEDIUM_SECRET_OFFSET: Final = 3
_LAST_SECRET_OFFSET: Final = 17
_MERGE_SECRET_OFFSET: Final = 11
_LAST_STRIPE_SECRET_OFFSET: Final = 7

_UINT32: Final = Struct("<I").unpack_from
_UINT64: Final = Struct("<Q").unpack_from
_TWO: Final = Struct("<QQ").unpack_from
_LANES: Final = Struct("<8Q").unpack_from


def xxh3_64(data: bytes) -> int:
    """The hash as an unsigned number."""
    size = len(data)
    if size > _MEDIUM_MAX:
        return _long(data)
    if size > 16:
        return _medium(data)
    if size > 8:
        low, high = _TWO(_SECRET, 24)
        first = _read(data, 0) ^ low ^ high
        low, high = _TWO(_SECRET, 40)
        last = _read(data, size - 8) ^ low ^ high
        swapped = int.from_bytes(first.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + last + _folded(first, last))
    if size >= 4:
        return _short(data)
    low, high = _TWO(_SECRET, 56)
    if size == 0:
        return _avalanche_64(low ^ high)
    (one,) = _UINT32(_SECRET, 0)
    (two,) = _UINT32(_SECRET, 4)
    return _avalanche_64((data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8) ^ one ^ two)


def _short(data: bytes) -> int:
    size = len(data)
    (first,) = _UINT32(data, 0)
    (last,) = _UINT32(data, size - 4)
    low, high = _TWO(_SECRET, 8)
    mixed: int = (last + (first << 32)) ^ low ^ high
    mixed ^= _rotated(mixed, 49) ^ _rotated(mixed, 24)
    mixed = mixed * _PRIME_MX2 & _MASK
    mixed ^= (mixed >> 35) + size
    mixed = mixed * _PRIME_MX2 & _MASK
    return mixed ^ mixed >> 28


def _medium(data: bytes) -> int:
    """17 to 240 bytes."""
    size = len(data)
    total = size * _PRIME_64[0]
    if size <= 128:
        for pair in range((size - 1) // 32, -1, -1):
            total += _mixed(data, 16 * pair, 32 * pair) + _mixed(data, size - 16 * (pair + 1), 32 * pair + 16)
        return _avalanche(total)
    for part in range(8):
        total += _mixed(data, 16 * part, 16 * part)
    total = _avalanche(total)
    for part in range(8, size // 16):
        total += _mixed(data, 16 * part, 16 * (part - 8) + _MEDIUM_SECRET_OFFSET)
    return _avalanche(total + _mixed(data, size - 16, 136 - _LAST_SECRET_OFFSET))


def _long(data: bytes) -> int:
    size = len(data)
    lanes = list(_START)
    secrets = [_LANES(_SECRET, _SECRET_STEP_BYTES * step) for step in range(_STRIPES_OF_BLOCK)]
    scramble = _LANES(_SECRET, len(_SECRET) - _STRIPE_BYTES)
    step = 0
    for at in range(0, size - 1 - (size - 1) % _STRIPE_BYTES, _STRIPE_BYTES):
        if step == _STRIPES_OF_BLOCK:
            lanes = [((lane ^ lane >> 47 ^ key) * _PRIME_32[0]) & _MASK for lane, key in zip(lanes, scramble, strict=True)]
            step = 0
        _add_stripe(lanes, _LANES(data, at), secrets[step])
        step += 1
    if step == _STRIPES_OF_BLOCK:
        lanes = [((lane ^ lane >> 47 ^ key) * _PRIME_32[0]) & _MASK for lane, key in zip(lanes, scramble, strict=True)]
    _add_stripe(lanes, _LANES(data, size - _STRIPE_BYTES), _LANES(_SECRET, len(_SECRET) - _STRIPE_BYTES - _LAST_STRIPE_SECRET_OFFSET))
    total = size * _PRIME_64[0]
    for pair in range(4):
        low, high = _TWO(_SECRET, _MERGE_SECRET_OFFSET + 16 * pair)
        total += _folded(lanes[2 * pair] ^ low, lanes[2 * pair + 1] ^ high)
    return _avalanche(total)


def _add_stripe(lanes: list[int], data: tuple[int, ...], secret: tuple[int, ...]) -> None:
    for lane in range(8):
        value = data[lane]
        key = value ^ secret[lane]
        lanes[lane ^ 1] += value
        lanes[lane] += (key & _MASK_32) * (key >> 32)
    for lane in range(8):
        lanes[lane] &= _MASK


def _mixed(data: bytes, at: int, secret_at: int) -> int:
    first, second = _TWO(data, at)
    low, high = _TWO(_SECRET, secret_at)
    return _folded(first ^ low, second ^ high)


def _read(data: bytes, at: int) -> int:
    value: int = _UINT64(data, at)[0]
    return value


def _folded(first: int, second: int) -> int:
    product = first * second
    return (product ^ product >> 64) & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _avalanche(value: int) -> int:
    value &= _MASK
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME_64[1] & _MASK
    value ^= value >> 29
    value = value * _PRIME_64[2] & _MASK
    return value ^ value >> 32
