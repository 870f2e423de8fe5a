from tests.report.conftest import run_folders  # noqa: F401
