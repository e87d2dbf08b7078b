"""How sums over many rows are taken and small systems solved."""
