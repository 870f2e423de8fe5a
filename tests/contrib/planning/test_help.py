"""--help of the package's commands."""

from tests.launch.test_help import check_commands, check_teaches, read_help


def test_help_teaches_by_examples():
    text = read_help("plan")
    check_teaches(text, "plan", ["--accelerator", "--devices", "--price", "--model", "v5e", "h100"])
    check_commands([text], 3)
