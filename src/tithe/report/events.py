"""How well the rarer of two classes is found: by scores, by curves, and by the alarms from each threshold on."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from tithe.certify.certificate import share_of_all
from tithe.core.data import Array
from tithe.report.svg import DIM, Figure, Scale
from tithe.report.tables import ResultTable, number

RARE = 0.2  # share of the rows from which on a class is no rare event
_ALARMS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # shares of the rows that a threshold names
_MIN_ALARMS = 5.0  # rows: the precision of fewer is luck
_CURVE_POINTS = 100
_SURE = 4.0  # standard deviations by which chances must be wrong on average to be called wrong


def rarer_class(is_second: Array, weight: Array) -> int:
    """The number of the class with less weight: the event that a classifier of two classes is asked for."""
    return int(2.0 * float(weight[is_second].sum()) <= float(weight.sum()))


def event_scores(happened: Array, margins: Array, alarms: Array, weight: Array) -> dict[str, float]:
    """F1 of the event; AUC and average precision as well, unless it happened in all rows or in none."""
    scores = {"f1": float(f1_score(happened, alarms, sample_weight=weight, zero_division=0.0))}
    if 0 < np.count_nonzero(happened) < len(happened):
        scores["auc"] = float(roc_auc_score(happened, margins, sample_weight=weight))
        scores["average_precision"] = float(average_precision_score(happened, margins, sample_weight=weight))
    return scores


def event_details(label: str, happened: Array, margins: Array, alarms: Array, weight: Array) -> dict[str, Any]:
    """What tables, curves and sentences tell of the event; ``margins`` rise with its chance."""
    total, found = float(weight.sum()), float(weight @ (happened & alarms))
    events, raised = float(weight @ happened), float(weight @ alarms)
    details = {"label": label, "n_rows": int(np.count_nonzero(happened)), "share": events / total}
    details |= {"recall": found / events if events else None, "precision": found / raised if raised else None}
    if not 0.0 < events < total:
        return details
    order = np.argsort(-margins, kind="stable")
    last = np.append(np.flatnonzero(np.diff(margins[order])), len(order) - 1)  # equal margins are alarms together
    mass, hits = np.cumsum(weight[order])[last], np.cumsum((weight * happened)[order])[last]
    recall, false_alarms = hits / events, (mass - hits) / (total - events)
    shown = np.unique(
        [
            np.searchsorted(share, np.linspace(0.0, share[-1], _CURVE_POINTS))
            for share in (recall / recall[-1], false_alarms)
        ]
    )
    at = np.unique(np.searchsorted(mass, [share * total for share in _ALARMS if share * total >= _MIN_ALARMS]))
    return details | {
        "thresholds": [
            {
                "threshold": float(margins[order[last[i]]]),
                "alarms_per_thousand": float(1000.0 * mass[i] / total),
                "precision": float(hits[i] / mass[i]),
                "recall": float(recall[i]),
            }
            for i in at
        ],
        "curve": {
            "recall": recall[shown].tolist(),
            "false_alarms": false_alarms[shown].tolist(),
            "precision": (hits / mass)[shown].tolist(),
        },
    }


def chances_on_average(happened: Array, chances: Array, weight: Array) -> dict[str, Any]:
    """The mean chance beside the share of the rows where it happened, and whether their difference is no luck."""
    off = float(weight @ (chances - happened))
    luck = float(np.sqrt(np.square(weight) @ (chances * (1.0 - chances))))
    means = {
        "predicted": float(np.average(chances, weights=weight)),
        "observed": float(np.average(happened, weights=weight)),
    }
    return {**means, "are_wrong": abs(off) > _SURE * luck}


def event_in_words(event: dict[str, Any]) -> str:
    """What is found of the event, and whether its chances are right on average."""
    said, label = "", event["label"]
    if event["recall"] is not None:
        right = (
            "it raises no alarm"
            if event["precision"] is None
            else f"{share_of_all(event['precision'])} of its alarms are right"
        )
        rows = (
            f"{event['n_rows']:,} row{'s' * (event['n_rows'] != 1)} of {label} ({share_of_all(event['share'])} of all)"
        )
        said = f" Of the {rows} it finds {share_of_all(event['recall'])}; {right}."
    chances = event.get("chances")
    if chances is None:
        return said
    means = f"{share_of_all(chances['predicted'])} predicted on average, {share_of_all(chances['observed'])} happened"
    if not chances["are_wrong"]:
        return f"{said} Its chances of {label} are right on average: {means}."
    off = "high" if chances["predicted"] > chances["observed"] else "low"
    advice = "Weights of classes can do that: calibrate the chances."
    return f"{said} Its chances of {label} are too {off}: {means}. {advice}"


def threshold_table(event: dict[str, Any]) -> ResultTable:
    """What alarms would cost from each threshold on."""
    rows = [
        [
            number(row["threshold"]),
            number(row["alarms_per_thousand"]),
            share_of_all(row["precision"]),
            share_of_all(row["recall"]),
        ]
        for row in event["thresholds"]
    ]
    label, measure = event["label"], "decision value" if event.get("chances") is None else "chance"
    return ResultTable(
        title=f"Alarms of {label}, by the {measure} from which on they are raised (rows held out)",
        columns=["from", "alarms in 1,000 rows", "precision", "recall"],
        rows=rows,
        note=f"Precision: the share of the alarms that are {label}. Recall: the share of {label} that is found. "
        f"At random {share_of_all(event['share'])} of the alarms are right.",
        on_terminal=event["share"] < RARE,
    )


def event_figures(event: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """By caption: the ROC and the precision-recall curve, each with a note on how to read it."""
    curve, share, label = event["curve"], event["share"], event["label"]
    found = f"{label} found (recall)"
    false_alarms, recall = [0.0, *curve["false_alarms"]], [0.0, *curve["recall"]]
    return {
        f"How many of {label} are found, at which share of false alarms? (ROC, rows held out)": (
            _curve(false_alarms, recall, (0.0, 1.0), "false alarms, share of the other rows", found),
            f"Each point is a threshold. {share_of_all(share)} of the rows are {label}: where that is little, a small "
            "share of false alarms may still be most of the alarms, which the next figure shows.",
        ),
        f"How many alarms of {label} are right? (precision and recall, rows held out)": (
            _curve(curve["recall"], curve["precision"], (share, share), found, "alarms that are right (precision)"),
            f"Each point is a threshold. Alarms at random are right for {share_of_all(share)}: the dashed line.",
        ),
    }


def _curve(x: list[float], y: list[float], random: tuple[float, float], x_label: str, y_label: str) -> str:
    shares = Scale(0.0, 1.0, percent=True)
    figure = Figure(shares, shares, x_label, y_label, height=380.0)
    figure.line([0.0, 1.0], random, DIM, label="at random", dashed=True)
    figure.line(x, y, label="this model")
    return figure.svg()
