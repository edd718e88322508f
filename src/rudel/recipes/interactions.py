"""Made-up interactions of users with items, drawn from probabilities that are known.

So it is known, too, how good a recommender can be: `best_possible` ranks the catalogue as somebody would who knows the
probabilities, and of each user all that a training sees. No ranking finds more in expectation (Bayes-optimal).

A user has one of some tastes. A taste t likes an item i by `exp(w_i + a_t . b_i)`: w_i falls as the logarithm of the
item's rank in popularity (Zipf's law), and a_t and b_i are short random vectors.
"""

from dataclasses import dataclass

import numpy as np

_TRAITS = 8
_LIKING = 3.0
_ZIPF = 0.8
_FEWEST_IN_HISTORY = 3
_AT_ONCE = 2**24


@dataclass(frozen=True, eq=False)
class Preferences:
    """Items and tastes.

    Args:
        popularity: what all tastes think of an item, (items,).
        tastes: what a taste likes, (tastes, traits).
        traits: how much of each trait an item has, (items, traits).
    """

    popularity: np.ndarray
    tastes: np.ndarray
    traits: np.ndarray

    def log_probabilities(self, taste: int) -> np.ndarray:
        """Logarithms of the probabilities with which somebody of that taste takes each item, (items,) float64."""
        likings = self.popularity + self.traits @ self.tastes[taste]
        likings -= likings.max()
        return likings - np.log(np.exp(likings).sum())


@dataclass(frozen=True, eq=False)
class Interactions:
    """Items that users took. A history is a set of items with counts, padded with item 0 of count 0.

    Args:
        taste: the hidden taste of each user, (users,).
        history: items that were taken before, int32 (users, length).
        counts: how often, float32 (users, length).
        targets: items to learn from, int32 (users, targets).
        held_out_users: users of whom one more item is known, int32 (held_out,).
        held_out_items: that item, int32 (held_out,).
    """

    taste: np.ndarray
    history: np.ndarray
    counts: np.ndarray
    targets: np.ndarray
    held_out_users: np.ndarray
    held_out_items: np.ndarray


def make_preferences(items: int, tastes: int, seed: int) -> Preferences:
    """Draws preferences for so many items and tastes."""
    random = np.random.default_rng([seed, 0])
    popularity = -_ZIPF * np.log(random.permutation(items) + 10.0)
    traits = random.normal(0, 1, (items, _TRAITS))
    directions = random.normal(0, 1, (tastes, _TRAITS))
    directions *= _LIKING / np.linalg.norm(directions, axis=1, keepdims=True)
    return Preferences(popularity, directions, traits)


def draw(preferences: Preferences, users: int, history: int, targets: int, held_out: int, seed: int) -> Interactions:
    """Draws what users take, each item independently of the others by the probabilities of the user's taste.

    Args:
        preferences: the probabilities of items, by taste.
        users: how many.
        history: most items in a history; it has 3 at least.
        targets: items of every user to learn from.
        held_out: users of whom one more item is held out.
        seed: of the drawing.
    """
    random = np.random.default_rng([seed, 1])
    taste = random.integers(0, len(preferences.tastes), users)
    drawn = np.empty((users, history + targets + 1), np.int32)
    for number in range(len(preferences.tastes)):
        who = np.flatnonzero(taste == number)
        cumulative = np.exp(preferences.log_probabilities(number)).cumsum()
        at = random.random((len(who), drawn.shape[1])) * cumulative[-1]
        drawn[who] = np.minimum(np.searchsorted(cumulative, at, side="right"), len(cumulative) - 1)
    lengths = random.integers(_FEWEST_IN_HISTORY, history + 1, users)
    taken, counts = _counted(drawn[:, :history], lengths)
    chosen = np.sort(random.permutation(users)[:held_out]).astype(np.int32)
    return Interactions(taste, taken, counts, drawn[:, history:-1].copy(), chosen, drawn[chosen, -1])


def best_possible(preferences: Preferences, seen: Interactions, k: int = 10) -> tuple[float, float]:
    """Recall of the best ranking that can be made of what a training sees, had it learned all probabilities exactly.

    For each user, the probability of every taste follows from the user's history and targets by Bayes' theorem, and
    from these the probability of every item. The k most probable ones are what to recommend.

    Args:
        preferences: the probabilities of items, by taste.
        seen: histories, targets, and the items that were held out.
        k: how many items are recommended.

    Returns:
        The share of the held-out items that are among the k, and the share that could be expected to be.
    """
    every = np.stack([preferences.log_probabilities(taste) for taste in range(len(preferences.tastes))])
    users = seen.held_out_users
    evidence = np.stack(
        [(seen.counts[users] * log[seen.history[users]]).sum(1) + log[seen.targets[users]].sum(1) for log in every], 1
    )
    posterior = np.exp(evidence - evidence.max(1, keepdims=True))
    posterior = (posterior / posterior.sum(1, keepdims=True)).astype(np.float32)
    likely = np.exp(every).astype(np.float32)
    found, expected = 0, 0.0
    rows = max(1, _AT_ONCE // likely.shape[1])
    for start in range(0, len(users), rows):
        chosen = slice(start, start + rows)
        probable = posterior[chosen] @ likely
        best = np.partition(probable, -k, axis=1)[:, -k:]
        truth = probable[np.arange(len(probable)), seen.held_out_items[chosen]]
        found += int((truth >= best[:, 0]).sum())
        expected += float(best.sum())
    return found / len(users), expected / len(users)


def _counted(drawn: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first so many of each row as a set with counts, padded with 0 of count 0."""
    rows, columns = drawn.shape
    nothing = np.iinfo(drawn.dtype).max
    ordered = np.sort(np.where(np.arange(columns) < lengths[:, None], drawn, nothing), axis=1)
    another = np.ones(ordered.shape, bool)
    another[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    place = np.cumsum(another, axis=1) - 1 + np.arange(rows)[:, None] * columns
    counts = np.bincount(place[ordered != nothing], minlength=drawn.size).reshape(drawn.shape).astype(np.float32)
    items = np.zeros(drawn.size, drawn.dtype)
    items[place[ordered != nothing]] = ordered[ordered != nothing]
    return items.reshape(drawn.shape), counts
