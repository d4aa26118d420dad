"""Tables with columns of any kind: what each column is, learned once, stored, and applied everywhere."""
