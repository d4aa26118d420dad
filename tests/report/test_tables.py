"""Tables of results, for the terminal and for pages."""

from __future__ import annotations

from tithe.cli.main import print_result_tables


def test_entries_of_atoms_are_text_that_begins_in_one_column(capsys) -> None:
    entries = [{"a": 0.5, "a_column_with_a_long_name": 0.25}, {"b": 1.0}]
    atoms = [{"atom": i, "share": 0.5, "entries": values} for i, values in enumerate(entries)]
    print_result_tables({"atoms": atoms}, most=5)
    lines = capsys.readouterr().out.splitlines()
    starts = [line.index(name) for line in lines for name in ("largest entries", "a 0.5", "b 1") if name in line]
    assert len(starts) == 3 and len(set(starts)) == 1
