"""Text tables: decimal marks."""

from test_cli import fail
from test_cli_tables import write


def test_decimal_points_beside_decimal_commas_are_an_error(tmp_path, capsys):
    def complaint(rows, *more):
        table = write(tmp_path / "t.csv", "a;b;y\n" + "".join(f"{i},5;{row}\n" for i, row in enumerate(rows)))
        return fail(capsys, "train", table, "--target", "y", "-o", tmp_path / "m", "--decimal", ",", *more)

    printed = complaint([f"-0.{i % 9};{i % 7},5" for i in range(60)])
    assert "column 'b' seems to have decimal points ('-0.0'); give --decimal ., or write one mark everywhere" in printed
    printed = complaint([f"{'2.5' if i == 7 else i % 9};{i % 7},5" for i in range(60)])
    assert "column 'b' holds numbers, but 1 of 60 values are not, the first '2.5' in row 8" in printed
    printed = complaint([f"{'x' if i == 7 else i % 9},5;{i % 7},5" for i in range(60)])
    assert "column 'b' holds numbers, but 1 of 60 values are not, the first 'x,5' in row 8" in printed
    assert "column 'y' seems to have decimal points" in complaint([f"{i % 9},5;{i % 7}.5" for i in range(60)])
