"""Parameters chosen by cross-validation on one coreset a fold."""

from tithe.meta.search.search_cv import CoresetSearchCV

__all__ = ["CoresetSearchCV"]
