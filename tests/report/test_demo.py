"""The demonstration: generated payments, and a page that explains itself."""

from __future__ import annotations

import contextlib
import io
import json
import re

import numpy as np
import pytest

from tithe.cli.main import main
from tithe.report.demo import CORESET, N_GROUPS, N_ORDINARY, N_RARE, SAMPLE, Payments
from tithe.storage.coresets import load_coreset
from tithe.storage.models import load_model


def test_payments() -> None:
    payments = Payments.generated(50_000)
    sizes = np.bincount(payments.group)
    assert len(payments.X) == 50_000 and len(sizes) == N_GROUPS
    assert sizes[N_ORDINARY:].sum() < 0.005 * 50_000 < sizes[:N_ORDINARY].min()


def test_a_rare_group_is_found_if_a_cluster_is_mostly_this_group() -> None:
    payments = Payments.generated(10_000)
    assert payments.rare_found(payments.group).all()
    merged = np.where(payments.group == N_GROUPS - 1, 0, payments.group)  # the last group is part of an ordinary one
    assert payments.rare_found(merged).tolist() == [True] * (N_RARE - 1) + [False]
    in_thirds = np.where(payments.group == N_ORDINARY, N_GROUPS + np.arange(10_000) % 3, payments.group)
    assert payments.rare_found(in_thirds).tolist() == [False] + [True] * (N_RARE - 1)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a small demonstration, and what was printed."""
    folder, printed = tmp_path_factory.mktemp("demo") / "report", io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(["demo", "--rows", "20000", "-m", "300", "-o", str(folder)])
    return folder, printed.getvalue()


def test_the_coreset_keeps_the_groups_that_a_sample_loses(demo) -> None:
    folder, printed = demo
    numbers = json.loads((folder / "results.json").read_text())
    by_name = {line["method"]: line for line in numbers["methods"]}
    assert by_name[CORESET]["groups"] >= 9 and by_name[SAMPLE]["groups"] <= 4
    assert f"found {by_name[CORESET]['groups']} of the 10 rare groups" in printed
    assert numbers["in_short"] in printed and str(folder / "index.html") in printed.replace("\n", "")


def test_the_page_has_the_numbers_of_the_json(demo) -> None:
    folder, _ = demo
    page, numbers = (folder / "index.html").read_text(), json.loads((folder / "results.json").read_text())
    shown = re.findall(r'<data class="(\w+)" value="([^"]*)">', page)
    fields = list(dict.fromkeys(field for field, _ in shown))
    assert shown == [(field, str(line[field])) for line in numbers["methods"] for field in fields]
    assert {"groups", "seconds", "times_as_long", "excess"} < set(fields)
    assert page.count("data:image/png;base64,") == 2 and "http" not in page.split("</style>")[1]
    for heading in ("What was done", "What one sees", "The certificate", "What to do next"):
        assert f"<h2>{heading}</h2>" in page
    assert load_model(folder / "model.tithe").n_clusters == N_GROUPS
    assert len(load_coreset(folder / "coreset.parquet")) <= 300


def test_a_demonstration_that_keeps_all_rows_is_refused(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--rows", "10000", "-m", "10000", "-o", str(tmp_path / "out")])
    assert stop.value.code == 2 and "ask for fewer" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
