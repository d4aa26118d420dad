"""Coresets of sites that share no rows, merged into one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import sparse, stats

import tithe
from tithe import (
    Block,
    CoresetStream,
    FileFormatError,
    build_coreset,
    load_coreset,
    merge_coresets,
    save_coreset,
)
from tithe.objectives import KMeansObjective, KMedianObjective, LogisticObjective
from tithe.reduce.calibration import calibrated
from tithe.reduce.merge import site_sizes
from tithe.storage.values import packed

SIZES = (6000, 2500, 900, 400, 60)  # the last one is kept whole
OBJECTIVE = KMeansObjective(n_clusters=4)


@pytest.fixture(scope="module")
def sites() -> list[Block]:
    rng = np.random.default_rng(3)
    blocks = []
    for number, n_rows in enumerate(SIZES):
        X = rng.normal(size=(n_rows, 3)) + 5.0 * rng.integers(0, 2 + number, size=(n_rows, 1))
        y = np.where(X[:, 0] + rng.logistic(size=n_rows) > 4.0, "yes", "no")
        blocks.append(Block(X=X, y=y, sample_weight=rng.choice([0.0, 0.5, 1.0, 3.0], n_rows)))
    return blocks


def reduced(site: Block, seed: int, **options):
    options = {"objective": OBJECTIVE, "coreset_size": 100, "random_state": seed, **options}
    return build_coreset(site.X, site.y, sample_weight=site.sample_weight, **options)


@pytest.fixture(scope="module")
def apart(sites) -> list:
    """A coreset of each site, with a pilot of its own."""
    return [reduced(site, seed) for seed, site in enumerate(sites)]


@pytest.fixture(scope="module")
def together(sites) -> list:
    """The same with the pilot of the first site."""
    first = reduced(sites[0], 0)
    return [first, *(reduced(site, seed, pilot=first.pilot) for seed, site in enumerate(sites[1:], 1))]


def test_the_union_keeps_all_rows_and_adds_up_what_was_seen(sites, apart) -> None:
    union = merge_coresets(apart, random_state=0)
    assert len(union) == sum(map(len, apart)) and union.n_seen == sum(SIZES)
    assert union.weight_seen == sum(site.total_weight for site in sites)
    np.testing.assert_array_equal(union.weights(), np.concatenate([c.weights() for c in apart]))
    assert union.totals is None and "not joined" in union.provenance["totals"] and not union.is_whole
    assert [(s.name, s.n_seen, s.n_kept) for s in union.sites] == [
        (f"site {i}", n, len(c)) for i, (n, c) in enumerate(zip(SIZES, apart, strict=True), 1)
    ]


def test_row_ids_of_sites_are_kept_apart(sites, apart) -> None:
    merged = merge_coresets(apart, coreset_size=150, random_state=0)
    assert len(np.unique(merged.row_ids())) == len(merged)
    for row, number, row_id in zip(merged.X, *merged.site_rows(), strict=True):
        np.testing.assert_array_equal(row, sites[number].X[row_id])
    with pytest.raises(ValueError, match="not merged"):
        apart[0].site_rows()


def test_totals_of_one_pilot_add_up_and_those_of_different_ones_do_not(sites, apart, together) -> None:
    everything = Block(
        X=np.concatenate([s.X for s in sites]), sample_weight=np.concatenate([s.weights() for s in sites])
    )
    for size in (None, 150):
        merged = merge_coresets(together, coreset_size=size, random_state=0)
        exact = OBJECTIVE.survey(everything, together[0].pilot).totals
        np.testing.assert_allclose(merged.totals, exact, rtol=1e-10, atol=1e-8)
        np.testing.assert_array_equal(merged.pilot, together[0].pilot)
        assert merged.provenance["totals"] == "of 5 sites, added up"
    count = OBJECTIVE.survey(merged, merged.pilot).totals[:, 0]
    np.testing.assert_allclose(count[count > 0], exact[count > 0, 0], rtol=1e-4)  # some clusters have no row
    assert merged.provenance["calibrated_to"] == "totals of all rows"
    report = calibrated(merged, OBJECTIVE)[1]
    assert report is not None and report.before < 0.01  # they are reproduced, up to the ridge of calibration
    merged = merge_coresets([together[0], apart[1]], coreset_size=150, random_state=0)
    assert merged.totals is None and "coresets" in merged.provenance["calibrated_to"]


def test_a_reduction_with_different_pilots_is_calibrated_to_the_union(apart) -> None:
    union = merge_coresets(apart, random_state=0)
    merged = merge_coresets(apart, coreset_size=150, random_state=0)
    plain = merge_coresets(apart, coreset_size=150, calibrate=False, random_state=0)
    exact, by_merged, by_plain = (OBJECTIVE.survey(c, merged.pilot).totals for c in (union, merged, plain))
    drawn = by_merged[:, 0] > 0
    np.testing.assert_allclose(by_merged[drawn, 0], exact[drawn, 0], rtol=1e-4)
    assert not np.allclose(by_plain[drawn, 0], exact[drawn, 0], rtol=1e-2)


def test_merged_draws_are_unbiased() -> None:
    """Hotelling's T^2 of the errors of four solutions, over draws at the sites and of the merge, all of one seed."""
    rng = np.random.default_rng(1)
    objective = KMeansObjective(n_clusters=2)
    sites = [rng.normal(size=(n, 2)) * scale for n, scale in ((200, 1.0), (60, 6.0))]
    weights = [rng.choice([0.5, 1.0, 4.0], len(site)) for site in sites]
    queries = [rng.normal(size=(2, 2)) * scale for scale in (0.5, 2.0, 5.0, 12.0)]

    def costs(X, weight) -> np.ndarray:
        return np.array([weight @ objective.cost(Block(X=X), query) for query in queries])

    full = sum(costs(X, w) for X, w in zip(sites, weights, strict=True))
    options = {"objective": objective, "calibrate": False}
    errors = []
    for seed in range(150):
        small = [
            build_coreset(X, sample_weight=w, coreset_size=30, random_state=seed, **options)
            for X, w in zip(sites, weights, strict=True)
        ]
        merged = merge_coresets(small, coreset_size=20, calibrate=False, random_state=seed)
        errors.append(costs(merged.X, merged.weights()) / full - 1.0)
    mean, spread = np.mean(errors, axis=0), np.cov(np.transpose(errors))
    n, q = len(errors), len(queries)
    t2 = n * mean @ np.linalg.solve(spread, mean)
    assert stats.f.sf(t2 * (n - q) / (q * (n - 1)), q, n - q) > 1e-4, mean


def test_merged_sites_cost_as_much_as_one_build(sites) -> None:
    everything = Block(
        X=np.concatenate([s.X for s in sites]), sample_weight=np.concatenate([s.weights() for s in sites])
    )
    objective = KMeansObjective(n_clusters=6)
    ratios = []
    for seed in range(5):
        small = [reduced(s, 10 * seed + i, objective=objective, coreset_size=200) for i, s in enumerate(sites)]
        merged = merge_coresets(small, coreset_size=200, random_state=seed)
        one = reduced(everything, seed, objective=objective, coreset_size=200)
        cost = []
        for coreset in (merged, one):
            centers = objective.solve(coreset, rng=np.random.default_rng(0))
            cost.append(everything.weights() @ objective.cost(everything, centers))
        ratios.append(cost[0] / cost[1])
    assert np.median(ratios) < 1.05, ratios


def test_totals_of_whole_coresets_are_taken_when_they_are_merged(sites, together) -> None:
    whole = together[-1]
    assert whole.is_whole and whole.totals is None
    merged = merge_coresets([together[0], whole], random_state=0)
    exact = together[0].totals + OBJECTIVE.survey(sites[-1], together[0].pilot).totals
    np.testing.assert_allclose(merged.totals, exact, rtol=1e-12)
    both = merge_coresets([whole, reduced(replace(sites[-1], X=sites[-1].X + 1.0), 9)], random_state=0)
    assert both.is_whole and both.totals is None and "totals" not in both.provenance


def test_the_pilot_of_a_merge_makes_totals_add_up_in_the_next_round(sites, apart) -> None:
    pilot = merge_coresets(apart, random_state=0).pilot
    again = merge_coresets([reduced(site, seed, pilot=pilot) for seed, site in enumerate(sites)], coreset_size=150)
    np.testing.assert_array_equal(again.pilot, pilot)
    assert again.totals is not None


def test_a_merge_of_merges_is_a_merge_of_all(apart) -> None:
    nested = merge_coresets([merge_coresets(apart[:2]), merge_coresets(apart[2:])], random_state=0)
    flat = merge_coresets(apart, random_state=0)
    np.testing.assert_array_equal(nested.row_ids(), flat.row_ids())
    assert [s.n_seen for s in nested.sites] == list(SIZES)
    with pytest.raises(ValueError, match="same coreset"):
        merge_coresets([flat, apart[3]])


def test_classes_and_logistic_totals(sites) -> None:
    objective = LogisticObjective(classes=("no", "yes"))
    first = reduced(sites[0], 0, objective=objective)
    second = reduced(sites[1], 1, objective=objective, pilot=first.pilot)
    merged = merge_coresets([first, second], coreset_size=120, random_state=0)
    exact = sum(objective.survey(site, first.pilot).totals for site in sites[:2])
    np.testing.assert_allclose(merged.totals, exact, rtol=1e-9)
    assert merged.y is not None and set(merged.y) == {"no", "yes"}
    other = reduced(sites[1], 1, objective=LogisticObjective(classes=("no", "perhaps", "yes")))
    with pytest.raises(ValueError, match=r"'perhaps'.*--classes"):
        merge_coresets([first, other])


def test_sparse_rows(sites) -> None:
    small = [
        build_coreset(sparse.csr_matrix(s.X), objective=OBJECTIVE, coreset_size=100, random_state=0) for s in sites[:2]
    ]
    merged = merge_coresets(small, coreset_size=90, random_state=0)
    assert sparse.issparse(merged.X) and merged.n_seen == sum(SIZES[:2])
    with pytest.raises(ValueError, match=r"sparse rows.*dense rows"):
        merge_coresets([small[0], reduced(sites[1], 0)])


def test_totals_that_are_partly_estimated_stay_so(together) -> None:
    estimated = replace(together[1], provenance={**together[1].provenance, "totals": "partly estimated"})
    assert merge_coresets([together[0], estimated]).provenance["totals"] == "of 2 sites, added up, partly estimated"


def test_one_coreset_can_be_reduced_further(apart) -> None:
    smaller = merge_coresets(apart[:1], coreset_size=40, random_state=0)
    assert len(smaller) <= 40 and smaller.n_seen == SIZES[0]
    np.testing.assert_array_equal(smaller.totals, apart[0].totals)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"objective": KMeansObjective(n_clusters=5)}, "n_clusters=4, site 2 n_clusters=5"),
        ({"objective": KMedianObjective(n_clusters=4)}, "kmeans, site 2 kmedian"),
    ],
)
def test_other_objectives_are_refused(sites, apart, options, match) -> None:
    with pytest.raises(ValueError, match=match):
        merge_coresets([apart[0], reduced(sites[1], 1, **options)])


def test_other_rows_are_refused(sites, apart) -> None:
    wide = Block(X=np.column_stack([sites[1].X, sites[1].X]), y=sites[1].y)
    with pytest.raises(ValueError, match=r"numbers of columns.*has 3, site 2 6"):
        merge_coresets([apart[0], reduced(wide, 1)])
    with pytest.raises(ValueError, match="text, site 2 no y"):
        merge_coresets([apart[0], reduced(replace(sites[1], y=None), 1)])
    stream = CoresetStream(OBJECTIVE, coreset_size=100, half_life=500.0, random_state=0)
    with pytest.raises(ValueError, match="half-lives"):
        merge_coresets([apart[0], stream.push(sites[1].X, sites[1].y).coreset()])


@pytest.mark.parametrize("given", [[], [3]])
def test_what_is_no_coreset_is_refused(given) -> None:
    with pytest.raises(ValueError, match="merge_coresets takes"):
        merge_coresets(given)
    with pytest.raises(ValueError, match="merge_coresets takes"):
        merge_coresets()


def test_coresets_may_be_given_one_by_one(apart) -> None:
    one_by_one, as_list = (merge_coresets(*given, random_state=0) for given in (apart, [apart]))
    np.testing.assert_array_equal(one_by_one.X, as_list.X)
    assert len(merge_coresets(apart[0], random_state=0)) == len(apart[0])


def test_the_same_coreset_twice_is_refused_unless_asked_for(apart) -> None:
    with pytest.raises(ValueError, match="count twice"):
        merge_coresets([apart[0], apart[1], apart[0]])
    assert merge_coresets([apart[0], apart[0]], allow_repeated=True).n_seen == 2 * SIZES[0]


def test_an_objective_that_is_not_described_must_be_given_to_reduce(apart) -> None:
    unknown = [replace(c, objective=None) for c in apart[:2]]
    assert len(merge_coresets(unknown)) == len(apart[0]) + len(apart[1])
    with pytest.raises(ValueError, match="objective="):
        merge_coresets(unknown, coreset_size=50)
    assert len(merge_coresets(unknown, coreset_size=50, objective=OBJECTIVE, random_state=0)) <= 50
    with pytest.raises(ValueError, match="not for"):
        merge_coresets(apart, objective=KMeansObjective(n_clusters=3))


def test_a_pilot_of_other_columns_is_refused(sites, apart) -> None:
    with pytest.raises(ValueError, match="pilot does not fit"):
        reduced(Block(X=sites[1].X[:, :2]), 0, pilot=apart[0].pilot)


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def merged_file(apart, tmp_path):
    save_coreset(merge_coresets(apart, coreset_size=150, random_state=0), tmp_path / "all.parquet")
    return tmp_path / "all.parquet"


def test_a_merged_coreset_survives_a_file(apart, merged_file) -> None:
    merged, again = merge_coresets(apart, coreset_size=150, random_state=0), load_coreset(merged_file)
    assert again.sites == merged.sites and again.n_seen == merged.n_seen
    assert packed(again) == packed(replace(merged, y=merged.y.astype(object)))
    assert again.objective == OBJECTIVE
    table = pq.read_table(merged_file)
    numbers, ids = merged.site_rows()
    np.testing.assert_array_equal(table["site"].to_numpy(), numbers)
    np.testing.assert_array_equal(table["row_id"].to_numpy(), ids)


def _lie(path, change) -> None:
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"tithe"])
    change(about)
    pq.write_table(table.replace_schema_metadata({b"tithe": json.dumps(about).encode()}), path)


@pytest.mark.parametrize(
    "lie",
    [
        lambda about: about["sites"].pop(),
        lambda about: about["sites"][1].update(first_row=0),
        lambda about: about["sites"][1].update(first_row=10),
        lambda about: about["sites"][0].update(n_seen=7),
        lambda about: about["sites"][0].update(weight_seen="much"),
        lambda about: about["sites"][0].pop("name"),
        lambda about: about.update(sites=[3]),
    ],
)
def test_damaged_sites_are_refused(merged_file, lie) -> None:
    _lie(merged_file, lie)
    with pytest.raises(FileFormatError):
        load_coreset(merged_file)


def test_totals_from_files_that_do_not_fit_are_refused(sites, apart, together, tmp_path) -> None:
    for number, coreset in enumerate(together[:2]):
        save_coreset(replace(coreset, pilot=coreset.pilot[:, :2]), tmp_path / f"{number}.parquet")
    with pytest.raises(FileFormatError, match="damaged"):
        merge_coresets([tmp_path / "0.parquet", tmp_path / "1.parquet"], coreset_size=50)
    save_coreset(replace(together[1], totals=together[1].totals[:3]), tmp_path / "1.parquet")
    with pytest.raises(FileFormatError, match="damaged"):
        merge_coresets([together[0], tmp_path / "1.parquet"])
    (tmp_path / "1.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(FileFormatError, match="not a whole Parquet file"):
        merge_coresets([tmp_path / "0.parquet", tmp_path / "1.parquet"])


@pytest.mark.parametrize("objective", [KMeansObjective(n_clusters=3), KMedianObjective(n_clusters=3)])
def test_sizes_of_sites_follow_their_costs(rng, objective) -> None:
    power = 2 if objective.name == "kmeans" else 1
    sites = [rng.normal(size=(2000, 2)), 5.0 * rng.normal(size=(2000, 2)), np.ones((50, 2))]
    small = [build_coreset(X, objective=objective, coreset_size=150, random_state=0) for X in sites]
    sizes = site_sizes(small, 1000, random_state=0)
    assert sum(sizes) == 1000 and sizes[2] == 1  # all of its rows are equal
    assert sizes[1] / sizes[0] == pytest.approx(5.0**power, rel=0.15)
    assert site_sizes(small, 405, by="weight") == [200, 200, 5]
    assert site_sizes(small, 3) == [1, 1, 1]


def test_sizes_of_sites_by_cost_need_clusters(rng) -> None:
    X = rng.normal(size=(500, 2))
    coreset = build_coreset(X, X[:, 0] > 0, objective="logistic", coreset_size=50, random_state=0)
    with pytest.raises(ValueError, match="by='weight'"):
        site_sizes([coreset], 10)
    with pytest.raises(ValueError, match="coreset_size"):
        site_sizes([coreset, coreset], 1)


def test_sites_without_gaps_need_no_common_median(tmp_path) -> None:
    """What would fill the gaps of a column says nothing of rows without any."""
    rng = np.random.default_rng(0)
    parts = []
    for site in range(2):
        path = tmp_path / f"{site}.parquet"
        pd.DataFrame(rng.normal(site, 1.0, (2000, 2)), columns=["a", "b"]).to_parquet(path)
        source = tithe.open_dataset(path, scale="none")
        parts.append(tithe.build_coreset(source, objective="kmeans", coreset_size=100, random_state=site))
    assert tithe.merge_coresets(parts, coreset_size=100, random_state=0).n_seen == 4000
    frame = pd.read_parquet(path)
    frame.loc[3, "a"] = np.nan
    with_gaps = tithe.build_coreset(
        tithe.open_dataset(frame, scale="none"), objective="kmeans", coreset_size=100, random_state=0
    )
    with pytest.raises(ValueError, match="a differs"):
        tithe.merge_coresets([parts[0], with_gaps], coreset_size=100, random_state=0)
