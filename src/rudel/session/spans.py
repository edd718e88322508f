"""Spans of steps, at whose ends a training is evaluated: epochs, or a fixed number of steps.

What Keras calls an epoch for its callbacks is a span, as with `steps_per_epoch` in Keras' own `fit`. Which examples a
step sees does not depend on spans, so neither do the weights.
"""

from dataclasses import dataclass

from rudel.loop.schedule import Schedule


@dataclass(frozen=True)
class Spans:
    """Spans of a training.

    Args:
        schedule: of its examples.
        every: steps of a span; None for epochs.

    >>> spans = Spans(Schedule(examples=64, batch_size=8, total_steps=20), every=6)
    >>> spans.count, spans.number(6), spans.last(1), spans.last(3), spans.epoch(12)
    (4, 1, 12, 20, 1.5)
    """

    schedule: Schedule
    every: int | None = None

    @property
    def length(self) -> int:
        """Steps of a full span."""
        return self.every or self.schedule.steps_per_epoch

    @property
    def count(self) -> int:
        """The number of spans, of which the last may be cut short."""
        return -(-self.schedule.total_steps // self.length)

    def number(self, step: int) -> int:
        """The span (from 0) in which the training is when so many steps are done."""
        return step // self.length

    def first(self, number: int) -> int:
        """The number of steps done when this span begins."""
        return number * self.length

    def last(self, number: int) -> int:
        """The number of steps done when this span ends."""
        return min((number + 1) * self.length, self.schedule.total_steps)

    def ended(self, before: int, after: int) -> int | None:
        """The span (the last, if there are several) that ends by steps from `before` to `after`; None if none does.

        >>> spans = Spans(Schedule(examples=64, batch_size=8, total_steps=20), every=6)
        >>> spans.ended(0, 5), spans.ended(0, 6), spans.ended(6, 11), spans.ended(3, 14), spans.ended(18, 22)
        (None, 0, None, 1, 3)
        """
        after = min(after, self.schedule.total_steps)
        span = self.number(after - 1)
        span -= after < self.last(span)
        return span if span >= self.number(before) else None

    def epoch(self, step: int) -> int | float:
        """The number of epochs that users see for a span that ended after this step.

        Where spans are epochs, it is the number of the epoch, from 1, also of one that is cut short.
        """
        if self.every is None:
            return self.number(max(step, 1) - 1) + 1
        return round(step / self.schedule.steps_per_epoch, 6)
