"""Rooms meet through the base classes of `tithe.core.contracts`; nothing of ours is probed for what it can do."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import tithe
from tithe import Block, CoresetKMeans, CoresetStream, build_coreset, save_coreset
from tithe.core import contracts
from tithe.core.contracts import Construction, NearestObjective, Objective, SampledObjective, SensitivityObjective
from tithe.core.registry import names, resolve
from tithe.linear.cablr import Cablr
from tithe.linear.regressed import Regressed
from tithe.objectives import KMeansObjective, LogisticObjective, SingleScoreObjective
from tithe.reduce.draws import Influence, Leverage
from tithe.reduce.plan import check_contracts
from tithe.testing import objective_checks

SOURCE = Path(tithe.__file__).parent
GUARDED = {"objective", "goal", "construction", "source", "model", "learner", "estimator", "engine", "fitted", "winner"}

# estimators of other libraries, which users pass in: what they can do is found out by asking
FOREIGN = {
    "odm/plot.py:margins_of": "not every classifier has a decision_function",
    "cli/predict.py:predict": "available_if hides predict_proba; columns have names where the fit knew them",
    "meta/estimator.py:CoresetEstimator.__sklearn_tags__": "an estimator that was not checked yet",
    "cli/fit.py:ScoredRows.certificate": "available_if hides score",
    "report/compared_learner.py:ComparedLearner.chances": "not every classifier has probabilities",
    "cli/fit.py:write_predictions_beside": "available_if hides predict_proba",
    "report/scores.py:held_out_scores": "clusters of an estimator of another library may have no cost",
    "meta/other_estimators.py:NumberedClasses.__getattr__": "attributes of the estimator inside",
    "meta/other_estimators.py:require_method": "an estimator of another library",
    "meta/other_estimators.py:residuals": "an estimator of another library",
    "meta/other_estimators.py:takes_weights": "an estimator of another library",
    "meta/other_estimators.py:check_learns_from_coresets": "a message about an estimator of another library",
    "meta/ensembles.py:importances": "an estimator of another library",
    "meta/estimator.py:CoresetEstimator.charts": "an estimator of another library may not know names",
    "meta/estimator.py:CoresetEstimator.check_relations": "an estimator of another library that was read from a file",
    "meta/search/search_cv.py:CoresetSearchCV.check_relations": "an estimator of another library from a file",
    "meta/estimator.py:CoresetEstimator.summary": "the provenance is shown",
    "meta/scores.py:held_out_scores": "an estimator of another library may have no probabilities",
    "meta/estimator.py:CoresetEstimator._call": "a method of the estimator inside, by name",
    "meta/search/evaluate.py:Scoring._one": "the TypeError of a metric that takes no weights",
    "meta/estimator.py:CoresetEstimator._has_score": "an estimator of another library may have no score",
    "fit/results.py:probe": "an estimator of another library that was read from a file",
    "core/data.py:Coreset.__repr__": "the provenance is shown",
    "core/data.py:Coreset._repr_html_": "the provenance is shown",
    "report/compare.py:_result": "the parameters are shown",
    "report/compare.py:Runner.run": "how the rows were drawn is shown",
    "report/run.py:_facts": "the provenance is shown",
    "cli/build.py:_about": "the provenance is shown",
    "cli/size.py:_one_leaf": "the provenance is shown",
    "cli/main.py:print_worth": "the provenance is shown",
    "cli/merge.py:_inspect_model": "the parameters are shown",
    "report/scores.py:_answers": "not every classifier has probabilities",
    "testing/checks.py:_error": "the message itself is checked",
}

# files that look into ``vars(x)`` or ``x.__dict__`` of objects of other libraries
OPENS_FOREIGN = ("storage/foreign.py",)
PICKLING = {
    "__getstate__",
    "__setstate__",
    "__reduce__",
    "record",
}  # methods that may handle the attributes of their own object


def _subject(node: ast.expr) -> str:
    """The last name of ``objective``, ``self._objective`` or ``plan.objective``, without underscores around it."""
    if isinstance(node, ast.Attribute):
        return node.attr.strip("_")
    if isinstance(node, ast.IfExp):
        return _subject(node.body)
    return node.id.strip("_") if isinstance(node, ast.Name) else ""


def _is_call(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _is_probing(node: ast.AST) -> bool:
    """Whether something of ours is asked what it has, or compared by its repr, provenance or message."""
    if isinstance(node, ast.Call) and _is_call(node, "getattr", "hasattr", "callable", "repr"):
        return bool(node.args) and _subject(node.args[0]) in GUARDED
    if isinstance(node, ast.Compare):
        return any(_is_call(side, "repr") for side in (node.left, *node.comparators)) or any(
            _is_call(side, "str") and _subject(side.args[0]) == "error" for side in (node.left, *node.comparators)
        )
    if isinstance(node, ast.Subscript):
        return _subject(node.value) == "provenance" and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        asks_notes = node.func.attr == "get" and _subject(node.func.value) == "provenance"
        of_message = node.func.attr in ("startswith", "endswith") and _is_call(node.func.value, "str")
        return asks_notes or of_message
    return False


def _probings(tree: ast.AST, place: str) -> Iterator[tuple[str, str]]:
    """The function and the line of every probing."""
    for node in ast.iter_child_nodes(tree):
        inside = place
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            inside = f"{place}{node.name}" if place.endswith(":") else f"{place}.{node.name}"
        invents = isinstance(node, ast.FunctionDef) and node.name == "__getattr__" and not place.endswith(":")
        if invents or _is_probing(node):
            yield inside, f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}"
        yield from _probings(node, inside)


def _opened(tree: ast.AST) -> Iterator[str]:
    """Where the attributes of an object are looked up in ``vars(x)`` or ``x.__dict__``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in PICKLING:
            continue
        by_name = _is_call(node, "getattr", "hasattr") and any(
            isinstance(argument, ast.Constant) and argument.value == "__dict__" for argument in node.args
        )
        if by_name or _is_call(node, "vars") or (isinstance(node, ast.Attribute) and node.attr == "__dict__"):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        yield from _opened(node)


@cache
def _trees() -> dict[str, ast.AST]:
    """The syntax of each file of the source, by its path."""
    files = sorted(SOURCE.rglob("*.py"))
    return {file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text()) for file in files}


def test_no_object_of_ours_is_opened() -> None:
    for name, tree in _trees().items():
        found = list(_opened(tree))
        expected = name in OPENS_FOREIGN
        assert bool(found) is expected, f"{name}: declare the attribute, with a default, and read it: {found}"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("schema = vars(model).get('schema_')", 1),
        ("if '_chain' in self.__dict__: pass", 1),
        ("known = self.__dict__.get('classes_') or vars(self)['classes_']", 2),
        ("getattr(thing, '__dict__', {})", 1),
        ("class Engine:\n    def state(self): return {**self.__dict__}", 1),
        ("class Engine:\n    def __getstate__(self): return {**self.__dict__, 'client': None}", 0),
        ("getattr(thing, name)", 0),
        ("variables = vars", 0),
    ],
)
def test_opening_an_object_is_found(code: str, found: int) -> None:
    assert len(list(_opened(ast.parse(code)))) == found


def _all_probings() -> dict[str, list[str]]:
    places: dict[str, list[str]] = {}
    for name, tree in _trees().items():
        for place, line in _probings(tree, f"{name}:"):
            places.setdefault(place, []).append(line)
    return places


def test_nothing_of_ours_is_probed() -> None:
    places = _all_probings()
    unknown = {place: lines for place, lines in places.items() if place not in FOREIGN}
    assert not unknown, "declare it in tithe.core.contracts, with a default, and call it"
    assert set(FOREIGN) <= set(places), "take places that are gone from the list"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("getattr(objective, 'codes', None)", True),
        ("callable(getattr(self.objective, 'codes', None))", True),
        ("hasattr(plan.construction, 'model')", True),
        ("hasattr(self._source, 'count')", True),
        ("same = repr(a) == repr(b)", True),
        ("about = {'objective': repr(plan.objective)}", True),
        ("whole = coreset.provenance['construction'] == 'all'", True),
        ("if coreset.provenance.get('calibrated'): pass", True),
        ("if 'no rows' in str(error): pass", True),
        ("class Learner:\n    def __getattr__(self, name): return 1", True),
        ("getattr(self, name)", False),
        ("hasattr(X, 'shape')", False),
        ("raise ValueError(f'got {objective!r}')", False),
    ],
)
def test_a_probing_is_found(code: str, found: bool) -> None:
    assert bool(list(_probings(ast.parse(code), "x.py:"))) is found


# -- contracts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "base"), [("objective", Objective), ("construction", Construction)])
def test_ours_inherit_the_contracts_and_are_values(kind: str, base: type) -> None:
    for name in names(kind):
        thing = resolve(kind, name)()
        assert isinstance(thing, base) and resolve(kind, thing.name) is type(thing)
        assert thing == resolve(kind, name)() and hash(thing) == hash(resolve(kind, name)())


def test_requires_names_contracts() -> None:
    for name in names("construction"):
        for contract in resolve("construction", name).requires:
            kinds = contract if isinstance(contract, tuple) else (contract,)
            assert kinds and all(issubclass(kind, Objective) for kind in kinds)


def test_strangers_meet_four_contracts() -> None:
    known = {value for value in vars(contracts).values() if isinstance(value, type) and issubclass(value, Objective)}
    assert known == {Objective, SampledObjective, SensitivityObjective, NearestObjective}
    public = {value for value in vars(tithe.objectives).values() if isinstance(value, type)}
    assert {kind for kind in public if inspect.isabstract(kind)} == {*known, SingleScoreObjective}


def test_a_missing_capability_is_named_before_a_row_is_read() -> None:
    def batches() -> Iterator[np.ndarray]:
        raise AssertionError("a row was read")
        yield

    missing = r"construction 'sensitivity' needs .* SensitivityObjective .*; LogisticObjective lacks sensitivity\(\)"
    with pytest.raises(ValueError, match=missing):
        CoresetStream("logistic", "sensitivity", coreset_size=10)
    with pytest.raises(ValueError, match=missing):
        build_coreset(batches(), objective="logistic", construction="sensitivity", coreset_size=10)
    with pytest.raises(ValueError, match=r"'cablr' needs .* LogisticObjective .*; KMeansObjective does not inherit it"):
        CoresetStream(KMeansObjective(), "cablr", coreset_size=10)
    either = r"'regressed' needs .* SensitivityObjective .* or a LogisticObjective .*; LeastSquaresObjective lacks"
    with pytest.raises(ValueError, match=either):
        CoresetStream("least_squares", "regressed", coreset_size=10)
    with pytest.raises(ValueError, match=r"'lightweight' needs .* MeanPilotObjective .*lacks mean_pilot\(\)"):
        build_coreset(batches(), objective="logistic", construction="lightweight", coreset_size=10)
    with pytest.raises(ValueError, match=r"'rings' needs .* NearestObjective .*; GenericObjective lacks assign\(\)"):
        build_coreset(batches(), objective="generic", construction="rings", coreset_size=10)


@dataclass(frozen=True, kw_only=True)
class _SquaredNorm(Objective):
    """The least an objective can be."""

    scale: float = 1.0
    name = "squared_norm"

    def solve(self, block: Block, *, rng: np.random.Generator, init: None = None) -> None:
        return None

    def cost(self, block: Block, params: None) -> np.ndarray:
        return self.scale * (block.X**2).sum(axis=1)


def test_the_least_objective_has_every_default() -> None:
    objective, block = _SquaredNorm(), Block(X=np.ones((3, 2)))
    assert objective.for_rows(block) is objective and objective.codes(block) is None
    assert (objective.classes, objective.n_classes, objective.lacks_classes) == (None, 0, False)
    assert (objective.best_construction, objective.totals_at_solution) == ("uniform", False)
    assert objective.hard_params(block, rng=np.random.default_rng(0)) == [] and objective.strengthened(2.0) is None
    with pytest.raises(ValueError, match="'squared_norm' has no random queries"):
        objective.random_params(block, n_bases=1, rng=np.random.default_rng(0))


def test_the_suite_finds_an_objective_that_is_no_value() -> None:
    class NoValue(_SquaredNorm):
        __eq__ = object.__eq__

    checks = dict(objective_checks(_SquaredNorm()))
    for check in checks.values():
        check()
    with pytest.raises(AssertionError, match="define __eq__"):
        dict(objective_checks(NoValue()))["a copy is equal"]()


def test_an_objective_of_another_package_works_by_name(monkeypatch) -> None:
    class Point:
        def load(self) -> type:
            return _SquaredNorm

    monkeypatch.setattr(
        "tithe.core.registry._installed", lambda kind: {"theirs": Point()} if kind == "objective" else {}
    )
    X = np.random.default_rng(0).normal(size=(500, 2))
    for construction in ("auto", "leverage", "ball_cover"):
        coreset = build_coreset(X, objective="theirs", construction=construction, coreset_size=50, calibrate=False)
        assert len(coreset) <= 50 and coreset.provenance["objective"] == "squared_norm" and not coreset.is_whole


def test_what_only_looks_like_an_objective_or_construction_is_refused() -> None:
    class Looks:
        name = "looks"
        solve = cost = requires = reduce = None

    with pytest.raises(ValueError, match=r"needs an objective that is a Objective .*; Looks does not inherit it"):
        CoresetStream(Looks(), coreset_size=10)
    with pytest.raises(ValueError, match=r"must be a name or a Construction .*got Looks"):
        CoresetStream(KMeansObjective(), Looks(), coreset_size=10)
    with pytest.raises(ValueError, match=r"propose_size needs .* SampledObjective"):
        tithe.propose_size(np.ones((3, 2)), objective=_SquaredNorm(), eps=0.1)
    check_contracts(KMeansObjective(), (SampledObjective,), needed_by="nothing")


# -- values --------------------------------------------------------------------------------------


def test_constructions_are_equal_by_their_options_not_by_what_they_learned(rng: np.random.Generator) -> None:
    X = rng.normal(size=(400, 3))
    block, objective = Block(X=X, y=(X[:, 0] > 0).astype(int)), LogisticObjective(classes=(0, 1))
    for construction in (Leverage(), Influence(), Cablr(radius=0.1), Regressed(radius=0.1, sample_size=50)):
        prepared = construction.prepare(block, objective, rng=rng)
        assert prepared is not construction and prepared == construction and hash(prepared) == hash(construction)
    assert Cablr(n_clusters=3) != Cablr(n_clusters=4) and Leverage() != Influence()


def test_regressors_are_compared_by_type_and_parameters() -> None:
    assert Regressed(regressor=Ridge(2.0)) == Regressed(regressor=Ridge(2.0))
    assert Regressed(regressor=Ridge(2.0)) != Regressed(regressor=Ridge(3.0))
    assert Regressed(regressor="ridge") != Regressed(regressor=Ridge())
    assert Regressed(mix=0.2) != Regressed() and Regressed() != Leverage()


def test_streams_merge_where_their_plans_are_equal() -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2

    def stream(regressor: Ridge, seed: int) -> CoresetStream:
        construction = Regressed(regressor=regressor, radius=0.1)
        return CoresetStream("logistic", construction, coreset_size=100, random_state=seed).push(X, y)

    assert stream(Ridge(2.0), 0).merge(stream(Ridge(2.0), 1)).n_rows == 120
    with pytest.raises(ValueError, match="differ in construction"):
        stream(Ridge(2.0), 0).merge(stream(Ridge(3.0), 1))


def test_a_changed_parameter_is_noticed_between_two_pieces() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = CoresetKMeans(n_clusters=2, random_state=0).partial_fit(X)
    model.set_params(n_clusters=np.int64(2)).partial_fit(X)  # the same value of another type
    with pytest.raises(ValueError, match="parameters have changed"):
        model.set_params(n_clusters=3).partial_fit(X)


# -- all rows ------------------------------------------------------------------------------------


def test_a_coreset_of_all_rows_says_so_in_a_field(tmp_path) -> None:
    X, weight = np.random.default_rng(0).normal(size=(40, 2)), np.r_[0.0, np.ones(39)]
    whole = build_coreset(X, sample_weight=weight, objective=KMeansObjective(n_clusters=2), coreset_size=40)
    drawn = build_coreset(X, objective=KMeansObjective(n_clusters=2), coreset_size=39)
    stream = CoresetStream(KMeansObjective(n_clusters=2), coreset_size=50).push(X).coreset()
    assert (whole.is_whole, drawn.is_whole, stream.is_whole) == (True, False, True) and len(whole) == 39
    for coreset in (whole, drawn):
        save_coreset(coreset, tmp_path / "coreset.parquet")
        assert tithe.load_coreset(tmp_path / "coreset.parquet").is_whole is coreset.is_whole
    # whatever its provenance says
    assert replace(whole, provenance={"construction": "uniform"}).is_whole
