"""``tithe choose-k``: the number of clusters of the rows in files, by one of four rules."""

from __future__ import annotations

import json

import click

from tithe.cli.main import Command
from tithe.cli.options import POSITIVE, SHARE, SIZE, seed_option
from tithe.cli.screen import print_table, say
from tithe.cli.sources import source_options
from tithe.core.files import replacing

_MEANINGS = {  # of the answer of a rule
    "separation": (
        "This is the number of clusters with gaps between them; 1 means that there are no gaps. If fewer than seven of "
        "the eight coresets agree, there is no clear number. Other rules: --rule relative, --budget COST and "
        "--penalty COST."
    ),
    "relative": "Twice as many clusters would save less than the share --eta of the cost.",
    "budget": "This is the smallest number of clusters that costs no more than --budget.",
    "penalty": "This number of clusters has the smallest cost, --penalty for each cluster included.",
}


@click.command("choose-k", cls=Command)
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "--rule",
    type=click.Choice(["separation", "relative", "budget", "penalty"]),
    help="Clusters with gaps between them; doubling k saves less than --eta; a cost of at most --budget; the least "
    "cost with --penalty for each cluster. [default: the one that a number is given for, else separation]",
)
@click.option("--eta", type=SHARE, help="Share of the cost, for --rule relative. [default: 0.05]")
@click.option("--budget", type=POSITIVE, metavar="COST", help="For --rule budget.")
@click.option("--penalty", type=POSITIVE, metavar="COST", help="For --rule penalty.")
@click.option("--max-clusters", type=click.IntRange(min=1), default=64, help="The largest answer.")
@click.option("--objective", type=click.Choice(["kmeans", "kmedian"]), default="kmeans")
@click.option("-m", "--size", type=SIZE, default=5000, help="Rows to keep, or a fraction of them.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="JSON file for k and the costs.")
@source_options
@seed_option
def choose_k(where, rule, eta, budget, penalty, max_clusters, objective, size, output, how, seed):  # type: ignore[no-untyped-def]
    """Choose a number of clusters for the rows, on coresets, and show the cost of each number that was tried.

    The cost never rises with the number of clusters. It is that on the coreset: tithe fit certifies a solution. Rows
    are read once.

    \b
    Example:
      tithe choose-k rows.parquet
      tithe choose-k 'data/*.csv' --budget 1e6 -m 10000 -o curve.json
    """
    numbers = {"relative": eta, "budget": budget, "penalty": penalty}
    given = [name for name, number in numbers.items() if number is not None]
    rule = rule or (given[0] if given else "separation")
    for name in given:
        if name != rule:
            flag = "eta" if name == "relative" else name
            raise click.UsageError(f"--{flag} is for --rule {name}, and the rule is {rule}.")
    if rule in ("budget", "penalty") and not given:
        raise click.UsageError(f"--rule {rule} needs a number: --{rule} COST.")
    source = how.open(where)
    from tithe import choose_k as choose

    result = choose(
        source,
        rule=rule,
        budget=budget,
        eta=0.05 if eta is None else eta,
        penalty=penalty,
        max_clusters=max_clusters,
        objective=objective,
        coreset_size=size,
        random_state=seed,
    )
    first = next(iter(result.curve.values()))
    counts = ", ".join(f"{k} ({n} times)" if n > 1 else f"{k}" for k, n in result.votes.items())
    votes = f"; found on {sum(result.votes.values())} coresets: {counts}" if rule == "separation" else ""
    print_table(
        f"{objective}: k = {result.k} by the rule {rule!r}{'' if result.met else ', which is not met'}{votes}",
        ["clusters", "cost on the coreset", "over the first"],
        [
            [f"{k}{' (chosen)' if k == result.k else ''}", f"{cost:.6g}", f"{cost / first:.3g}" if first > 0.0 else "1"]
            for k, cost in result.curve.items()
        ],
    )
    say(_MEANINGS[rule])
    if output is not None:
        answer = {"k": result.k, "rule": rule, "met": result.met, "objective": objective, "curve": result.curve}
        answer["votes"] = result.votes
        with replacing(output) as temporary:
            temporary.write_text(json.dumps(answer, indent=2) + "\n")
