"""
A photograph without its noise
==============================

`ImageDenoiser` learns a dictionary of small patches from the noisy picture itself, from a coreset of its patches, and
then writes every patch as a sum of few atoms. Noise is not a sum of few atoms, so it is left out.
"""

# %%
# A part of a photograph that scikit-learn has, in grey, with noise of standard deviation 25.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from tithe.dictionary import ImageDenoiser

clean = load_sample_image("china.jpg")[80:336, 180:436].mean(axis=2)
noisy = clean + 25 * np.random.default_rng(0).normal(size=clean.shape)

# %%
# Learn the atoms and denoise. ``sigma="auto"`` would estimate the noise from the picture.

model = ImageDenoiser(sigma=25, random_state=0).fit(noisy)
better = model.denoise(noisy)


def psnr(picture):
    """Peak signal-to-noise ratio in dB: larger is better."""
    return 10 * np.log10(255**2 / np.mean((picture - clean) ** 2))


print(f"{psnr(noisy):.1f} dB with noise, {psnr(better):.1f} dB without")
figure, panels = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
for axes, picture, title in [
    (panels[0], clean, "photograph"),
    (panels[1], noisy, f"noisy, {psnr(noisy):.1f} dB"),
    (panels[2], better, f"denoised, {psnr(better):.1f} dB"),
]:
    axes.imshow(picture, cmap="gray", vmin=0, vmax=255)
    axes.set(title=title, xticks=[], yticks=[])
plt.show()

# %%
# The 64 atoms that are most unlike a flat patch.

atoms = model.components_.reshape(len(model.components_), 8, 8)
shown = atoms[np.argsort(-atoms.std(axis=(1, 2)))[:64]]
figure, panels = plt.subplots(4, 16, figsize=(9, 2.4), layout="constrained")
for axes, atom in zip(panels.flat, shown, strict=True):
    axes.imshow(atom, cmap="gray")
    axes.axis("off")
plt.show()
