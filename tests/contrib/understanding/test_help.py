"""--help of the package's command."""

from tests.launch.test_help import check_commands, check_teaches, read_help


def test_help_teaches_by_examples():
    text = read_help("understand")
    check_teaches(text, "understand", ["--judge", "--num_prompts", "report/report.html"])
    check_commands([text], 2)
