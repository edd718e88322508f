"""What replicas and the coordinator tell each other."""

from dataclasses import fields
from typing import Any

import pytest

from rudel.replicas.replica_messages import Answer, Merge, Snapshot


@pytest.mark.parametrize("kind", [Snapshot, Merge, Answer])
def test_the_payload_of_a_message_is_all_its_bytes(kind: type[Snapshot | Merge | Answer]) -> None:
    sizes = {field.name: 2**place for place, field in enumerate(fields(kind)) if "bytes" in str(field.type)}
    others: dict[str, Any] = {field.name: 0 for field in fields(kind) if field.name not in sizes}
    message = kind(**{name: bytes(size) for name, size in sizes.items()}, **others)
    assert message.nbytes == sum(sizes.values()) > 0


def test_a_snapshot_without_slots_has_the_payload_of_the_rest() -> None:
    assert Snapshot(b"12", b"345").nbytes == 5
