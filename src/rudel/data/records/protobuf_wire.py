"""The wire format of protobuf (protobuf.dev/programming-guides/encoding), as far as examples need it.

Everything is a field: a tag, which is the field's number and the kind of what follows, and then a varint, 4 or 8 bytes,
or a length and as many bytes.
"""


def field(number: int, content: bytes) -> bytes:
    """A field that has a length."""
    return bytes((number << 3 | 2,)) + varint_of(len(content)) + content


def varint_of(value: int) -> bytes:
    """A number from 0 to 2^64 - 1, 7 bits a byte, lowest first; the highest bit says that more follow."""
    if value < 0x80:
        return bytes((value,))
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def varint(content: bytes, position: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    octet = content[position]
    position += 1
    if octet < 0x80:
        return octet, position
    value, shift = octet & 0x7F, 7
    while octet >= 0x80:
        octet = content[position]
        position += 1
        value |= (octet & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise ValueError("a number of more than 10 bytes")
    return value & 0xFFFFFFFFFFFFFFFF, position


def spans(content: bytes, position: int, end: int, number: int) -> list[tuple[int, int]]:
    """Where the contents of all fields with this number are, of those that have a length."""
    wanted, found = number << 3 | 2, []
    while position < end:
        tag, begin, position = next_field(content, position, end)
        if tag == wanted:
            found.append((begin, position))
    return found


def next_field(content: bytes, position: int, end: int) -> tuple[int, int, int]:
    """The tag of a field, where its content begins, and the place behind it."""
    tag = content[position]
    position += 1
    if tag >= 0x80:
        tag, position = varint(content, position - 1)
    kind = tag & 7
    if kind == 2:
        length = content[position]
        position += 1
        if length >= 0x80:
            length, position = varint(content, position - 1)
        begin, position = position, position + length
    elif kind == 0:
        begin, position = position, varint(content, position)[1]
    elif kind == 1:
        begin, position = position, position + 8
    elif kind == 5:
        begin, position = position, position + 4
    else:
        raise ValueError("a kind of field that is none")
    if position > end or tag < 8:
        raise ValueError("a field that goes beyond what it is part of")
    return tag, begin, position
