"""The code of a page, its outputs below it, and links to other libraries."""

from __future__ import annotations

from pathlib import Path

from shown_code import code_blocks, outputs

PAGE = """# A page

```python
x = 2
print("printed")
x + 1
```

<!-- not run: needs a card -->
```python
import nothing
```

```console
$ python -c "print('from a command')"
```

```console
$ python -c "1"
$ python -c "2"
```
"""


def test_blocks_run_in_order_and_print_their_last_value(tmp_path: Path) -> None:
    assert outputs(PAGE, tmp_path) == ["printed\n3\n", "from a command\n", ""]
    assert [block.language for block in code_blocks(PAGE)] == ["python", "console", "console"]


def test_outputs_stand_below_their_code() -> None:
    from page_outputs import MOST_LINES, with_outputs

    page = with_outputs(PAGE, ["3\n", "line\n" * 100, ""])
    first = page.index("x + 1\n```")
    assert page[first:].startswith("x + 1\n```\n\n```{code-block} text\n:class: output\n\n3\n```\n")
    assert page.count("```{code-block}") == 2 and page.count("line\n") == MOST_LINES - 1


def test_names_of_other_libraries_are_links() -> None:
    from other_libraries import address_of

    assert address_of("sklearn.cluster.KMeans").endswith("modules/generated/sklearn.cluster.KMeans.html")
    assert address_of("numpy.random.RandomState").endswith("reference/random/generated/numpy.random.RandomState.html")
    assert address_of("tithe.CoresetKMeans") is None and address_of("numpy") is None
