"""An engine that runs on a Dask cluster."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, ClassVar

from tithe.core.contracts import PlacedGroup, Placement
from tithe.core.data import Block, rows_of
from tithe.core.parallel import limit_threads, single_blas_thread
from tithe.core.params import OneOf, WholeNumber, check_value
from tithe.core.passes import Engine, LeafWork, Leaves, Merge, MergeTree
from tithe.engines.groups import FAN_IN, FoldWork, call_task, checked, group_edges, kind_of_worker, warn_if_kinds_differ

try:
    import cloudpickle
    import dask
    from dask.sizeof import sizeof
    from distributed import Client, Future, fire_and_forget, get_client
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker
except ImportError as error:
    raise ImportError("engine='dask' needs Dask: pip install 'tithe[dask]'.") from error

_RETRIES = 3  # of a task, for faults of the network or of a disk
_CALL_SECONDS = 5.0  # between looks at whether the scheduler is still there
_LOST_SECONDS = 20.0  # without a scheduler, after which a pass ends with an error


class DaskEngine(Engine):
    """Reads and merges leaves on the workers of a Dask cluster.

    A task is a group of consecutive leaves; the source and the work travel once to each worker. Workers read the
    files themselves, so all of them must see the same paths or URLs. A source that can only be read here, such as a
    generator, is read here, and its leaves travel. Tasks have no side effects: those of a worker that is lost are
    computed again, with the same bits, as long as all workers have the same kind of CPU.

    Parameters
    ----------
    client : distributed.Client, str or None
        A client, or the address of a scheduler; None takes the current client. It is not kept in a saved model.
    leaves_per_task : int or None
        None chooses some that give every thread several tasks of at most 4 GB.

    Examples
    --------
    >>> from tithe.engines import DaskEngine
    >>> DaskEngine("tcp://host:8786", leaves_per_task=8).leaves_per_task
    8
    """

    name: ClassVar[str] = "dask"

    def __init__(self, client: Any = None, *, leaves_per_task: int | None = None) -> None:
        check_value("leaves_per_task", leaves_per_task, OneOf(None) | WholeNumber(least=1))
        self.client = client
        self.leaves_per_task = leaves_per_task
        self._connected: Client | None = None  # if the client was given by its address

    def __getstate__(self) -> dict[str, Any]:
        client = self.client if isinstance(self.client, str) else None
        return {**self.__dict__, "client": client, "_connected": None}

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of every task, in order. Tasks travel to the workers with what they hold."""
        run = _Run(self._client())
        work_there = run.constant("work", work)
        submitted = (
            run.submit("task", _call, work_there, cloudpickle.dumps(task), number) for number, task in enumerate(tasks)
        )
        yield from map(checked, run.results(submitted, 2 * run.n_threads))

    def warm_up(self, name: str, work: Callable[[], Any]) -> None:
        client, payload = self._client(), cloudpickle.dumps(work)
        for worker in client.scheduler_info(n_workers=-1)["workers"]:
            if (worker, name) not in _WARMED:
                _WARMED.add((worker, name))
                key = f"tithe-compile-{uuid.uuid4().hex}"
                # a task of a worker that is lost would wait for it for ever, so others may have it
                fire_and_forget(
                    client.submit(_try, payload, key=key, workers=[worker], allow_other_workers=True, pure=False)
                )

    def each(self, leaves: Leaves, leaf: LeafWork) -> Iterator[Any]:
        for results in self._run(leaves, FoldWork(leaves, leaf, None)):
            yield from checked(results)

    def fold(self, leaves: Leaves, leaf: LeafWork, merge: Merge) -> Iterator[MergeTree[Any]]:
        yield from map(checked, self._run(leaves, FoldWork(leaves, leaf, merge)))

    def _run(self, leaves: Leaves, work: FoldWork) -> Iterator[Any]:
        """The results of groups of leaves, in order; trees are joined by the workers, so that a few travel."""
        placement, stop = leaves.source.placement(leaves.first, leaves.leaf_rows), leaves.stop()
        if placement is not None:
            yield from self._on_placed(placement, work, leaves.name)
        elif stop is not None:
            run = _Run(self._client())
            edges = group_edges(leaves, stop, run.n_threads, self.leaves_per_task if work.merge else 1)
            groups = [PlacedGroup(first, last, ()) for first, last in pairwise(edges)]
            together = _joined_together(len(groups)) if work.merge else 4 * run.n_threads
            batches = (groups[i : i + together] for i in range(0, len(groups), together))
            there = run.constant("source", work)
            sent = (run.tasks(there, {}, batch, leaves.name, n_trees=1 if work.merge else None) for batch in batches)
            futures = (future for batch in sent for future in batch)
            yield from run.results(futures, max(2, 4 * run.n_threads // together))
        elif work.merge is None:
            yield from ([result] for result in super().each(leaves, work.leaf))
        else:
            yield from super().fold(leaves, work.leaf, work.merge)

    def _on_placed(self, placement: Placement, work: FoldWork, label: str) -> Iterator[Any]:
        """Results of the groups of leaves whose partitions the cluster holds or computes."""
        run = _Run(self._client())
        try:
            there = run.constant("source", work)
            n_trees = max(FAN_IN, len(placement.groups) // FAN_IN**2) if work.merge else None
            futures = run.tasks(there, placement.graph, placement.groups, label, n_trees=n_trees)
            yield from run.results(iter(futures), len(futures) + 1)
        except Exception as error:
            explained = placement.explain(error)
            if explained is error:
                raise
            raise explained from error

    def _client(self) -> Client:
        client = self.client
        if isinstance(client, str):
            if self._connected is None or self._connected.status != "running":
                self._connected = Client(client, set_as_default=False)
            client = self._connected
        if client is None:
            try:
                client = get_client()
            except ValueError:
                raise ValueError(
                    "engine='dask' needs a client: make one with dask.distributed.Client(...) before, or give "
                    "DaskEngine('tcp://host:port')."
                ) from None
        _check_workers(client)
        return client


class _Run:
    """The tasks of one pass. Their keys are of this pass alone: no result of another one can be taken for theirs."""

    def __init__(self, client: Client) -> None:
        self._client, self._token, self._n_tasks = client, uuid.uuid4().hex, 0
        self.n_threads = max(1, sum(client.nthreads().values()))

    def constant(self, label: str, value: Any) -> Future:
        """A value for many tasks. It is a task too, so that it survives the loss of its worker."""
        return self.submit(label, cloudpickle.loads, cloudpickle.dumps(value))

    def submit(self, label: str, function: Callable[..., Any], *arguments: Any) -> Future:
        return self._client.submit(function, *arguments, key=self._key(label), pure=False, retries=_RETRIES)

    def _key(self, label: str) -> str:
        self._n_tasks += 1
        return f"tithe-{label}-{self._token}-{self._n_tasks}"

    def tasks(
        self, work: Future, graph: Mapping[Any, Any], groups: Sequence[PlacedGroup], label: str, *, n_trees: int | None
    ) -> list[Future]:
        """The results of groups of leaves, sent as one graph with the tasks of their partitions.

        So a partition that is not persisted is computed shortly before its group, and dropped after it. With
        ``n_trees`` the results are trees, which are joined level by level until there are at most as many.
        """
        tasks = {**graph, work.key: work}

        def add(label: str, *task: Any) -> str:
            key = self._key(label)
            tasks[key] = task
            return key

        homes = self._homes(graph)
        places: defaultdict[str, list[str]] = defaultdict(list)
        method, keys = FoldWork.run_each if n_trees is None else FoldWork.run, []
        for group in groups:
            parts = []
            for part in group.parts:
                values = list(part.keys)
                if part.stop is not None:
                    values = [add("cut", rows_of, value, slice(part.start, part.stop)) for value in values]
                parts.append([part.number, part.start, values])
            keys.append(add(label, method, work.key, group.first, group.stop, parts))
            if len(group.parts) == 1:
                places[keys[-1]] = homes.get(group.parts[0].keys[0], [])
        while n_trees is not None and len(keys) > n_trees:
            trees = (keys[i : i + FAN_IN] for i in range(0, len(keys), FAN_IN))
            keys = [add("merge", FoldWork.join, work.key, together) for together in trees]
        # a task is also near the worker that holds the source, which every task needs: where its rows lie must be said
        with dask.annotate(workers=places.__getitem__, allow_other_workers=True):
            futures: list[Future] = self._client.get(tasks, keys, sync=False, retries=_RETRIES)
        return futures

    def _homes(self, graph: Mapping[Any, Any]) -> dict[Any, list[str]]:
        """The workers that hold the partitions which are persisted, by key."""
        persisted = [value for value in graph.values() if isinstance(value, Future)]
        return {key: list(workers) for key, workers in self._client.who_has(persisted).items()} if persisted else {}

    def results(self, futures: Iterator[Future], n_waiting: int) -> Iterator[Any]:
        """The results in order; at most ``n_waiting`` are asked for beforehand."""
        waiting: deque[Future] = deque()
        try:
            for future in futures:
                waiting.append(future)
                if len(waiting) >= n_waiting:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            if self._client.status == "running":
                self._client.cancel(list(waiting))

    def _result(self, future: Future) -> Any:
        """The result of a task. A scheduler that has gone is noticed."""
        lost_since = None
        while True:
            try:
                return future.result(timeout=_CALL_SECONDS)
            except (TimeoutError, CommClosedError) as error:
                if future.status == "error":  # the task itself waited too long, for a disk for example
                    raise
                if isinstance(error, CommClosedError):  # raised at once as long as the scheduler is away
                    time.sleep(1.0)
                if self._client.status == "running":
                    lost_since = None
                    continue
                lost_since = time.monotonic() if lost_since is None else lost_since
                if time.monotonic() - lost_since < _LOST_SECONDS - _CALL_SECONDS:
                    continue
                raise ConnectionError(_SCHEDULER_LOST) from None
            except FutureCancelledError:
                raise ConnectionError(_SCHEDULER_LOST) from None
            except KilledWorker as error:
                raise RuntimeError(
                    f"Several workers died at the same task ({error.task}). They may lack memory: give them more, or "
                    "set leaves_per_task=1."
                ) from error


_SCHEDULER_LOST = (
    "The Dask scheduler or all of its results are lost. Start it again and repeat the call; a build with a "
    "checkpoint goes on from there."
)


def _joined_together(n_groups: int) -> int:
    """The groups that are sent together, and whose trees are joined by workers: a power of the fan-in."""
    together = 1
    while together < FAN_IN**2 and n_groups > together * FAN_IN:
        together *= FAN_IN
    return together


def _call(work: Callable[[Any, int], Any], task: bytes, number: int) -> Any:
    return call_task(work, cloudpickle.loads(task), number)


def _try(work: bytes) -> None:
    """Work whose result and errors do not matter."""
    with suppress(Exception), limit_threads(1), single_blas_thread():
        cloudpickle.loads(work)()


def _check_workers(client: Client) -> None:
    """Warn, once for a set of workers, if their CPUs or versions differ."""
    workers = frozenset(client.scheduler_info(n_workers=-1)["workers"])
    if not workers:
        raise RuntimeError("The Dask cluster has no workers: scale it up, for example client.cluster.scale(2).")
    if workers in _COMPARED:
        return
    _COMPARED.add(workers)
    warn_if_kinds_differ(client.run(kind_of_worker, on_error="ignore").items())  # one may be lost at this moment


_COMPARED: set[frozenset[str]] = set()
_WARMED: set[tuple[str, str]] = set()  # address of a worker, and what it has compiled


# bytes of rows: Dask's memory limits and choice of workers need them
sizeof.register(Block)(lambda block: block.n_bytes)
sizeof.register(MergeTree)(lambda tree: sum(int(sizeof(node)) for node in tree.slots))
