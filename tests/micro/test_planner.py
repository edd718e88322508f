"""Places in the arena: what is needed at one time lies apart, but for overlaps that were allowed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rudel.micro.emit import Overlap
from rudel.micro.planner import Buffer, plan_memory

_BUFFERS = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(-1, 12), st.integers(0, 5)).map(
        lambda t: Buffer(t[0], t[1], t[1] + t[2])
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(_BUFFERS)
def test_buffers_needed_together_lie_apart(buffers):
    plan = plan_memory(buffers, {}, trials=20)
    for a, first in enumerate(buffers):
        assert plan.offsets[a] % 4 == 0
        assert 0 <= plan.offsets[a] <= plan.size - first.size
        for b in range(a):
            second = buffers[b]
            if first.first <= second.last and second.first <= first.last:
                apart = plan.offsets[a] - plan.offsets[b]
                assert apart >= second.size or -apart >= first.size


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(8, 4000), min_size=3, max_size=12), st.data())
def test_a_chain_overlaps_only_as_allowed(sizes, data):
    buffers = [Buffer(size, number - 1, number) for number, size in enumerate(sizes)]
    leads = [data.draw(st.none() | st.integers(-200, 4000)) for _ in sizes[1:]]
    overlaps = {(n, n + 1): Overlap(lead=lead) for n, lead in enumerate(leads) if lead is not None}
    plan = plan_memory(buffers, overlaps, trials=40)
    for number, lead in enumerate(leads):
        apart = plan.offsets[number] - plan.offsets[number + 1]
        disjoint = apart >= sizes[number + 1] or -apart >= sizes[number]
        assert disjoint or (lead is not None and apart >= lead)
    assert plan.size <= plan_memory(buffers, {}, trials=40).size


def test_memory_is_shared_in_place():
    buffers = [Buffer(1000, -1, 0), Buffer(1000, 0, 1)]
    assert plan_memory(buffers, {}).size == 2000
    assert plan_memory(buffers, {(0, 1): Overlap(lead=0)}).size == 1000
    assert plan_memory(buffers, {(0, 1): Overlap(lead=100)}).size == 1100
    assert plan_memory(buffers, {(0, 1): Overlap(together=True)}).size == 1000


def test_what_is_read_later_is_not_overwritten():
    buffers = [Buffer(1000, -1, 1), Buffer(1000, 0, 1)]
    assert plan_memory(buffers, {(0, 1): Overlap(lead=0)}).size == 2000
