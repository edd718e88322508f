"""Displays of trainings that tests look at."""

from rudel.session.training_display import Display


class Shown(Display):
    """A live display that remembers how much had arrived."""

    live = True

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []

    def sending(self, done: int, total: int) -> None:
        self.sent.append((done, total))
