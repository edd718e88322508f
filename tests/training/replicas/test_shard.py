"""Every example of a replica is seen once per pass, in an order that nothing but its position decides."""

from collections import Counter

import numpy as np
import pytest

from rudel.shipping.host_examples import Leaf, Shard, cut, rows_of

LEAVES = [Leaf((3,), "float32"), Leaf((), "int32")]


def made(pieces: list[tuple[int, int]], batch_size: int = 8, **changed: object) -> Shard:
    settings = {"examples": 100, "leaves": LEAVES, "batch_size": batch_size, "seed": 1, "number": 0, "shuffle": True}
    shard = Shard(**settings | changed)  # type: ignore[arg-type]
    shard.own(pieces, 0)
    return shard


@pytest.mark.parametrize("batch_size", [1, 7, 8, 64])
def test_a_pass_sees_every_example_of_the_pieces_once(batch_size: int) -> None:
    shard = made([(0, 9), (40, 57)], batch_size)
    assert len(shard) == 26
    own = [*range(9), *range(40, 57)]
    order = shard.batches(26 * 3).reshape(-1)
    for begin in range(0, len(order) - 25, 26):
        assert sorted(order[begin : begin + 26]) == own
    assert not np.array_equal(order[:26], order[26:52])


def test_how_batches_are_asked_for_changes_nothing() -> None:
    one, other = made([(10, 33)]), made([(10, 33)])
    at_once = one.batches(60)
    in_parts = [other.batches(count) for count in (1, 2, 17, 0, 30, 10)]
    assert np.array_equal(at_once, np.concatenate(in_parts))
    assert at_once.dtype == np.int32


def test_replicas_seeds_and_rounds_of_the_change_have_orders_of_their_own() -> None:
    orders = []
    for settings, since in (({}, 0), ({"number": 1}, 0), ({"seed": 2}, 0), ({}, 5)):
        shard = made([(0, 100)], **settings)
        if since:
            shard.own([(0, 50)], since - 1)
            shard.own([(0, 100)], since)
        orders.append(shard.batches(10).tobytes())
    assert len(set(orders)) == len(orders)


def test_a_replica_that_begins_anew_goes_on_where_no_one_has_been() -> None:
    """A training that is resumed in round 7 does not see again what it saw from round 0."""
    first, resumed = made([(0, 100)]), Shard(100, LEAVES, 8, 1, 0, True)
    resumed.own([(0, 100)], 7)
    assert not np.array_equal(first.batches(12), resumed.batches(12))


def test_new_pieces_are_seen_at_once_and_old_ones_no_more() -> None:
    shard = made([(0, 50)])
    shard.batches(3)
    shard.own([(50, 60), (0, 10)], 3)
    seen = Counter(shard.batches(10).reshape(-1).tolist())
    assert seen == Counter(dict.fromkeys((*range(10), *range(50, 60)), 4))


def test_the_same_pieces_again_change_nothing() -> None:
    one, other = made([(0, 50)]), made([(0, 50)])
    for shard in (one, other):
        shard.batches(3)
    other.own([(0, 50)], 3)
    assert np.array_equal(one.batches(20), other.batches(20))


def test_without_shuffling_examples_keep_their_order() -> None:
    assert made([(3, 6), (10, 12)], 2, shuffle=False).batches(4).reshape(-1).tolist() == [3, 4, 5, 10, 11, 3, 4, 5]


def test_rows_stand_where_they_stand_in_the_whole() -> None:
    shard = made([])
    x, y = np.arange(300, dtype=np.float32).reshape(100, 3), np.arange(100, dtype=np.int32)
    for piece in ((90, 100), (0, 5)):
        shard.write(piece, rows_of([x, y], piece, np.arange(100)))
    for piece in ((90, 100), (0, 5)):
        assert np.array_equal(shard.arrays[0][slice(*piece)], x[slice(*piece)])
        assert np.array_equal(shard.arrays[1][slice(*piece)], y[slice(*piece)])
    assert all(array.ctypes.data % 64 == 0 for array in shard.arrays)


@pytest.mark.parametrize(
    "rows",
    [
        [np.zeros((4, 3), np.float32), np.zeros(5, np.int32)],
        [np.zeros((5, 3), np.float64), np.zeros(5, np.int32)],
        [np.zeros((5, 3), np.float32)],
    ],
)
def test_rows_of_another_data_set_are_refused(rows: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"do not fit|zip"):
        made([]).write((0, 5), rows)
    with pytest.raises(ValueError, match="do not fit"):
        made([]).write((98, 103), [np.zeros((5, 3), np.float32), np.zeros(5, np.int32)])


@pytest.mark.parametrize(
    ("examples", "row_bytes", "workers"), [(1, 4, 1), (3, 1, 4), (50_000, 3072, 4), (10**6, 1, 40)]
)
def test_pieces_cover_everything_once(examples: int, row_bytes: int, workers: int) -> None:
    pieces = cut(examples, row_bytes, workers)
    assert [first for first, _ in pieces] == [0, *(last for _, last in pieces[:-1])]
    assert pieces[-1][1] == examples
    sizes = [last - first for first, last in pieces]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) * row_bytes <= 4e6 + row_bytes
    assert len(pieces) >= min(examples, 16 * workers)
