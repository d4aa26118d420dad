from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from running import run

from tithe import choose_k


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 0.1, size=(300, 2)) for c in ([0, 0], [4, 0], [0, 4], [4, 4])])
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pd.DataFrame(X, columns=["a", "b"]).to_parquet(path)
    return path, X


def test_separated_clusters_are_counted_and_the_curve_is_written(rows, tmp_path, capsys) -> None:
    path, X = rows
    assert run("choose-k", path, "--scale", "none", "-m", 300, "--max-clusters", 12, "-o", tmp_path / "k.json") == 0
    printed = capsys.readouterr().out
    assert "k = 4 by the rule 'separation'" in printed and "4 (chosen)" in printed
    answer = json.loads((tmp_path / "k.json").read_text())
    same = choose_k(X, coreset_size=300, max_clusters=12, random_state=0)
    assert (answer["k"], answer["met"]) == (same.k, True) == (4, True)
    costs = [answer["curve"][k] for k in sorted(answer["curve"], key=int)]
    assert costs == sorted(costs, reverse=True)


def test_a_number_names_its_rule(rows, tmp_path, capsys) -> None:
    path, X = rows
    out = tmp_path / "k.json"
    command = ["choose-k", path, "--scale", "none", "-m", 600, "-o", out]
    noise = 2 * 0.01 * len(X)  # cost of the clusters that were planted
    for options in (["--budget", 2 * noise], ["--penalty", 5 * noise], ["--eta", 0.45]):
        assert run(*command, *options, "--max-clusters", 8) == 0
        answer = json.loads(out.read_text())
        assert answer["k"] == 4 and answer["rule"] == {"--eta": "relative"}.get(options[0], options[0][2:])
    capsys.readouterr()
    assert run(*command, "--budget", 1e-9, "--max-clusters", 3) == 0
    said = capsys.readouterr()
    assert "which is not met" in said.out and "Raise --max-clusters" in said.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rule", "budget"], "needs a number: --budget COST"),
        (["--rule", "separation", "--eta", "0.1"], "--eta is for --rule relative"),
        (["--budget", "1", "--penalty", "2"], "--penalty is for --rule penalty"),
        (["--budget", "-1"], "x>0"),
    ],
)
def test_mistakes_are_named(rows, capsys, options, message: str) -> None:
    assert run("choose-k", rows[0], *options) == 2
    assert message in capsys.readouterr().err
