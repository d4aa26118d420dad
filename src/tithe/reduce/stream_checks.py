"""What must hold of a stream that was read from a file, before it goes on."""

from __future__ import annotations

from typing import Any

from tithe.core.data import Coreset
from tithe.core.state_checks import LARGEST, Check, Each, Instance, Integer, Optional, Parts, check_fields, expect
from tithe.core.tree import Tree, check_keys
from tithe.reduce.plan import Plan, Reducer
from tithe.sources.batches import Regrouper, is_like

_STATE: dict[str, Check] = {
    "window": Optional(Integer(least=1)),
    "plan": Instance(Plan),
    "_reducer": Optional(Instance(Reducer)),
    "_rows": Instance(Regrouper),
    "_pilot_leaf": Optional(Integer()),
    "_absorbed": Optional(Instance(Coreset)),
    "_absorbed_rows": Each(Parts(Integer(), Integer())),
    "_n_pushes": Integer(),
    "notes": Instance(dict),
    "_tree": Instance(Tree),
    # a file must not say where a stream writes
    "_store": Optional(Instance()),
    "_checkpoint": Optional(Instance()),
}


def check_stream(stream: Any) -> None:
    """Whether the parts of a `CoresetStream`, each of which was checked, fit together."""
    check_fields(stream, _STATE)
    tree, rows, leaf_size = stream._tree, stream._rows, stream._rows.leaf_size
    check_fields(tree, {"slots": Each(Instance(Coreset)), "n_leaves": Integer(most=LARGEST // leaf_size)})
    expect(stream.window is None or stream.window >= leaf_size, "a window is less than one leaf")
    expect(tree.n_leaves * leaf_size <= rows.next_row, "a tree has more leaves than rows came")
    expect(not rows.parts or rows.number >= tree.n_leaves, "rows that wait belong to a leaf that is reduced")
    pilot = stream._pilot_leaf
    expect(pilot is None or pilot < max(1, tree.n_leaves), "the leaf of the pilot is not there")
    check_keys([slot.key for slot in tree.slots], tree.n_leaves)
    nodes = [*tree.slots, *([] if stream._absorbed is None else [stream._absorbed])]
    expect(all(node.last_row < rows.next_row for node in nodes), "a coreset stands for rows that have not come")
    if stream._reducer is None:
        expect(not nodes, "there are coresets and no reducer")
    else:
        _check_reducer(stream.plan, stream._reducer)
        for node in [*nodes, *rows.parts]:
            expect(rows.like is not None and is_like(node, rows.like), "a coreset is unlike the rows of its stream")
            stream._reducer.check_rows(node)
        if rows.like is not None:
            stream._reducer.construction.check_columns(rows.like.n_features, stream._reducer.objective)


def _check_reducer(plan: Plan, reducer: Reducer) -> None:
    expect(reducer.belongs_to(plan) and reducer.has_pilot, "a reducer is not that of its plan")
