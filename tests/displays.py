"""Displays of trainings that tests look at."""

from typing import Any

from rudel.session.training_display import Display


class Shown(Display):
    """A live display that remembers how much had arrived, and what it had heard of rounds when the bar first moved."""

    live = True

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []
        self.rounds = 0
        self.rounds_at_first: int | None = None

    def sending(self, done: int, total: int) -> None:
        self.sent.append((done, total))

    def round(self, closed: Any) -> None:
        self.rounds += 1

    def advance(self, step: int, logs: dict[str, float], seconds: float) -> None:
        self.rounds_at_first = self.rounds if self.rounds_at_first is None else self.rounds_at_first
