"""Models, coresets and checkpoints, damaged in bytes or well formed and lying: refused, or used without harm.

``python -m pytest -m slow tests/fuzz/test_states.py -s`` prints how 20,000 of each ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import mutations
import numpy as np
import pytest
import states
from harness import DOCUMENTED, Outcome, Pool, damaged_bytes, table
from sklearn.exceptions import NotFittedError

from tithe.odm.solvers.kernel_matrix import NotAKernelError

FEW, MANY = 60, 20_000
Change = Callable[[bytes, np.random.Generator], bytes]


@dataclass(frozen=True)
class Loader:
    """Good files, how they are changed in a way that keeps them well formed, and what is done with them."""

    good: Callable[[], list[bytes]]
    change: Change
    use: Callable[[bytes], None]


LOADERS = {
    "models": Loader(states.model_files, mutations.changed_file, states.use_model),
    "online models": Loader(states.paco_files, mutations.changed_file, states.use_paco),
    "coresets": Loader(states.coreset_files, mutations.changed_coreset, states.use_coreset),
    "stream checkpoints": Loader(states.stream_states, mutations.changed_state, states.use_stream),
    "online checkpoints": Loader(states.paco_states, mutations.changed_state, states.use_paco_state),
    "build checkpoints": Loader(states.build_states, mutations.changed_state, states.use_build),
}


def damaged(loader: Loader, good: list[bytes], n: int, seed: int) -> Iterator[bytes]:
    """Every fourth is damaged in its bytes, the others are well formed."""
    for i in range(n):
        rng = np.random.default_rng([seed, i])
        data = good[i % len(good)]
        if i // len(good) % 4 == 0:
            archive = loader.change is mutations.changed_state
            yield _damaged_part(data, rng) if archive else damaged_bytes(data, rng)
        else:
            yield loader.change(data, rng)


def _damaged_part(data: bytes, rng: np.random.Generator) -> bytes:
    """One file of a folder with its bytes damaged; the archive only carries it to a worker."""
    files = mutations.unzipped(data)
    name = mutations.pick(rng, list(files))
    return mutations.zipped({**files, name: damaged_bytes(files[name], rng)})


def outcomes_of(name: str, n: int, seed: int, n_workers: int) -> list[Outcome]:
    loader = LOADERS[name]
    good = loader.good()
    documented = (*DOCUMENTED, NotFittedError, NotAKernelError)
    with Pool(loader.use, documented=documented, warm=good, n_workers=n_workers) as pool:
        return pool.run(damaged(loader, good, n, seed))


def check(ended: list[Outcome]) -> None:
    wrong = [outcome for outcome in ended if outcome.kind not in ("ok", "refused")]
    assert not wrong, f"{Counter(o.kind for o in wrong)}: {wrong[0]}\n{wrong[0].trace}"
    assert max(outcome.grown_bytes for outcome in ended) < 1 << 29


# every loader starts a process of its own, so the others are left to the slow tests
@pytest.mark.parametrize("name", ["models"])
def test_a_few_damaged_files_are_refused_or_harmless(name: str) -> None:
    ended = outcomes_of(name, FEW, seed=1, n_workers=1)  # a second one would take longer to start than it saves
    check(ended)
    kinds = Counter(outcome.kind for outcome in ended)
    assert kinds["refused"] > FEW // 4  # most lies are found


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADERS)
def test_twenty_thousand_damaged_files_are_refused_or_harmless(name: str) -> None:
    ended = outcomes_of(name, MANY, seed=2, n_workers=2)
    print("\n" + table({name: ended}))
    check(ended)
