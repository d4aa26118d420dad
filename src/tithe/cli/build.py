"""``tithe build``: rows in a file to a coreset in a file."""

from __future__ import annotations

import click

from tithe.cli.common import Size, make_objective, objective_options, print_table, steps
from tithe.core.registry import names


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="Parquet file to write.")
@click.option("-m", "--size", type=Size(), default=5000, show_default=True, help="Rows to keep, or a fraction.")
@objective_options
@click.option(
    "--construction",
    type=click.Choice(["auto", *names("construction")]),
    default="auto",
    show_default=True,
    help="How rows are chosen.",
)
@click.option("--calibrate/--no-calibrate", default=True, show_default=True, help="Adjust weights to exact totals.")
@click.option("--target", metavar="COLUMN", help="Column to carry along as y.")
@click.option("--weight", metavar="COLUMN", help="Column of weights.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--check/--no-check", default=True, show_default=True, help="Measure the distortion on random solutions.")
def build(
    file, output, size, objective, clusters, inverse_penalty, construction, calibrate, target, weight, seed, check
):  # type: ignore[no-untyped-def]
    """Reduce FILE (.npy, .npz, .csv, .parquet) to a small weighted Parquet file.

    \b
    Example:
      tithe build rows.parquet -k 20 -m 5000 --weight w -o coreset.parquet
      tithe build rows.parquet --objective logistic --target y -m 0.01 -o coreset.parquet
    """
    if objective == "logistic" and target is None:
        raise click.UsageError("--objective logistic needs --target, the column of classes.")
    if target is not None and target == weight:
        raise click.UsageError("--target and --weight name the same column.")
    with steps(4) as step:
        step("reading")
        from tithe.build import reduce_source
        from tithe.metrics import distortion, random_queries
        from tithe.persist import check_output, free_names, save_coreset
        from tithe.report.collect import pass_time
        from tithe.sources.arrays import ArraySource, as_block
        from tithe.sources.files import read_rows

        check_output(output, beside=file)
        X, y, w, names = read_rows(file, target=target, weight=weight)
        block = as_block(X, y, w)
        goal = make_objective(objective, clusters, inverse_penalty)
        step("reducing")
        from time import perf_counter

        start = perf_counter()
        coreset = reduce_source(
            ArraySource(block),
            objective=goal,
            construction=construction,
            coreset_size=size,
            calibrate=calibrate,
            random_state=seed,
        )
        seconds = perf_counter() - start
        step("checking")
        rows = [
            ["rows", f"{len(block):,}"],
            ["rows kept", f"{len(coreset):,} ({len(coreset) / len(block):.2%})"],
            ["construction", str(coreset.provenance["construction"])],
            ["effective sample size", f"{coreset.effective_size:,.0f}"],
            ["weight kept", f"{coreset.weights().sum() / coreset.weight_seen:.6f}"],
            ["passes", f"{seconds / pass_time(block.X):.1f}"],
        ]
        if check and objective == "logistic":
            from tithe.certify import certify_gap
            from tithe.core.seeding import rng_for

            fitted = goal.for_rows(block)
            params = fitted.solve(coreset, rng=rng_for(seed, "solve"))
            gap = certify_gap(fitted, block, params, coreset)
            rows.append(["excess loss of a fit on it", f"{gap.relative:.2g} ({gap.kind})"])
        elif check and objective != "generic":
            queries = {"random": random_queries(block, clusters, n_bases=2, seed=seed + 1)}
            middle, most = distortion(block, coreset, goal, queries=queries).summary()["random"]
            rows.append(["distortion, random solutions", f"median {middle:.4f}, max {most:.4f}"])
        step("writing")
        save_coreset(coreset, output, feature_names=None if names is None else free_names(names))
    print_table(f"{output}", ["", ""], rows)
