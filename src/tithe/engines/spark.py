"""An engine that runs on Spark, through DataFrames alone, so that it also runs on Spark Connect.

Tasks and results are pickled only between the processes of one job: columns of bytes, which Spark drops at its end.
"""

from __future__ import annotations

import pickle
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import pyarrow as pa

from tithe.core.contracts import PartitionedRows, Read, partition_id
from tithe.core.parallel import limit_threads, single_blas_thread
from tithe.core.params import OneOf, WholeNumber, check_value
from tithe.core.passes import Engine, LeafWork, Leaves, Merge, MergeTree
from tithe.engines.groups import (
    CALLERS_MISTAKES,
    FAN_IN,
    Failure,
    FoldWork,
    call_task,
    checked,
    group_edges,
    join_trees,
    kind_of_worker,
    warn_if_kinds_differ,
)

_MAX_TREES = 16  # of a fold that reach the driver
_GROUPS_PER_STEP = 64  # for each thread, at least: threads that wait for the end of a job waste little of its time
_LEAVES_PER_THREAD = 16  # whose results are held at once
_TASK_BYTES = 2**26  # of tasks that travel to Spark at once
_KINDS = "host string, kind array<string>"
_RESULTS = "number long, n_groups long, payload binary"
_ARROW_RESULTS = pa.schema([("number", pa.int64()), ("n_groups", pa.int64()), ("payload", pa.binary())])


class SparkEngine(Engine):
    """Reads and merges leaves on the executors of Spark.

    Of files, a task reads a group of consecutive leaves itself, so all executors must see the same paths or URLs.
    Rows of a Spark DataFrame are reduced where they lie. The executors merge; at most 16 trees of a pass reach the
    driver. A source that can only be read here, such as a generator, is read here, and its leaves travel. Tasks have
    no side effects: those of an executor that is lost are computed again, with the same bits, as long as all
    executors have the same kind of CPU.

    A pass is one job of Spark. Progress and checkpoints therefore know only its beginning and its end, and a bad row
    is told when the job ends; it is not tried again. A pass of more than 64 tasks for each core is at most 16 jobs,
    with a checkpoint after each.

    Parameters
    ----------
    session : pyspark.sql.SparkSession or None
        None takes the active session. It is not kept in a saved model. Spark Connect will do.
    leaves_per_task : int or None
        Leaves of files that a task reads. None chooses some that give every core several tasks of at most 4 GB.

    Examples
    --------
    >>> from tithe.engines import SparkEngine
    >>> SparkEngine(leaves_per_task=8).leaves_per_task
    8
    """

    name: ClassVar[str] = "spark"

    def __init__(self, session: Any = None, *, leaves_per_task: int | None = None) -> None:
        check_value("leaves_per_task", leaves_per_task, OneOf(None) | WholeNumber(least=1))
        self.session = session
        self.leaves_per_task = leaves_per_task

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "session": None}

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of every task, in order. Tasks travel to the executors with what they hold."""
        session = self._session()
        for numbers, payloads in _batches(tasks, _LEAVES_PER_THREAD * _n_threads(session)):
            with _clear_errors(session):
                rows = session.createDataFrame(pa.table({"number": numbers, "payload": payloads}))
                results, _ = _collected(rows.mapInArrow(_calling(work), _RESULTS))
            yield from map(checked, results)

    def each(self, leaves: Leaves, leaf: LeafWork) -> Iterator[Any]:
        rows, stop = leaves.source.partitioned(leaves.leaf_rows), leaves.stop()
        if rows is not None:
            work = PartitionWork(rows.read, rows.level, leaves.first, leaf, None)
            session = rows.table.sparkSession
            _n_threads(session)  # executors are compared
            with _clear_errors(session):
                results, _ = _collected(rows.table.mapInArrow(work.each_leaf, _RESULTS))
            yield from map(checked, results)
            return
        if stop is None:
            yield from super().each(leaves, leaf)
            return
        session = self._session()
        n_threads = _n_threads(session)
        work_of_leaf = FoldWork(leaves, leaf, None)
        run = _of_numbers(lambda number: work_of_leaf.run_each(number, number + 1))
        for start in range(leaves.first, stop, _LEAVES_PER_THREAD * n_threads):
            n_leaves = min(stop - start, _LEAVES_PER_THREAD * n_threads)
            with _clear_errors(session):
                numbers = session.range(start, start + n_leaves, 1, min(n_leaves, 4 * n_threads))
                results, _ = _collected(numbers.mapInArrow(run, _RESULTS))
            for result in results:
                yield from checked(result)

    def fold(self, leaves: Leaves, leaf: LeafWork, merge: Merge) -> Iterator[MergeTree[Any]]:
        rows, stop = leaves.source.partitioned(leaves.leaf_rows), leaves.stop()
        if rows is not None:
            yield from _fold_partitions(rows, leaves.first, leaf, merge)
            return
        if stop is None:
            yield from super().fold(leaves, leaf, merge)
            return
        session = self._session()
        n_threads = _n_threads(session)
        groups = list(pairwise(group_edges(leaves, stop, n_threads, self.leaves_per_task)))
        n_steps = max(1, min(_MAX_TREES, len(groups) // (_GROUPS_PER_STEP * n_threads)))
        n_groups = -(-len(groups) // n_steps)
        work = FoldWork(leaves, leaf, merge)
        for first in range(0, len(groups), max(1, n_groups)):
            step = groups[first : first + n_groups]
            with _clear_errors(session):
                numbers = session.range(0, len(step), 1, len(step))
                trees = numbers.mapInArrow(_of_numbers(partial(_run_group, work, step)), _RESULTS)
                results, _ = _collected(_joined(trees, len(step), merge, _MAX_TREES // n_steps))
            yield from map(checked, results)

    def _session(self) -> Any:
        try:
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession
        except ImportError as error:
            raise ImportError("engine='spark' needs Spark: pip install 'tithe[spark]', and Java 17.") from error
        if self.session is not None:
            return self.session
        try:
            return SparkSession.active()
        except PySparkException:
            raise ValueError(
                "engine='spark' needs a session: make one with SparkSession.builder.getOrCreate() before, or give "
                "SparkEngine(session)."
            ) from None


_N_THREADS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def _n_threads(session: Any) -> int:
    """The cores of the executors, as far as Spark tells; the job that counts them also compares their CPUs."""
    if session not in _N_THREADS:
        with _clear_errors(session):
            kinds = session.range(2**16).mapInArrow(_kind_of_executor, _KINDS).toArrow().to_pylist()
        warn_if_kinds_differ((row["host"], tuple(row["kind"])) for row in kinds)
        _N_THREADS[session] = max(1, len(kinds))
    return _N_THREADS[session]


@contextmanager
def _clear_errors(session: Any) -> Iterator[None]:
    """Errors of tasks, and the end of a session, in words that say what to do."""
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line.partition(":")[0]] or lines
        raise RuntimeError(f"A task failed on Spark, each time it was tried: {errors[-1]}") from error
    except Exception as error:
        if _has_ended(session):
            raise ConnectionError(
                "The Spark session has ended. Start another one and repeat the call; a build with a checkpoint goes "
                "on from there."
            ) from error
        raise


def _has_ended(session: Any) -> bool:
    try:
        session.range(1).count()
    except Exception:  # which one, depends on how it ended
        return True
    return False


def _collected(frame: Any) -> tuple[list[Any], int]:
    """What the payloads of all rows hold, in the order of their numbers, and the groups that they come from."""
    table = frame.toArrow().sort_by("number")
    results = [pickle.loads(payload.as_buffer()) for payload in table.column("payload")]
    return results, sum(table.column("n_groups").to_pylist())


def _joined(trees: Any, n_trees: int, merge: Merge, n_wanted: int) -> Any:
    """At most ``n_wanted`` trees, joined by the executors level by level; a row is a tree."""
    from pyspark.sql.functions import col

    while n_trees > n_wanted:
        n_trees = -(-n_trees // FAN_IN)
        parents = trees.withColumn("parent", (col("number") / FAN_IN).cast("long"))
        # with a number of partitions, Spark does not join all of these small rows into one task
        trees = parents.repartition(n_trees, "parent").groupBy("parent").applyInArrow(_join_group(merge), _RESULTS)
    return trees


def _fold_partitions(rows: PartitionedRows, first: int, leaf: LeafWork, merge: Merge) -> Iterator[MergeTree[Any]]:
    """The trees of a DataFrame, a partition being a group of leaves."""
    work = PartitionWork(rows.read, rows.level, first, leaf, merge)
    _n_threads(rows.table.sparkSession)  # executors are compared
    with _clear_errors(rows.table.sparkSession):
        trees = rows.table.mapInArrow(work.trees, _RESULTS)
        trees, n_partitions = _collected(_joined(trees, len(rows.lengths), merge, _MAX_TREES))
    results = [checked(tree) for tree in trees]
    if n_partitions != sum(n_rows > 0 for n_rows in rows.lengths[first >> rows.level :]):
        raise ValueError(
            f"{n_partitions} partitions of the Spark DataFrame have rows, and others had when they were counted. Write "
            "it to files first, or persist() it: it gives other rows each time it is read."
        )
    yield from results
    stop = len(rows.lengths) << rows.level
    yield MergeTree((), stop, stop)  # partitions without rows at the end


# -- what runs on the executors ----------------------------------------------------------------------------------------


def _kind_of_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    kind = pa.array([list(kind_of_worker())], pa.list_(pa.string()))
    yield pa.record_batch([pa.array([platform.node()]), kind], names=["host", "kind"])


def _result(number: int, result: Any, n_groups: int = 1) -> pa.RecordBatch:
    payload = pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)
    return pa.record_batch([[number], [n_groups], [payload]], schema=_ARROW_RESULTS)


def _calling(work: Callable[[Any, int], Any]) -> Callable[..., Iterator[Any]]:
    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number, payload in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                yield _result(number, call_task(work, pickle.loads(payload.as_buffer()), number))

    return call


def _run_group(work: FoldWork, groups: Sequence[tuple[int, int]], number: int) -> MergeTree[Any] | Failure:
    return work.run(*groups[number])


def _of_numbers(function: Callable[[int], Any]) -> Callable[..., Iterator[Any]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _result(number, function(number))

    return run


def _join_group(merge: Merge) -> Callable[..., Any]:
    def join(table: pa.Table) -> pa.Table:
        table = table.sort_by("number")
        trees = [pickle.loads(payload.as_buffer()) for payload in table.column("payload")]
        number, n_groups = table.column("number")[0].as_py() // FAN_IN, sum(table.column("n_groups").to_pylist())
        return pa.Table.from_batches([_result(number, join_trees(trees, merge), n_groups)])

    return join


@dataclass(frozen=True)
class PartitionWork:
    """The work of one pass on the partitions of a DataFrame, from leaf ``first`` on."""

    read: Read
    level: int
    first: int
    leaf: LeafWork
    merge: Merge | None  # None where the results of leaves are not merged

    def is_done(self, partition: int) -> bool:
        return partition + 1 << self.level <= self.first

    def results(self, partition: int, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        """Number and result of each leaf; leaves before ``first`` have none."""
        with limit_threads(1), single_blas_thread():
            for number, block in enumerate(self.read(partition, batches), partition << self.level):
                yield number, self.leaf(block, (0, number)) if number >= self.first else None

    def run(self, partition: int, batches: Iterator[Any]) -> MergeTree[Any] | Failure | None:
        """The tree of a partition; None if it has no rows."""
        assert self.merge is not None
        start, stop = max(self.first, partition << self.level), partition + 1 << self.level
        tree, has_rows = MergeTree[Any]((), start, start), False
        try:
            for number, node in self.results(partition, batches):
                has_rows = True
                if number >= start:
                    tree = tree.push(number, node, self.merge)
        except CALLERS_MISTAKES as error:
            return Failure(error)
        return tree.join(MergeTree((), stop, stop), self.merge) if has_rows else None

    def trees(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`run` for the partition of this task of Spark."""
        partition = partition_id()
        tree = None if self.is_done(partition) else self.run(partition, batches)
        for _ in batches:  # Spark ends a worker that leaves some, and the next one takes seconds to start
            pass
        if tree is not None:
            yield _result(partition, tree)

    def each_leaf(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The results of its leaves one by one."""
        partition = partition_id()
        if self.is_done(partition):
            return
        try:
            for number, result in self.results(partition, batches):
                if number >= self.first:
                    yield _result(number, result)
        except CALLERS_MISTAKES as error:
            yield _result(partition << self.level, Failure(error))


def _batches(tasks: Iterable[Callable[[], Any]], n_tasks: int) -> Iterator[tuple[list[int], list[bytes]]]:
    """Numbers and pickled tasks, some at a time: at most ``n_tasks``, and no more once they have `_TASK_BYTES`."""
    from pyspark import cloudpickle

    pickled = ((number, cloudpickle.dumps(task)) for number, task in enumerate(tasks))
    while taken := list(islice(_up_to(pickled, _TASK_BYTES), n_tasks)):
        yield [number for number, _ in taken], [payload for _, payload in taken]


def _up_to(pickled: Iterator[tuple[int, bytes]], n_bytes: int) -> Iterator[tuple[int, bytes]]:
    for number, payload in pickled:
        yield number, payload
        n_bytes -= len(payload)
        if n_bytes <= 0:
            return
