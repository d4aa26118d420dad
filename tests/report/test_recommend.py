from __future__ import annotations

import pytest

from tithe.report.advice import Adviser, Recommendation


def _line(method: str, size: int, excess: float, seconds: float, fit: float = 0.01, worst: float | None = None) -> dict:
    return {
        "method": method,
        "is_sample": method.startswith("weighted uniform"),
        "polished": method.endswith("polished"),
        "size": size,
        "rows": size,
        "n_repeats": 3,
        "quality": 0.9,
        "excess": excess,
        "excess_high": excess if worst is None else worst,
        "excess_limit": excess if worst is None else worst,
        "seconds": seconds,
        "seconds_draw": seconds - fit,
        "seconds_fit": fit,
    }


FULL = _line("all rows", 100_000, 0.0, 10.0, fit=10.0)
SAMPLE, CORESET = "weighted uniform", "calibrated influence"


def _adviser(*lines: dict, full: dict = FULL) -> Adviser:
    return Adviser(table=[full, *lines], tol=0.01, n_rows=100_000, quality="accuracy")


def _of(*lines: dict, full: dict = FULL) -> Recommendation:
    return _adviser(*lines, full=full).recommendation()


def test_a_coreset_where_no_sample_suffices() -> None:
    said = _of(_line(SAMPLE, 1000, 0.2, 0.1), _line(CORESET, 1000, 0.001, 0.2), _line(SAMPLE, 5000, 0.05, 0.3))
    assert (said.verdict, said.method, said.size) == ("coreset", CORESET, 1000)
    assert "1 % of the rows (1,000) suffice" in str(said) and "20 %" in str(said) and "5,000 rows" in str(said)


def test_a_sample_where_it_suffices_at_the_same_size() -> None:
    said = _of(_line(SAMPLE, 1000, 0.005, 0.1), _line(CORESET, 1000, 0.004, 0.2))
    assert (said.verdict, said.size) == ("sample", 1000)
    assert str(said).startswith("Use a random sample: a coreset brings nothing here.") and "matters only" not in str(
        said
    )
    better = _of(_line(SAMPLE, 1000, 0.005, 0.1), _line(CORESET, 1000, 0.0001, 0.2))
    assert better.verdict == "sample" and "matters only if you need less than 1 %" in str(better)


def test_a_larger_sample_that_is_quicker_than_a_coreset() -> None:
    lines = [
        _line(SAMPLE, 1000, 0.1, 0.01),
        _line(CORESET, 1000, 0.001, 1.0),
        _line(SAMPLE, 5000, 0.005, 0.3, fit=0.25),
    ]
    said = _of(*lines)
    assert (said.verdict, said.size) == ("sample", 5000)
    assert "For 4 fits or more" in str(said)  # 0.99 - 0.05 s for the draw, 0.24 s saved by each fit
    lines[2] = _line(SAMPLE, 5000, 0.005, 2.0, fit=1.9)
    assert _of(*lines).verdict == "coreset" and "needs 5,000 rows" in str(_of(*lines))
    lines[2] = _line(SAMPLE, 5000, 0.005, 0.3, fit=0.005)
    assert "saves rows, not time" in str(_of(*lines))


def test_a_fit_on_all_rows_that_is_quickest_is_said_beside_the_size_that_suffices() -> None:
    quick = _line("all rows", 100_000, 0.0, 0.05, fit=0.05)
    said = _of(_line(SAMPLE, 1000, 0.2, 0.01), _line(CORESET, 1000, 0.001, 0.2), full=quick)
    assert (said.verdict, said.size) == ("coreset", 1000)
    assert "A single fit is quickest on all rows; once drawn, few rows take 10 ms a fit." in str(said)
    assert "quickest" not in str(_of(_line(SAMPLE, 1000, 0.2, 0.01), _line(CORESET, 1000, 0.001, 0.2)))


def test_all_rows_where_ninety_percent_of_them_do_not_suffice() -> None:
    lines = [_line(method, size, 0.5, 1.0) for method in (SAMPLE, CORESET) for size in (1000, 50_000)]
    assert _of(*lines).verdict == "larger size" and _adviser(*lines).next_draws(20) == (CORESET, 90_000)
    lines += [_line(method, 90_000, 0.3, 1.0) for method in (SAMPLE, CORESET)]
    said = _of(*lines)
    assert (said.verdict, said.method, said.size) == ("all rows", "all rows", 100_000)
    assert str(said).startswith("Use all rows. None of the sizes tried suffices") and said.tried
    assert _adviser(*lines).next_draws(20) is None


def test_what_is_drawn_next() -> None:
    """Sizes at which too few draws are known, then larger ones, until one that suffices has enough draws."""
    small = [_line(SAMPLE, 1000, 0.2, 0.1), _line(CORESET, 1000, 0.02, 0.1, worst=0.04)]
    method, size = _adviser(*small).next_draws(20)
    assert method == CORESET and 1150 <= size <= 4000
    small.append(_line(SAMPLE, size, 0.2, 0.1))
    good = {**_line(CORESET, size, 0.004, 0.1, worst=0.008), "excess_limit": 0.02}  # none is above, but they are few
    assert _adviser(*small, good).next_draws(20) == (CORESET, size)
    known = {**good, "n_repeats": 20}
    assert _adviser(*small, known).next_draws(20)[1] >= 1.15 * size
    enough = {**known, "excess_limit": 0.009}
    near = _line(CORESET, int(size / 1.4), 0.02, 0.1)
    assert _adviser(*small, near, enough).next_draws(20) is None
    assert _adviser(*small, near, {**enough, "n_repeats": 10}).next_draws(20) == (CORESET, size)
    enough["excess_limit"] = 0.001
    small[1] = _line(CORESET, 100, 0.02, 0.1, worst=0.1)  # far fewer rows: those between may suffice as well
    method, between = _adviser(*small, enough).next_draws(20)
    assert method == CORESET and 115 <= between < size / 1.15


@pytest.mark.parametrize("sample_excess", [0.031, 0.2])
def test_more_rows_where_none_suffices(sample_excess: float) -> None:
    said = _of(_line(SAMPLE, 1000, sample_excess, 0.01), _line(CORESET, 1000, 0.03, 0.2))
    assert (said.verdict, said.size) == ("larger size", 3800) and "about 3,800 rows by" in str(said)
    assert not said.tried and "was not tried" in str(said)
    assert ("brings nothing" in str(said)) == (sample_excess < 0.04)


def test_the_worst_repeat_decides_and_luck_at_a_small_size_does_not() -> None:
    lucky = [
        _line(CORESET, 100, 0.001, 0.1),
        _line(CORESET, 1000, 0.001, 0.2, worst=0.5),
        _line(SAMPLE, 100, 1.0, 0.01),
    ]
    lines = [*lucky, _line(SAMPLE, 1000, 1.0, 0.01), _line(CORESET, 5000, 0.001, 0.2), _line(SAMPLE, 5000, 1.0, 0.01)]
    assert _of(*lines).size == 5000


def test_fits_on_all_rows_that_differ_among_themselves_are_allowed_for() -> None:
    full = _line("all rows", 100_000, 0.03, 10.0, fit=10.0)
    said = _of(_line(SAMPLE, 1000, 0.5, 0.01), _line(CORESET, 1000, 0.035, 0.2), full=full)
    assert said.verdict == "coreset" and "is itself 3 % above the best of them" in str(said)
    # like is compared with like: the worst with the worst, the typical with the typical
    full = _line("all rows", 100_000, 0.033, 10.0, fit=10.0, worst=0.081)
    lines = _line(SAMPLE, 1000, 0.5, 0.01), _line(CORESET, 1000, 0.051, 0.2, worst=0.061)
    said = _of(*lines, full=full)
    assert said.verdict == "coreset" and "3.3 % above the best of them, at worst 8.1 %" in str(said)
    assert _of(lines[0], _line(CORESET, 1000, 0.08, 0.2, worst=0.085), full=full).verdict == "larger size"


def test_a_sample_in_the_place_of_all_rows_is_no_measure_of_what_may_be_lost() -> None:
    for lost in (9.83, float("inf")):
        reference = _line("weighted uniform, the largest affordable", 5000, lost, 0.1)
        lines = _line(SAMPLE, 1000, 9.83, 0.01), _line(CORESET, 1000, 2e-5, 0.2)
        said = _of(*lines, full=reference)
        assert (said.verdict, said.method) == ("coreset", CORESET) and "too expensive to compare with" in str(said)
    best = _of(lines[0], _line(CORESET, 1000, 0.0, 0.2), full=reference)
    assert "the lowest loss of all" in str(best) and "than a fit on all rows" not in str(best)


def test_a_small_excess_with_more_rows_does_not_make_fewer_rows_luck() -> None:
    lines = [_line(SAMPLE, 1000, 0.2, 0.01), _line(SAMPLE, 5000, 0.009, 0.3), _line(CORESET, 1000, 0.002, 0.1)]
    said = _of(*lines, _line(CORESET, 5000, 0.004, 0.2, worst=0.012))
    assert (said.verdict, said.size) == ("coreset", 1000)


def test_polish_is_recommended_only_where_nothing_else_suffices() -> None:
    lines = [_line(SAMPLE, 1000, 0.5, 0.01), _line(f"{SAMPLE}, polished", 1000, 0.1, 1.0)]
    polished = _line(f"{CORESET}, polished", 1000, 0.0001, 1.0)
    assert _of(*lines, _line(CORESET, 1000, 0.005, 0.2), polished).method == CORESET
    said = _of(*lines, _line(CORESET, 1000, 0.05, 0.2), polished)
    assert said.method == polished["method"] and "10 %" in str(said)
