"""Dictionaries of atoms, and pictures cleaned with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fingerprints import data
from fingerprints.models import fitted, in_batches, saved
from fingerprints.table import item
from tithe.dictionary import KSVD, ImageDenoiser, Reference

SMALL: dict[str, Any] = {"n_nonzero_coefs": 2, "max_iter": 5, "random_state": 0}
CHOICES: dict[str, dict[str, Any]] = {
    "coreset": {"coreset_size": 200},
    "uniform": {"coreset_size": 200, "construction": "uniform"},
    "refined": {"coreset_size": 200, "refine_iter": 2},
    "mean_line": {"coreset_size": 200, "reference": "mean_line"},
    "singular": {"coreset_size": 200, "reference": Reference("singular", 2, beta=0.0, include=True)},
    "tol": {"n_nonzero_coefs": None, "tol": 0.05},
    "lasso": {"alpha": 0.1},
    "positive": {"positive": True},
    "exact": {"variant": "exact"},
    "plain": {"variant": "plain"},
    "centered": {"center": "row"},
    "two_starts": {"n_init": 2},
    "dct": {"initial": "dct"},
}
PICTURE: dict[str, Any] = {"n_components": 32, "coreset_size": 300, "max_iter": 3, "refine_iter": 1, "random_state": 0}


@item("ksvd/fit", fast=True)
def fit(folder: Path) -> dict[str, Any]:
    X = data.signals()
    model = KSVD(10, **SMALL).fit(X)
    codes = model.encode(X[:50])
    parts = fitted(model, X[:50]) | {"certify": model.certify(X), "codes": codes, "back": model.reconstruct(X[:50])}
    parts |= saved(model, X[:50], folder)
    return parts | {"more": model.refine(X, n_iter=1).components_}


def _enter(name: str, options: dict[str, Any]) -> None:
    @item(f"ksvd/{name}")
    def of_options(folder: Path) -> dict[str, Any]:
        X = data.signals()
        return fitted(KSVD(10, **{**SMALL, **options}).fit(X), X[:50])


for _name, _options in CHOICES.items():
    _enter(_name, _options)


@item("ksvd/weighted")
def weighted(folder: Path) -> dict[str, Any]:
    X = data.signals()
    return fitted(KSVD(10, coreset_size=200, **SMALL).fit(X, sample_weight=data.weights(len(X))), X[:50])


@item("ksvd/partial_fit")
def in_parts(folder: Path) -> dict[str, Any]:
    X = data.signals()
    return fitted(in_batches(KSVD(10, coreset_size=200, **SMALL), X, step=300), X[:50])


@item("denoiser/gray", fast=True)
def gray(folder: Path) -> dict[str, Any]:
    image = data.picture()
    model = ImageDenoiser(15.0, **PICTURE).fit(image)
    parts = fitted(model) | {"denoised": model.denoise(image), "certify": model.certify(image)}
    return parts | {"back": model.reconstruct(image)}


@item("denoiser/colours")
def colours(folder: Path) -> dict[str, Any]:
    image = data.picture(colours=True)
    parts = {"planes": ImageDenoiser(15.0, **PICTURE).fit_denoise(image)}
    return parts | {"stacked": ImageDenoiser(15.0, patch_size=5, colours="stacked", **PICTURE).fit_denoise(image)}


@item("denoiser/unknown_noise")
def unknown_noise(folder: Path) -> dict[str, Any]:
    image = data.picture()
    model = ImageDenoiser(**PICTURE).fit(image)
    parts = {"denoised": model.denoise(image), "others": fitted(model)["others"]}
    return parts | {"clipped": ImageDenoiser(20.0, clipped=True, **PICTURE).fit_denoise(image)}


@item("denoiser/inpaint")
def inpainted(folder: Path) -> dict[str, Any]:
    image = data.picture().astype(float)
    mask = (data.clouds()[: image.size, 0].reshape(image.shape) % 1.0) < 0.7
    return {"image": ImageDenoiser(15.0, **PICTURE).fit_inpaint(image, mask)}
